"""`rowlock agent`: the workers that it runs units in."""
