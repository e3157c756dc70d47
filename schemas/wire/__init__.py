"""Records in Kafka: the event envelope, rowlock's other records, and Debezium's events."""
