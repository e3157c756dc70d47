"""What operators see of a coordinator, and ask of it."""
