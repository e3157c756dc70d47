"""`rowlock coordinator`: the inventory, fences, and the search for the leading coordinator."""
