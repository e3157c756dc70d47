"""Barriers: the effect of a statement in the log on tables, the resulting events, and the tables that it
creates.
"""
