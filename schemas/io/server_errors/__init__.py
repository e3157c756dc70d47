"""Errors of database servers as sentences: versions that are refused, and reads of a catalog that fail."""
