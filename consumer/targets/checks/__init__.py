"""Checks of a target table, its columns and the user's rights, by `rowlock check` and at each takeover."""
