"""The binlog as a source: the dump connection, the stream of events, and the transactions assembled from
it.
"""
