"""A source as capture sees it: its catalog, its tables, and its log."""
