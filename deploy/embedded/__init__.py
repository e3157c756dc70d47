"""Kafka, MariaDB, PostgreSQL and MySQL for demo and tests: no root, no Docker, gone when the parent is gone."""
