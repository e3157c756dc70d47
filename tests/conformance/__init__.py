"""Tests that hold for every implementation of a seam: on the real ones, and on the tests' own."""
