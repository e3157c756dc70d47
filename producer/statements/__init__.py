"""What a statement in the log means: which tables it changes, how, and what else it may reach."""
