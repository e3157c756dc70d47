"""Goes on where Debezium has read a table again, which its blocking snapshot does when it is asked to (docs/how-to/debezium.md).

Its rows stand in the topic in one piece, and every change since the log was left comes behind them. So a unit that cannot follow its topic goes
on at the first of them, with the definition that the source has now. Until the last one is applied the target may have rows which the source
has no more: in front of that one they are deleted, as at the end of a copy (docs/adr/0026-applying-a-copy.md), once the source has vouched that they
are gone (consumer.attempt.copies.source_keys). Where the rows stand is written
with the definition in force, so that whoever takes the unit over does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import msgspec
import structlog

from consumer.attempt.copies.copies import delete_rows
from consumer.attempt.copies.held import find_deleted_keys
from consumer.attempt.copies.source_keys import SourceKeyProof
from consumer.attempt.copies.sweep import Sweep, build_reread_error
from consumer.attempt.effects import FindSnapshot, Machine, ReadPassed, ReadQuarantine, ask_driver
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
from schemas.table.model import Key, Row, Table
from schemas.wire.debezium_snapshot import DebeziumSnapshotScan
from schemas.wire.position import ZERO

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table that Debezium has read again: its rows have the offsets `first` to `last` in its topic. `table`: its definition at the source now."""

    first: int
    last: int
    table: Table


def find_newest_snapshot(rest: Callable[[int], Iterable[RecordSlice]], after: int) -> tuple[int, int] | None:
    """Return the offsets of the first and the last row of the newest whole snapshot behind `after`. `rest`: what a topic holds from an offset on."""
    scan = DebeziumSnapshotScan(after)
    for records in rest(scan.next):
        scan.scan_records(records)
    return scan.found


def compute_mark_before_snapshot(rows: Sequence[LaneProgress], found: TableSnapshot) -> LaneMark:
    """Return where lanes that stand at `rows` go on with a snapshot. Its rows have no position: what the log has behind them is above any."""
    return (
        found.first - 1,
        max(row.position for row in rows),
        max(row.gen for row in rows),
        max(row.commit_ts_ms for row in rows),
    )


def begin_snapshot(
    spec: UnitSpec, progress: AttemptProgress, before: StoredDefinition | None, error: CopyNeededError
) -> Machine[tuple[StoredDefinition, TableSnapshot] | None]:
    """Look for a snapshot behind what a unit cannot follow, and write with the definition in force that it is to be applied; no lane moves.

    Ends with what is stored, and with the snapshot; None: there is none, or who looks has not the time to.
    """
    if before is None or not spec.patient:
        return None
    found: TableSnapshot | None = yield FindSnapshot(error.after or 0)
    if found is None:
        return None
    log.info(
        "unit skips to a snapshot of Debezium", pipeline=spec.unit.pipeline, topic=spec.unit.topic, first=found.first,
        skipped=error.seen[:300],
    )  # fmt: skip
    stored = replace(before, snapshot=(found.first, found.last))
    yield from progress.commit_guarded([WriteUnit(UnitState(stored.encode(), None, None))])
    return stored, found


def finish_snapshot(
    spec: UnitSpec, in_force: ActiveDefinition | None, progress: AttemptProgress
) -> Machine[None]:
    """Delete what a snapshot has shown to be gone, let held keys go that the source has no more, and write that this is done.

    All lanes stand in front of the snapshot's last row. Whoever dies meanwhile has it done again. Raises CopyNeededError: it is of a part of the table.
    """
    if in_force is None or in_force.stored.snapshot is None:
        return
    if not spec.patient:
        raise TakesLongError(f"{spec.unit.topic}: the source is asked for rows that a snapshot lacks")
    topic, (first, last) = spec.unit.topic, in_force.stored.snapshot
    rows = _SnapshotRows(topic, in_force)
    entries: dict[Key, Sequence[QuarantineEntry]] = {}

    def vouched(doubted: Iterable[Sequence[Key]]) -> Machine[None]:
        held: Sequence[QuarantineEntry] = yield from retry_transient(lambda: ask_driver(ReadQuarantine()))
        entries.update(
            (key, of) for key, of in find_deleted_keys(in_force, held, first - 1) if not rows.is_last(key)
        )
        position = max(row.position for row in progress.rows)
        yield from SourceKeyProof(topic, in_force, first, last, position).vouch_for_keys(
            chain(doubted, [list(entries)])
        )

    sweep = Sweep(
        topic,
        in_force,
        lambda table, keys: delete_rows(progress, table, keys),
        patient=True,
        read=rows.read_rows,
        vouch=vouched,
    )
    gone = yield from sweep.sweep_table(first, last + 1)
    free = yield from sweep.delete_rows_of_keys(list(entries))
    ids = [(entry.offset, entry.part) for key in free for entry in entries[key]]
    state = UnitState(replace(in_force.stored, snapshot=None).encode(), None, None)
    closed: list[Operation] = [
        CloseQuarantine(ids, f"deleted at the source, by the snapshot that ended at offset {last}")
    ]
    yield from progress.commit_guarded([*(closed if ids else ()), WriteUnit(state)])
    log.info(
        "snapshot of Debezium applied", pipeline=spec.unit.pipeline, topic=spec.unit.topic,
        first=first, last=last, rows_deleted=gone,
    )  # fmt: skip


class _SnapshotRows:
    """Reads the rows of a snapshot once more. The last one is not applied yet, so its key is none that is gone, whatever is held for it."""

    def __init__(self, topic: str, in_force: ActiveDefinition) -> None:
        self._topic, self._in_force = topic, in_force
        self._last: Row | None = None

    def read_rows(
        self,
        topic: str,
        in_force: ActiveDefinition,
        first: int,
        upto: int,
        take: Callable[[ReaderItem], None],
    ) -> Machine[None]:
        """Let `take` have the rows with offsets in [first, upto)."""
        start = first
        while (records := (yield ReadPassed(first, upto))) is not None:
            if start == first and records[0][0] != first:
                break
            start = records[-1][0] + 1
            changes = [self._decode_change(offset, raw) for offset, raw in records if raw is not None]
            self._last = changes[-1].after
            take(RowBatch(changes, (start - 1, ZERO, 0, 0)))
        if start != upto:
            raise build_reread_error(topic, start)

    def _decode_change(self, offset: int, raw: bytes) -> RowChange:
        after = decode_debezium_record(self._topic, self._in_force, offset, raw).after
        row = None if after is None else self._in_force.row(after)
        return RowChange((offset, 0), None, row, ZERO, 0, 0, raw, None, True)

    def is_last(self, key: Key) -> bool:
        last = self._last
        if last is None:
            return False
        return msgspec.json.encode(make_key_function(self._in_force.target)(last)) == msgspec.json.encode(key)
