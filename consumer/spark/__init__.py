"""The Structured Streaming queries, the task in Spark's Python workers, and their daemon."""
