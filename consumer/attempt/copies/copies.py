"""Applies the markers of a copy's chunks to the target, in one attempt (docs/adr/0026-applying-a-copy.md).

The rows that a copy shows to be deleted are deleted at its markers. The ranges of a key sweep are only noted
there, and compared between batches (consumer.attempt.copies.key_sweep).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from consumer.attempt.copies.key_sweep import KeySweep, PassedRange
from consumer.attempt.copies.keys_on_disk import MAX_KEYS_IN_MEMORY
from consumer.attempt.copies.marker import CopyChunk
from consumer.attempt.copies.passed_ranges import build_altered_key_error, compare_range, read_key_sweep
from consumer.attempt.copies.quarantined_keys import find_deleted_keys, format_entry_table
from consumer.attempt.copies.removal import must_forget_kept_rows, remove_rows
from consumer.attempt.copies.sweep import MAX_QUICK_SWEEP_KEYS, BoundRefusedError, Sweep, read_topic_after
from consumer.attempt.copies.table_sweep import TableSweep
from consumer.attempt.copies.window import KeyWindow
from consumer.attempt.effects import Machine, ReadClock, ReadQuarantine, TakeKeySweep, ask_driver
from consumer.attempt.operations import (
    CloseQuarantine,
    ForgetKeptRows,
    Operation,
    SupersedeDisplaced,
    WriteUnit,
    build_retry_operations,
)
from consumer.attempt.readers.reader import KeysRead, ReaderItem
from consumer.attempt.recovery import can_recover
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.errors import TakesLongError
from consumer.ordering.model import (
    QuarantineEntry,
    UnitState,
    format_entry_key,
)
from consumer.ordering.progress import LaneMark
from consumer.ordering.recovery import list_keys_to_retry
from consumer.tables.definition import ActiveDefinition
from consumer.tables.stored import StoredDefinition
from schemas.table.model import Key

log = structlog.get_logger(__name__)


class CopyMarkers:
    """Applies the markers of copies in one attempt. `note_taken` receives everything read from the
    topic.

    `apply_chunk_marker` runs at barriers: all lanes have drained. `key_sweep`: the ranges that are not
    compared yet; None: the topic is read again for them.
    """

    def __init__(self, spec: UnitSpec) -> None:
        self._spec = spec
        self._window: KeyWindow | None = None
        self.key_sweep: KeySweep | TableSweep | None = None

    def begin_attempt(self, active: ActiveDefinition | None, progress: AttemptProgress) -> Machine[None]:
        """Begin an attempt, which may have another definition or layout."""
        self._window = None
        sweep = self.key_sweep
        self.forget_key_sweep()
        if active is None or active.stored.sweep_since is None:
            return
        if sweep is None:
            sweep = yield from ask_driver(TakeKeySweep())
        if sweep is None or not progress.level:
            return
        if sweep.can_continue(active, progress.lowest.offset):
            self.key_sweep = sweep

    def forget_key_sweep(self) -> None:
        """Forget the ranges that are noted."""
        self.key_sweep = None

    def begin_key_sweep(self, offset: int, active: ActiveDefinition) -> None:
        """Note the ranges of a key sweep that begins at `offset`, if none are noted and the target shows keys
        as the source does. Otherwise its keys are read later.
        """
        if self.key_sweep is None and active.shown_alike:
            self.key_sweep = KeySweep(offset)

    def note_taken(self, taken: ReaderItem, active: ActiveDefinition | None) -> None:
        if isinstance(self.key_sweep, KeySweep) and active is not None:
            self.key_sweep.note_taken(taken, self._spec.unit.topic, active)
        window = self._window
        if window is not None:
            window.note_taken(taken)
            if len(window) > MAX_KEYS_IN_MEMORY:
                self._window = None  # read again when needed

    def compare_passed_ranges(
        self, active: ActiveDefinition, progress: AttemptProgress, *, to_the_end: bool = False
    ) -> Machine[tuple[StoredDefinition, Sequence[QuarantineEntry] | None]]:
        """Compare what the unit has passed of a key sweep for `sweep_s`, or all of it.

        All lanes are at one offset. Returns the unit's stored definition, which has what is left to do, and
        the entries that are left of its quarantine at the end of a sweep (None: unchanged). Raises
        TakesLongError if an impatient attempt is to compare all ranges and has not, and CopyNeededError if
        the target no longer shows keys as the source does.
        """
        spec, stored = self._spec, active.stored
        remaining: Sequence[QuarantineEntry] | None = None
        sweep = yield from self._get_key_sweep(active, progress)
        began = yield from ask_driver(ReadClock())
        while sweep.has_work:
            passed = yield from self._compare_piece(sweep, active, progress)
            if passed is not None:
                self._log_deleted(active, passed.chunk, passed.deleted)
                stored = replace(stored, sweep_since=passed.at)
                if passed.chunk.last:
                    stored, remaining = yield from self._end_key_sweep(sweep, passed, active, progress)
                    active = replace(active, stored=stored, text=stored.encode())
            is_over = (yield from ask_driver(ReadClock())) - began >= (spec.sweep_s or 0.0)
            if is_over and not (to_the_end and spec.patient):
                break
        if sweep.has_stalled((yield from ask_driver(ReadClock()))):
            stored = replace(stored, sweep_since=None)
        if stored != active.stored:
            yield from progress.commit_guarded([WriteUnit(UnitState(stored.encode(), None, None))])
        if to_the_end and sweep.has_work:
            raise TakesLongError(
                f"{spec.unit.topic}: rowlock is deleting rows that the source no longer has, before it goes "
                "on to the table's next definition; this takes long in a large table"
            )
        return stored, remaining

    def _get_key_sweep(
        self, active: ActiveDefinition, progress: AttemptProgress
    ) -> Machine[KeySweep | TableSweep]:
        """Return what is not compared, as the process remembers it or by reading the topic again."""
        topic, upto, since = self._spec.unit.topic, progress.lowest.offset, active.stored.sweep_since
        if not active.is_key_given:
            raise build_altered_key_error(topic, active, upto)
        if self.key_sweep is None and since is not None and not active.shown_alike:
            self.key_sweep = TableSweep(topic, active, since)
        if isinstance(self.key_sweep, TableSweep):
            self.key_sweep.begin_piece(upto)
        elif self.key_sweep is None and since is not None:
            if upto - since > MAX_QUICK_SWEEP_KEYS and not self._spec.patient:
                raise TakesLongError(f"{topic}: rowlock is reading the keys of a key sweep again")
            self.key_sweep = yield from read_key_sweep(topic, active, since, upto)
        return self.key_sweep or KeySweep(upto)

    def _compare_piece(
        self, sweep: KeySweep | TableSweep, active: ActiveDefinition, progress: AttemptProgress
    ) -> Machine[PassedRange | None]:
        """Compare a page of the first range, or of the table; return the range if it has no more keys.

        A range whose bound the target refuses is compared with all rows up to its end, at once.
        """

        def remove(keys: Sequence[Key]) -> Machine[int]:
            return remove_rows(progress, active, active.target, keys)

        if isinstance(sweep, TableSweep):
            return (yield from sweep.compare_piece(remove))
        try:
            return (yield from compare_range(sweep, active, self._spec.unit.topic, remove))
        except BoundRefusedError:
            chunk = sweep.ranges[0].chunk
            deleted = yield from self._make_sweep(active, progress).sweep_refused_ranges(
                chunk.begins, sweep.upto + 1, None if chunk.last else chunk.upto
            )
            passed = sweep.ranges.popleft()
            passed.count_deleted(deleted)
            return passed

    def _end_key_sweep(
        self,
        sweep: KeySweep | TableSweep,
        passed: PassedRange,
        active: ActiveDefinition,
        progress: AttemptProgress,
    ) -> Machine[tuple[StoredDefinition, Sequence[QuarantineEntry]]]:
        """End the sweep whose last range has been compared; return the definition that is stored then, and
        the remaining entries of the quarantine.
        """
        since = sweep.find_next_since(passed)
        if isinstance(sweep, TableSweep):
            self.forget_key_sweep()
        stored = build_definition_after_copy(active, passed.chunk.begins, since)
        whole = self._make_sweep(active, progress)
        operations, remaining = yield from self._end_copy(whole, passed.chunk, passed.at, active)
        write = WriteUnit(UnitState(stored.encode(), None, None))
        yield from progress.commit_once([*operations, write])
        return stored, remaining

    def apply_chunk_marker(
        self, chunk: CopyChunk, mark: LaneMark, active: ActiveDefinition, progress: AttemptProgress
    ) -> Machine[Sequence[QuarantineEntry] | None]:
        """Delete the rows that a chunk's marker shows as deleted, and move all lanes past it in one
        transaction.

        At the end of the copy, deleted keys also leave the quarantine. Returns the remaining entries;
        None: unchanged.
        """
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
        self._log_deleted(active, chunk, deleted)
        if not chunk.last:
            yield from pass_together(progress, mark, ())
            return None
        self._window = None
        operations, remaining = yield from self._end_copy(sweep, chunk, mark[0], active)
        stored = build_definition_after_copy(active, chunk.begins)
        if stored != active.stored:
            operations.append(WriteUnit(UnitState(stored.encode(), None, None)))
        yield from pass_together(progress, mark, operations)
        return remaining

    def _log_deleted(self, active: ActiveDefinition, chunk: CopyChunk, rows: int) -> None:
        if rows:
            target, unit = active.target, self._spec.unit
            log.info(
                "stale rows deleted", pipeline=unit.pipeline, topic=unit.topic,
                table=f"{target.schema}.{target.name}", rows=rows, copy=chunk.copy,
            )  # fmt: skip

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

    def _end_copy(
        self, sweep: Sweep, chunk: CopyChunk, at: int, active: ActiveDefinition
    ) -> Machine[tuple[list[Operation], Sequence[QuarantineEntry]]]:
        """Return the operations of a copy's end, whose marker is at the offset `at`, and the entries of the
        quarantine that are left.

        Quarantined keys that the source has deleted are released, and the others are tried again. Kept rows
        are forgotten if the route no longer keeps them.
        """
        begins = chunk.begins
        held = yield from retry_transient(lambda: ask_driver(ReadQuarantine()))
        existing: set[str] = set()
        if chunk.keys:
            existing = yield from self._find_existing_keys(sweep, chunk, at, active, held)
        deleted = find_deleted_keys(active, held, begins, existing)
        # Their rows are deleted: a sweep leaves only rows that the target finds under keys of the source. One
        # that it finds under a deleted key, too, is such a row, and an entry tried again would overwrite it.
        ids = [(entry.offset, entry.part) for _, entries in deleted for entry in entries]
        operations: list[Operation] = []
        if not chunk.keys:
            operations += list_superseding_operations(active, begins, at)
        if must_forget_kept_rows(active):
            operations.append(ForgetKeptRows())
        if ids:
            operations.append(
                CloseQuarantine(ids, f"deleted at the source, by the copy that ended at offset {at}")
            )
        closed = set(ids)
        remaining = [entry for entry in held if (entry.offset, entry.part) not in closed]
        if can_recover(active):
            again = list_keys_to_retry(remaining, format_entry_table(active), at, "the end of a copy")
            places = {(entry.offset, entry.part): entry for entry in again}
            operations += build_retry_operations(again)
            remaining = [places.get((entry.offset, entry.part), entry) for entry in remaining]
        return operations, remaining

    def _find_existing_keys(
        self,
        sweep: Sweep,
        chunk: CopyChunk,
        at: int,
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
            sweep.count_compared(at - begins)
            yield from read_topic_after(self._spec.unit.topic, active, begins, at, take)
        return found


def build_definition_after_copy(
    active: ActiveDefinition, begins: int, sweep_since: int | None = None
) -> StoredDefinition:
    """Return the definition that is stored once a copy that began at the offset `begins` has ended: without
    the debt, if the copy pays it, and without kept rows, if the route no longer keeps them.
    """
    stored = replace(active.stored, sweep_since=sweep_since)
    if stored.is_debt_paid(begins):
        stored = replace(stored, removed=None)
    return replace(stored, has_kept_rows=False) if must_forget_kept_rows(active) else stored


def list_superseding_operations(active: ActiveDefinition, begins: int, at: int) -> list[Operation]:
    """Return the operations for rows that were displaced before the ending copy began: the copy has
    brought their values.

    A unique index of a shared target table contains the columns of `add:`, so no row was displaced by
    another source's row.
    """
    target = active.target
    why = f"by the copy from offset {begins} to {at}"
    return [SupersedeDisplaced(f"{target.schema}.{target.name}", begins, why)]


def pass_together(
    progress: AttemptProgress, mark: LaneMark, operations: Sequence[Operation]
) -> Machine[None]:
    """Move all lanes past a marker.

    A lane that went on alone would write rows that a repeated sweep would delete.
    """
    lanes = progress.list_lanes_below(mark)
    yield from retry_transient(lambda: progress.move_lanes(lanes, mark, operations))
