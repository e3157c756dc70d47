"""What runs around rowlock: embedded services for demo and tests, and deployment material."""
