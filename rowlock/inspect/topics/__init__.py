"""Topics of a Kafka target as `verify` reads them: as a reader would, by what the records say, and not by what wrote them."""
