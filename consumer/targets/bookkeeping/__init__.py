"""The tables that rowlock keeps in each target, and their statements (docs/reference/bookkeeping.md): one class a table."""
