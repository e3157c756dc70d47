"""Drivers of an attempt: threads and connections for a target that has sessions, whole batches for one that takes them."""
