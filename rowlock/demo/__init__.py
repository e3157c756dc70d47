"""`rowlock demo`: replicates two branches into a head office on this machine."""
