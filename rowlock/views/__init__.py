"""What the command line reads from a source, from Kafka and from a target."""
