"""The Structured Streaming query: what it is made of, the task in Spark's Python workers, and their daemon."""
