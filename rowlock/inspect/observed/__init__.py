"""Readings of sources and of units, which `status` and `--until-caught-up` judge."""
