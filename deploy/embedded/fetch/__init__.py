"""The software of the embedded services: fetched with Ivy once, kept in a cache, checked against known sums."""
