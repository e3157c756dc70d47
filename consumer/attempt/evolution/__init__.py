"""A target table that changes while its unit runs: the machine, and what a session does for it in a transaction."""
