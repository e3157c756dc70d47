"""Comparing a source's table with what a topic's records leave, for targets of events."""
