"""Apply units that a coordinator gives and takes: one Spark session, all pipelines (design.md §7)."""
