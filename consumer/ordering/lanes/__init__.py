"""A lane: its batches, its waits, and its retries after errors."""
