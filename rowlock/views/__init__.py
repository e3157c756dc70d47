"""Views of a source, of Kafka and of a target for the command line, which reads them only."""
