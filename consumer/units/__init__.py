"""Schedules a pipeline's assigned units without I/O: chooses each unit's next operation, and gives it to the
slots.
"""
