"""The binlog as a source: the dump connection, the stream of events, and transactions put together from it."""
