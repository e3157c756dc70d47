"""Barriers: what a statement in the log does to tables, the events that follow from it, and tables that it brings."""
