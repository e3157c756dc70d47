"""The parts of operations on a unit, each with its own state: hands (connections), stretches of events, looks at tables, fences."""
