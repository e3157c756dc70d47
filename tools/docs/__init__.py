"""Generators of pages from the code. Tests compare the pages with their output."""
