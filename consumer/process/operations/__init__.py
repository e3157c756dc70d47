"""The parts of operations on a unit: connections, direct apply, table checks, copy requests and fencing."""
