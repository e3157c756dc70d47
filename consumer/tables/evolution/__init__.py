"""Changes of a table's definition, pure: what an event means for the unit, and what its target table gets of it."""
