"""A table that is copied again: where a unit that stopped goes on, which keys live, and what is deleted because it lives no more."""
