"""The leader of one term, named `owner` in code and records: its state, and its reaction to events, commands,
inventories, failures and time.
"""
