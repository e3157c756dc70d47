"""Readers of a unit's topic: records become row changes and barriers; missing records are read from Kafka."""
