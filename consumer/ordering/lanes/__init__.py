"""A lane: what it gathers and waits for, what goes into one transaction, and what is tried after an error."""
