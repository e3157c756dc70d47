"""The neutral table model: types, collations, names, and when two values are the same."""
