"""The scheduling of a pipeline's assigned units, without I/O: the next operation, and the query of each
unit.
"""
