"""Progress of a Kafka target: records of units in a compacted topic, and who may write them."""
