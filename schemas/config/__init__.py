"""The configuration file: its models, how it is read, and what is refused."""
