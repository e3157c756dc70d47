"""The archive with which Spark's executors on other machines run slots (`rowlock spark package`).

`contents` decides what the archive contains; `installed` finds that on this machine; `archive` writes it.
"""
