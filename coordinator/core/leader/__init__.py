"""The leader of one term, named `owner` in records and counters: its state, and its reaction to events,
commands, inventories, failures and time.
"""
