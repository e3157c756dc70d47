"""Reports on units to the agent: the lines between the two processes, checkpoints, the sources' time."""
