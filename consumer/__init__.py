"""Apply: reads events from Kafka and writes them into a target, in parallel and in order where it counts."""
