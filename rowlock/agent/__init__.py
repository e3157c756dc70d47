"""`rowlock agent`: the workers in which it runs units."""
