"""A source as capture sees it: its catalogue, its tables, and its log."""
