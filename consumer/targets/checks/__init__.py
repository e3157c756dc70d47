"""Checks, by `rowlock check` and at each takeover, of a target table, its columns and the user's rights."""
