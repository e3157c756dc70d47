"""Oracle's materialized view logs, as data: the meaning of their rows, the SQL that reads and deletes
them, and the catalog. Pure.
"""
