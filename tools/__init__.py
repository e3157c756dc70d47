"""Programs for those who work on rowlock; no part of it."""
