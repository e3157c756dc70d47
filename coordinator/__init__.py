"""The coordinator: pure state machines, and the batch system that runs them
(docs/explanation/batch-system.md).
"""
