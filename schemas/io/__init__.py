"""I/O that all packages share: MySQL's connection and catalogue, Kafka's clients, probes of an address, signals, libraries' logs."""
