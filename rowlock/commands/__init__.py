"""What the command line's commands share, and those of a cluster."""
