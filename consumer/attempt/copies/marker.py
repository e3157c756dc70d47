"""The markers of a copy's chunks, and whether a target can be swept at them. Without I/O."""

from __future__ import annotations

from dataclasses import dataclass

from consumer.errors import CopyNeededError
from consumer.tables.definition import ActiveDefinition
from schemas.table.model import Key
from schemas.wire.event import EventEnvelope


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """The end of a chunk of a copy. `copy`: the copy's id. `begins`, `since`: see
    schemas.wire.copies.CopyMark.
    """

    copy: str
    begins: int
    since: int
    after: Key | None
    upto: Key | None
    last: bool
    keys: bool = False
    """The copy is a key sweep: it brings no rows."""

    def can_sweep(self, active: ActiveDefinition) -> bool:
        """Return whether deleted rows can be determined at this marker.

        That is possible in the chunk's range if source and target order the key alike, and in the whole
        table at the last chunk.
        """
        return active.ordered or self.last


def build_copy_chunk(topic: str, event: EventEnvelope) -> CopyChunk | None:
    """Return the chunk that a copy's marker ends; None if that copy deletes no rows.

    Raises CopyNeededError if the marker does not name its copy.
    """
    chunk, copy = event.chunk, event.copy
    if copy is not None and copy.partial:
        return None
    if chunk is None or copy is None or copy.begins is None or copy.since is None:
        raise CopyNeededError(
            (
                f"{topic}: the chunk marker of a copy lacks the copy's id: an older version of rowlock "
                "wrote it"
            ),
            cause="gap",
        )
    return CopyChunk(copy.id, copy.begins, copy.since, chunk.after, chunk.upto, chunk.last, copy.keys)


def is_key_marker(event: EventEnvelope) -> bool:
    """Return whether `event` is the marker of a key sweep's chunk."""
    return event.chunk is not None and event.copy is not None and event.copy.keys


def can_sweep_keys(active: ActiveDefinition, *, batches: bool) -> bool:
    """Return whether the target can be compared with the keys of a key sweep. It cannot if its rows are not
    in a database, or if their keys do not follow from the source's.

    `batches`: the target takes whole batches. A record of a topic has a key of its own, and may be of a row
    that is outside of the route's filter.
    """
    return active.target.topic is None and not batches and active.is_key_given


def build_removed_rows_error(topic: str, active: ActiveDefinition, offset: int, sql: str) -> CopyNeededError:
    """Return the error of a unit that a copy must bring past the event at `offset`, because its target
    cannot be swept by keys after the statement `sql`.
    """
    source = active.source
    return CopyNeededError(
        f"{topic} offset {offset}: {source.db}.{source.name} lost rows by a statement that the log shows "
        f"only as text: {sql}",
        cause="rows-replaced",
        after=offset,
    )
