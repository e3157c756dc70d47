"""What all packages need of the outside: MySQL's connection and catalogue, Kafka's clients, what answers at an address, signals, libraries' logs."""
