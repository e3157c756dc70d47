"""The coordinator simulated: its real cores in a modelled world (docs/explanation/coordination.md)."""
