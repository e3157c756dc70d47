"""The tables that rowlock keeps in each target, and their statements, one class for each table
(docs/reference/bookkeeping.md).
"""
