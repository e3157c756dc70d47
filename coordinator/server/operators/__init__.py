"""The operators' view of a coordinator, and their commands to it."""
