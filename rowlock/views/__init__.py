"""Read-only views of a source, of Kafka and of a target, for the command line."""
