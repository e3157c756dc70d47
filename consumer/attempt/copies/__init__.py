"""Copies of a table: this package finds the offset at which a stopped unit continues, collects the keys
that exist, and deletes the rows of all other keys.
"""
