"""Services around rowlock: embedded ones for demo and tests, and deployment material."""
