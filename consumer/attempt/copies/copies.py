"""Applies the markers of a copy's chunks to the target, in one attempt (docs/adr/0026-applying-a-copy.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from consumer.attempt.copies.keys_on_disk import MAX_KEYS_IN_MEMORY
from consumer.attempt.copies.quarantined_keys import find_deleted_keys, format_entry_table
from consumer.attempt.copies.removal import must_forget_kept_rows, remove_rows
from consumer.attempt.copies.sweep import BoundRefusedError, Sweep, read_topic_after
from consumer.attempt.copies.window import KeyWindow
from consumer.attempt.effects import Machine, ReadQuarantine, ask_driver
from consumer.attempt.operations import (
    CloseQuarantine,
    DropQuarantined,
    ForgetKeptRows,
    Operation,
    QuarantineEvents,
    SupersedeDisplaced,
    WriteUnit,
)
from consumer.attempt.readers.reader import KeysRead, ReaderItem
from consumer.attempt.recovery import can_recover
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.errors import CopyNeededError
from consumer.ordering.model import (
    QuarantineEntry,
    UnitState,
    format_entry_key,
)
from consumer.ordering.progress import LaneMark
from consumer.ordering.recovery import list_keys_to_retry
from consumer.tables.definition import ActiveDefinition
from schemas.table.model import Key
from schemas.wire.event import EventEnvelope

log = structlog.get_logger(__name__)


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


def can_sweep_keys(spec: UnitSpec, active: ActiveDefinition) -> bool:
    """Return whether the target can be swept by keys alone: its rows are in a database, and their keys
    follow from the source's.

    A record of a topic has a key of its own, and may be of a row that is outside of the route's filter.
    """
    return active.target.topic is None and not spec.batches and active.is_key_given


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


class CopyMarkers:
    """Applies the markers of copies in one attempt. `note_taken` receives everything read from the
    topic.

    `apply_chunk_marker` runs at barriers: all lanes have drained.
    """

    def __init__(self, spec: UnitSpec) -> None:
        self._spec = spec
        self._window: KeyWindow | None = None

    def begin_attempt(self) -> None:
        """Begin an attempt, which may have another definition or layout."""
        self._window = None

    def note_taken(self, taken: ReaderItem) -> None:
        window = self._window
        if window is not None:
            window.note_taken(taken)
            if len(window) > MAX_KEYS_IN_MEMORY:
                self._window = None  # read again when needed

    def apply_chunk_marker(
        self, chunk: CopyChunk, mark: LaneMark, active: ActiveDefinition, progress: AttemptProgress
    ) -> Machine[Sequence[QuarantineEntry] | None]:
        """Delete the rows that a chunk's marker shows as deleted, and move all lanes past it in one
        transaction.

        At the end of the copy, deleted keys also leave the quarantine. Returns the remaining entries;
        None: unchanged.
        """
        spec = self._spec
        sweep = self._make_sweep(active, progress)
        if len(progress.list_lanes_below(mark)) < len(progress.rows):
            return None  # all lanes passed the marker together, after the deletion
        if active.ordered:
            window = yield from self._read_window(chunk.since, mark[0], active)
            try:
                deleted = yield from sweep.sweep_range(window, chunk.since, chunk.after, chunk.upto)
            except BoundRefusedError:
                upto = None if chunk.last else chunk.upto
                deleted = yield from sweep.sweep_refused_ranges(chunk.begins, mark[0], upto)
        else:
            deleted = yield from sweep.sweep_table(chunk.begins, mark[0])
        if deleted:
            target = active.target
            log.info(
                "stale rows deleted", pipeline=spec.unit.pipeline, topic=spec.unit.topic,
                table=f"{target.schema}.{target.name}", rows=deleted, copy=chunk.copy,
            )  # fmt: skip
        if not chunk.last:
            yield from pass_together(progress, mark, ())
            return None
        self._window = None
        return (yield from self._finish_copy(sweep, chunk, mark, active, progress))

    def remove_all_rows(self, active: ActiveDefinition, progress: AttemptProgress) -> Machine[None]:
        """Delete the rows of the unit, except those that are kept: the source's table was emptied."""
        sweep = self._make_sweep(active, progress)
        yield from sweep.sweep_range(KeyWindow(active.target, 0), 0, None, None)

    def _make_sweep(self, active: ActiveDefinition, progress: AttemptProgress) -> Sweep:
        return Sweep(
            self._spec.unit.topic,
            active,
            lambda table, keys: remove_rows(progress, active, table, keys),
            patient=self._spec.patient,
        )

    def _read_window(self, since: int, upto: int, active: ActiveDefinition) -> Machine[KeyWindow]:
        """Return the keys that events after `since` leave existing, as the attempt kept them or by
        reading again.
        """
        window = self._window
        if window is None or window.since > since:
            window = KeyWindow(active.target, since)
            if upto - since > 1:
                yield from read_topic_after(self._spec.unit.topic, active, since, upto, window.note_taken)
            self._window = window
        return window

    def _finish_copy(
        self,
        sweep: Sweep,
        chunk: CopyChunk,
        mark: LaneMark,
        active: ActiveDefinition,
        progress: AttemptProgress,
    ) -> Machine[Sequence[QuarantineEntry]]:
        """Release quarantined keys that the source has deleted, let the others be tried again, clear the
        unit's debt, forget kept rows that the route no longer keeps, and move all lanes past the end of
        the copy.
        """
        begins = chunk.begins
        held = yield from retry_transient(lambda: ask_driver(ReadQuarantine()))
        existing: set[str] = set()
        if chunk.keys:
            existing = yield from self._find_existing_keys(sweep, chunk, mark, active, held)
        deleted = find_deleted_keys(active, held, begins, existing)
        # Their rows are deleted: a sweep leaves only rows that the target finds under keys of the source. One
        # that it finds under a deleted key, too, is such a row, and an entry tried again would overwrite it.
        ids = [(entry.offset, entry.part) for _, entries in deleted for entry in entries]
        operations: list[Operation] = []
        if not chunk.keys:
            operations += list_superseding_operations(active, begins, mark)
        if changes_stored_definition(active, begins):
            operations += _list_definition_operations(active, begins)
        if ids:
            why = f"deleted at the source, by the copy that ended at offset {mark[0]}"
            operations.append(CloseQuarantine(ids, why))
        closed = set(ids)
        remaining = [entry for entry in held if (entry.offset, entry.part) not in closed]
        if can_recover(active):
            again = list_keys_to_retry(remaining, format_entry_table(active), mark[0])
            places = {(entry.offset, entry.part): entry for entry in again}
            if places:
                operations += [DropQuarantined(list(places)), QuarantineEvents(again)]
            remaining = [places.get((entry.offset, entry.part), entry) for entry in remaining]
        yield from pass_together(progress, mark, operations)
        return remaining

    def _find_existing_keys(
        self,
        sweep: Sweep,
        chunk: CopyChunk,
        mark: LaneMark,
        active: ActiveDefinition,
        held: Sequence[QuarantineEntry],
    ) -> Machine[set[str]]:
        """Return which quarantined keys without a later change a key sweep has read, by reading it again.

        `sweep` counts what is read. Raises TakesLongError.
        """
        name, begins = format_entry_table(active), chunk.begins
        uncertain = {entry.key for entry in held if entry.table == name and entry.offset <= begins}
        found: set[str] = set()

        def take(taken: ReaderItem) -> None:
            if isinstance(taken, KeysRead):
                sweep.count_compared(len(taken.keys))
                found.update(uncertain.intersection(map(format_entry_key, taken.keys)))

        if uncertain:
            sweep.count_compared(mark[0] - begins)
            yield from read_topic_after(self._spec.unit.topic, active, begins, mark[0], take)
        return found


def changes_stored_definition(active: ActiveDefinition, begins: int) -> bool:
    """Return whether the end of a copy that began at the offset `begins` changes the stored definition."""
    return active.stored.is_debt_paid(begins) or must_forget_kept_rows(active)


def _list_definition_operations(active: ActiveDefinition, begins: int) -> list[Operation]:
    """Return the operations that clear the unit's debt, if it is paid, and forget its kept rows, if the route
    no longer keeps them.
    """
    stored, forgets = active.stored, must_forget_kept_rows(active)
    if stored.is_debt_paid(begins):
        stored = replace(stored, removed=None)
    if forgets:
        stored = replace(stored, has_kept_rows=False)
    written: list[Operation] = [WriteUnit(UnitState(stored.encode(), None, None))]
    return [*written, ForgetKeptRows()] if forgets else written


def list_superseding_operations(active: ActiveDefinition, begins: int, mark: LaneMark) -> list[Operation]:
    """Return the operations for rows that were displaced before the ending copy began: the copy has
    brought their values.

    A unique index of a shared target table contains the columns of `add:`, so no row was displaced by
    another source's row.
    """
    target = active.target
    why = f"by the copy from offset {begins} to {mark[0]}"
    return [SupersedeDisplaced(f"{target.schema}.{target.name}", begins, why)]


def pass_together(
    progress: AttemptProgress, mark: LaneMark, operations: Sequence[Operation]
) -> Machine[None]:
    """Move all lanes past a marker.

    A lane that went on alone would write rows that a repeated sweep would delete.
    """
    lanes = progress.list_lanes_below(mark)
    yield from retry_transient(lambda: progress.move_lanes(lanes, mark, operations))
