"""The kinds of sources and of targets that a configuration may name, as tables."""
