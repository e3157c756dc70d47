"""`rowlock demo`: two branches flow into a head office on this machine."""
