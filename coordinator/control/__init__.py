"""Election and durable state in Kafka alone: one topic, one partition, one transactional producer (docs/adr has the why).

`codec` and `fold` say what the topic holds, `election` who may write it (both pure); `kafka_log` is the thin shell.
"""
