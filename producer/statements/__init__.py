"""Statements in the log: which tables it changes, how, and what else it may reach."""
