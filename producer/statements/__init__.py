"""Statements in the log: the tables that they change, the kind of change, and the other tables that they
may affect.
"""
