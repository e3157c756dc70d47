"""Readings of sources and units, which `status` and `--until-caught-up` judge."""
