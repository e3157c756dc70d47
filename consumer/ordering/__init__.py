"""The rules of order, without I/O: duplicates, lanes, locks, folds of keys, net changes, progress.

This package imports no package above it.
"""
