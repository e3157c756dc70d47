"""Tests: unit, sim, integration, faults, bench."""
