"""What operations on a unit are made of, each with a state of its own: hands, stretches of events, looks at target tables, fences."""
