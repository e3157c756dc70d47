"""The parts of operations on a unit: connections, table checks, copy requests and fencing."""
