"""The neutral table model: types, collations, names, and the equality of values."""
