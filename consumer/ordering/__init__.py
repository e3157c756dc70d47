"""The rules of order, all pure: duplicates, lanes, locks, folds of keys, net changes, progress. It imports nothing above it."""
