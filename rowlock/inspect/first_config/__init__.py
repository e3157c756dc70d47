"""The first configuration, from two URLs: addresses, tables, the file's text, and what a run will copy."""
