"""What the agent is told of units: the lines between the two processes, checkpoints, the sources' time."""
