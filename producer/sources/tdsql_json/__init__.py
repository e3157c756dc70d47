"""TDSQL by its subscription, which writes JSON messages into a topic of the user's Kafka
(docs/adr/0049-tdsql-json-subscription.md): pure modules, without a reader of the topic yet.
"""
