"""Continues a unit at a blocking snapshot, by which Debezium has read the unit's table again
(docs/how-to/debezium.md).

The snapshot's rows are contiguous in the topic, and every change since Debezium stopped reading the log
follows them. A unit that cannot follow its topic therefore continues at the first of these rows, with
the source's present definition. Until the last row is applied, the target may have rows that the source
has deleted. They are deleted before that row, as at the end of a copy
(docs/adr/0026-applying-a-copy.md), after the source has confirmed that it does not have them
(consumer.attempt.copies.source_keys). The offsets of the snapshot are stored with the active definition,
so that the next owner of the unit finishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

import msgspec
import structlog

from consumer.attempt.copies.quarantined_keys import find_deleted_keys
from consumer.attempt.copies.removal import remove_rows
from consumer.attempt.copies.source_keys import SourceKeyProof
from consumer.attempt.copies.sweep import Sweep, build_reread_error
from consumer.attempt.effects import (
    FindSnapshot,
    Machine,
    ReadPassed,
    ReadQuarantine,
    TableSnapshot,
    ask_driver,
)
from consumer.attempt.operations import CloseQuarantine, Operation, WriteUnit
from consumer.attempt.readers.debezium import decode_debezium_record
from consumer.attempt.readers.reader import ReaderItem, RecordSlice, RowBatch
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.errors import CopyNeededError, TakesLongError
from consumer.ordering.model import LaneProgress, QuarantineEntry, RowChange, UnitState
from consumer.ordering.progress import LaneMark
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import make_key_function
from consumer.tables.stored import StoredDefinition
from schemas.table.model import Key, Row
from schemas.wire.debezium_snapshot import DebeziumSnapshotScan
from schemas.wire.position import ZERO

log = structlog.get_logger(__name__)


def find_newest_snapshot(rest: Callable[[int], Iterable[RecordSlice]], after: int) -> tuple[int, int] | None:
    """Return the offsets of the first and the last row of the newest complete snapshot after `after`.

    `rest`: returns the records of the topic from an offset on.
    """
    scan = DebeziumSnapshotScan(after)
    for records in rest(scan.next):
        scan.scan_records(records)
    return scan.found


def compute_mark_before_snapshot(rows: Sequence[LaneProgress], found: TableSnapshot) -> LaneMark:
    """Return the mark from which lanes at `rows` continue with a snapshot.

    The snapshot's rows have no position; every later event of the log has a higher one than the mark.
    """
    return (
        found.first - 1,
        max(row.position for row in rows),
        max(row.gen for row in rows),
        max(row.commit_ts_ms for row in rows),
    )


def begin_snapshot(
    spec: UnitSpec, progress: AttemptProgress, before: StoredDefinition | None, error: CopyNeededError
) -> Machine[tuple[StoredDefinition, TableSnapshot] | None]:
    """Find a snapshot after the event that a unit cannot follow, and store it with the active
    definition; no lane moves.

    Returns the stored definition and the snapshot; None if there is no snapshot, or the attempt is not
    patient.
    """
    if before is None or not spec.patient:
        return None
    found = yield from ask_driver(FindSnapshot(error.after or 0))
    if found is None:
        return None
    log.info(
        "unit skips to a snapshot of Debezium", pipeline=spec.unit.pipeline, topic=spec.unit.topic,
        first=found.first, skipped=error.seen[:300],
    )  # fmt: skip
    stored = replace(before, snapshot=(found.first, found.last))
    yield from progress.commit_guarded([WriteUnit(UnitState(stored.encode(), None, None))])
    return stored, found


def finish_snapshot(
    spec: UnitSpec, active: ActiveDefinition | None, progress: AttemptProgress
) -> Machine[None]:
    """Delete rows that a snapshot lacks, release quarantined keys that the source has deleted, and
    record the snapshot as finished.

    All lanes have reached the record before the snapshot's last row. After a crash this is repeated.
    Raises CopyNeededError if the snapshot is of a part of the table.
    """
    if active is None or active.stored.snapshot is None:
        return
    if not spec.patient:
        raise TakesLongError(
            f"{spec.unit.topic}: before rowlock deletes rows that Debezium's snapshot lacks, it "
            "asks the source whether they are deleted there; this can take long"
        )
    topic, (first, last) = spec.unit.topic, active.stored.snapshot
    rows = _SnapshotRows(topic, active)
    gone: list[tuple[Key, Sequence[QuarantineEntry]]] = []

    def vouch_for_keys(doubted: Iterable[Sequence[Key]]) -> Machine[None]:
        held = yield from retry_transient(lambda: ask_driver(ReadQuarantine()))
        gone[:] = [each for each in find_deleted_keys(active, held, first - 1) if not rows.is_last(each[0])]
        position = max(row.position for row in progress.rows)
        yield from SourceKeyProof(topic, active, first, last, position).vouch_for_keys(
            chain(doubted, [[key for key, _ in gone]])
        )

    sweep = Sweep(
        topic,
        active,
        lambda table, keys: remove_rows(progress, active, table, keys),
        patient=True,
        read=rows.read_rows,
        vouch=vouch_for_keys,
    )
    deleted = yield from sweep.sweep_table(first, last + 1)
    ids = [(entry.offset, entry.part) for _, entries in gone for entry in entries]
    state = UnitState(replace(active.stored, snapshot=None).encode(), None, None)
    closed: list[Operation] = [
        CloseQuarantine(ids, f"deleted at the source, by the snapshot that ended at offset {last}")
    ]
    yield from progress.commit_guarded([*(closed if ids else ()), WriteUnit(state)])
    log.info(
        "snapshot of Debezium applied", pipeline=spec.unit.pipeline, topic=spec.unit.topic,
        first=first, last=last, rows_deleted=deleted,
    )  # fmt: skip


class _SnapshotRows:
    """Reads the rows of a snapshot again.

    The last row is not applied yet, so its key counts as existing, whatever quarantine entries it has.
    """

    def __init__(self, topic: str, active: ActiveDefinition) -> None:
        self._topic, self._active = topic, active
        self._last: Row | None = None

    def read_rows(
        self,
        topic: str,
        active: ActiveDefinition,
        first: int,
        upto: int,
        take: Callable[[ReaderItem], None],
    ) -> Machine[None]:
        """Pass the rows with offsets in [first, upto) to `take`."""
        start = first
        while (records := (yield from ask_driver(ReadPassed(first, upto)))) is not None:
            if start == first and records[0][0] != first:
                break
            start = records[-1][0] + 1
            changes = [self._decode_change(offset, raw) for offset, raw in records if raw is not None]
            self._last = changes[-1].after
            take(RowBatch(changes, (start - 1, ZERO, 0, 0)))
        if start != upto:
            raise build_reread_error(topic, start)

    def _decode_change(self, offset: int, raw: bytes) -> RowChange:
        after = decode_debezium_record(self._topic, self._active, offset, raw).after
        row = None if after is None else self._active.row(after)
        return RowChange((offset, 0), None, row, ZERO, 0, 0, raw, None, True)

    def is_last(self, key: Key) -> bool:
        last = self._last
        if last is None:
            return False
        return msgspec.json.encode(make_key_function(self._active.target)(last)) == msgspec.json.encode(key)
