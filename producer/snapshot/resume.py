"""The place where a table's snapshot continues, by the markers in its topic. Pure."""

from __future__ import annotations

from producer.copies.states import CopyStates
from producer.snapshot.chunks import FROM_START, ResumePoint
from producer.start.topic_recovery import ChunkMarker, TableTail
from producer.tables import TableState, format_table_name
from schemas.table.model import Table


def resume_point(state: TableState, tail: TableTail | None, copies: CopyStates) -> ResumePoint | None:
    """Return the place where a table's snapshot or copy continues; None: a copy has to begin first.

    `tail`: the table's part of its topic at the start.
    """
    begun = state.begun
    restart = FROM_START._replace(repeated=begun is not None)
    if begun is not None and not copies.should_resume(format_table_name(state.name), begun):
        return restart._replace(done=True)
    if tail is None or not tail.markers or tail.begun != begun:
        return restart
    resume = resume_after(tail, state.table)
    return None if resume == FROM_START._replace(repeated=True) else resume


def resume_after(tail: TableTail, table: Table) -> ResumePoint:
    """Return the place of a table's snapshot by its markers, in topic order.

    The first marker may be any of a chain.

    A position record named that marker as the last valid one (`Anchor`), so it needs no proof. `table`:
    the active definition. The end of a chunk by another key is no place in this key's order; everything
    is then read again.
    """
    at = FROM_START
    last: ChunkMarker | None = None
    for marker in tail.markers:
        chunk = marker.chunk
        follows = not at.done and (chunk.number, chunk.after) == (at.number, at.after)
        if last is None or chunk.number == 1 or follows:
            at, last = ResumePoint(chunk.last, chunk.number + 1, chunk.upto, chunk.repeated), marker
    if last is None or at.done or _has_key_of_table(tail, last, table):
        return at
    return FROM_START._replace(repeated=True)


def _has_key_of_table(tail: TableTail, marker: ChunkMarker, table: Table) -> bool:
    """Return whether the marker's key values belong to the table's key.

    That is decided by the definition at the marker, or by the number of values if `tail` begins later.
    """
    under = max((position for position in tail.definitions if position <= marker.position), default=None)
    if under is not None:
        return tail.definitions[under].key.columns == table.key.columns
    return len(marker.chunk.upto or ()) == len(table.key.parts)
