"""I/O that all packages share: MySQL's connection and catalog, Kafka's clients, probes of an address,
signals, and the logs of libraries.
"""
