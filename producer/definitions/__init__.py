"""The active definition of a table at a position of the log, and its proof.

The catalog shows a table as it is *now*; the log is read later. A reading of the catalog is right for a
position exactly if the log has no statement that may change the table between that position and the
log's end as it was *after* the reading. `index` contains the statements of a range of the log, `walk`
finds them in the server's stream, `scan` reads a range once, and `proof` combines them with the catalog.
No definition is parsed out of a statement.
"""
