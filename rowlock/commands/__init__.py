"""The commands of a cluster, and the code that all commands share."""
