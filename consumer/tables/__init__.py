"""From topics to target tables: which topics, which tables, which definition is in force, how events are decoded."""
