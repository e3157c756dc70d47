"""Kafka as a target of events: routed topics, written in transactions that include the progress."""
