"""Schedules a pipeline's assigned units without I/O: chooses each unit's next operation and its query."""
