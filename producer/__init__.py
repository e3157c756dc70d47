"""Capture: reads a source's log and its existing rows, and writes them into Kafka as events."""
