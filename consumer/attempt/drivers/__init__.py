"""Drivers that carry out an attempt's effects: one uses threads and sessions, one serves whole-batch
targets.
"""
