"""The kinds of sources and of targets that a configuration may name, each one entry of a table."""
