"""Progress of units in a target that has transactions: its store, how a unit is taken over, and what is written beside rows."""
