"""The progress of a Kafka target: records of units in a compacted topic, and the fence of their writers."""
