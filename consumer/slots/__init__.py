"""Slots, in which units are applied: tasks of Spark that last, and one in the apply process itself."""
