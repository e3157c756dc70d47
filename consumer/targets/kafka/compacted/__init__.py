"""The rows that a topic's records leave after compaction, kept in a file, because a topic is larger
than memory.
"""
