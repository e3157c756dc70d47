"""Reports about units to the agent: the protocol of the two processes, checkpoints, and the sources' time."""
