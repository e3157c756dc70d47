"""`rowlock coordinator`: the desired units, fences, and the way to whichever coordinator leads."""
