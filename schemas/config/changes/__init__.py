"""A configuration that changes while rowlock runs: its text handed on, its parts told apart by digests, and what is different."""
