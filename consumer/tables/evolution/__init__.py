"""Changes of a table's definition: their meaning for the unit, and the steps of the target table.

Without I/O.
"""
