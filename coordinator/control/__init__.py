"""Leader election and durable state in Kafka alone: one topic, one partition, one transactional
producer.

`codec` and `fold` define what the topic contains, `election` decides which candidate may write it (all
pure); `kafka_log` is the thin shell.
"""
