"""Kafka as capture reads and writes it: clients' settings, the writer, topics, ranges of topics."""
