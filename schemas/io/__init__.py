"""What all packages need of the outside: MySQL's connection and catalogue, what answers at an address, signals, libraries' logs."""
