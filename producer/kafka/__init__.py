"""Kafka as capture writes and reads it: clients' settings, the writer, topics, stretches of topics."""
