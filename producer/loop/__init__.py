"""The machine of capture: from the log's events to Kafka. What it acts on is passed in (producer/ports.py)."""
