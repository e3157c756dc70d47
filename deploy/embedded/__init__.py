"""Kafka, MariaDB, PostgreSQL and MySQL for demo and tests: without root and Docker, and ended together
with the parent.
"""
