"""Readers of a unit's topic: they turn records into row changes and barriers, and read missing records
from Kafka.
"""
