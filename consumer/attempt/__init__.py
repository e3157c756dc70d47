"""One attempt to apply a unit, written as generators of effects."""
