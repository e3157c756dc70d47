"""Oracle as a source: its materialized view logs are polled, published, and deleted once Kafka has them
(docs/adr/0028).
"""
