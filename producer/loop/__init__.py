"""The loop of capture, from the log's events to Kafka.

Its connections are passed in (producer/ports.py).
"""
