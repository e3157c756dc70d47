"""Copies of a table: the offset at which a stopped unit continues, the keys that exist, and the deletion
of others.
"""
