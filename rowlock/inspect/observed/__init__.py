"""Readings of sources and of units, which `status` judges."""
