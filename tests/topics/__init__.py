"""What a reader of a Kafka target's topics may count on, judged without the product's code: records, formats,
sources' changes, findings."""
