"""Comparison of a source table with the rows that a topic's records yield, for targets of events."""
