"""What `check` and each takeover refuse about a target table, its columns and the user's rights."""
