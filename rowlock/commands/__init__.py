"""Commands of a cluster, and the code that all commands share."""
