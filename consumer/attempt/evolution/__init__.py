"""Schema changes of a target table while its unit runs: the steps of a change, and a session's
operations.
"""
