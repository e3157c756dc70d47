"""Tests: unit, sim, integration, faults, upgrade. What they share is in kits, stands and servers."""
