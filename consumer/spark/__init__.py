"""Spark's settings, the queries that carry slots, their task, and the daemon of Spark's Python workers."""
