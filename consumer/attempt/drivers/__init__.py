"""Drivers of an attempt: with threads and sessions, or for whole-batch targets."""
