"""Changes of a configuration while rowlock runs: the transfer of its text, digests of its parts, and
the differences.
"""
