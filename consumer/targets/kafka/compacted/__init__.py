"""Rows that a topic's records leave: the last record of each key, kept in a file, for a topic is larger than memory."""
