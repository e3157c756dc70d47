"""One topic in one task attempt, as a machine of effects. See docs/explanation/architecture.md."""
