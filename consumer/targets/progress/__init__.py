"""The progress of units in a target with transactions: its store, the takeover, and the writer of
progress beside rows.
"""
