"""The commands of a cluster, `rowlock init`, and the code that all commands share."""
