"""One attempt at a unit, as a machine of effects. See docs/explanation/architecture.md."""
