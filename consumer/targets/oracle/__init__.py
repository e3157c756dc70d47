"""Oracle as a target."""
