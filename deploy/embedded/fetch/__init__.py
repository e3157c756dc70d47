"""What the embedded services run: fetched with Ivy once, kept in a cache, checked against known sums."""
