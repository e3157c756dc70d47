"""The definition of a table that is in force at a position of the log, and its proof (design.md §5, R7, R8).

The catalogue shows a table as it is *now*; the log is read later. What was read is right for a position exactly if no
statement that may change the table stands between that position and the log's end as it was *after* the reading.
`index` knows the statements of a stretch of the log, `walk` finds them in the server's stream, `scan` reads a stretch
once, `proof` puts the question. Nothing here parses a definition out of a statement.
"""
