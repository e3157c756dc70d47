"""The snapshot of one table as a pure state machine: chunks in key order, each within a watermark window (design.md §5).

LOW says which transactions the SELECT surely saw, HIGH is any log position read after it. Every key that a
transaction outside LOW touches until the stream reaches HIGH is in the topic with its newer image; only the rest of
the chunk is emitted. Keys are recorded from `begin` on, not from the read on: with semi-synchronous replication the
stream delivers transactions that a SELECT does not see yet, so LOW can lie *behind* what the stream has delivered.

The shell (producer/snapshot.py reads, capture drives) feeds `step` with what happens and carries out the effects:

    state, effects = begin(plan, at, gtids, now)          # or resume(plan, markers, ...)
    state, effects = step(plan, state, event, now)

    events:  RowsSeen(keys, mark)      a transaction of the stream touched these keys (before and after) of this table
             TableChanged(mark)        DDL, TRUNCATE or RENAME of this table passed in the stream
             StreamAt(position)        the stream stands at a transaction boundary (all before it was fed)
             ChunkRead(...), ChunkFailed(...)   answers of the reader
    effects: ReadChunk(...)            read on another connection, not before `not_before`
             EmitChunk(...)            write rows and marker *now*, before any further event of the stream
             SnapshotDone()
"""
