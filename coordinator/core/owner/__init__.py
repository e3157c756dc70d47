"""The owner of one term: its state, and what it does with events, commands, catalogues, failures and time."""
