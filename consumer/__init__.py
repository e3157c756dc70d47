"""See docs/explanation/architecture.md."""
