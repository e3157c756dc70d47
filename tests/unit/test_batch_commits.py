"""What the operations of a transaction come to as one commit of a target of whole batches: nothing is left
out, and the order is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.drivers.batches import build_commit
from consumer.errors import TargetConfigError
from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    NetChange,
    QuarantineEntry,
    TargetTable,
    UnitState,
)
from consumer.targets.batches import TableCleared
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire.position import ZERO
from tests.stands.json_folder import JsonFolder

TABLE = TargetTable(
    Table(
        db="s", name="t",
        columns=(Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
    ),
    key_at=(0,), unique_at=(),
)  # fmt: skip
UNIT = ApplyUnit("p", "topic")
ROW = LaneProgress(0, 7, 1, "id", 4, ZERO, 0, "{}")
AFTER = LaneProgress(0, 7, 1, "id", 9, ZERO, 0, "{}")
MORE = LaneProgress(0, 7, 1, "id", 9, ZERO, 0, '{"lanes":1}')


def writes(*rows: int, deletes: Sequence[int] = ()) -> ops.WriteChanges:
    return ops.WriteChanges(NetChange(TABLE, [(key,) for key in deletes], [(row,) for row in rows]))


def held(offset: int) -> QuarantineEntry:
    return QuarantineEntry(offset, 0, "s.t", "[1]", "1", "{}", "why", 0)


def of_operations(*operations: ops.Operation) -> fx.Transact:
    return fx.Transact(0, [ROW], operations)


EMPTY = ops.TruncateTarget(TABLE, {"branch": "b"})
ORDERS = {
    "a truncate behind rows": (writes(1), EMPTY),
    "a truncate before rows": (EMPTY, writes(1)),
    "rows between two truncates": (EMPTY, writes(1), EMPTY, writes(2)),
    "two truncates behind rows": (writes(1), EMPTY, EMPTY),
}


@pytest.mark.parametrize("operations", ORDERS.values(), ids=ORDERS)
def test_rows_and_truncates_keep_their_order(
    operations: Sequence[ops.WriteChanges | ops.TruncateTarget],
) -> None:
    changes, progress = build_commit(of_operations(*operations, ops.WriteProgress([AFTER])))
    expected = [
        each.net if isinstance(each, ops.WriteChanges) else TableCleared(TABLE, each.where)
        for each in operations
    ]
    assert changes == expected
    assert (progress.guards, progress.rows, progress.held) == ([ROW], [AFTER], [])


@pytest.mark.parametrize("operations", ORDERS.values(), ids=ORDERS)
def test_the_folder_carries_them_out_in_their_order(
    operations: Sequence[ops.WriteChanges | ops.TruncateTarget], tmp_path: Path
) -> None:
    folder = JsonFolder(tmp_path)
    epoch, _, _ = folder.take_over(UNIT, "id", "{}", 1, assigned=1)
    rows, _, _ = folder.begin_attempt(UNIT, epoch)
    expected: list[Row] = []
    for each in operations:
        expected = [] if isinstance(each, ops.TruncateTarget) else [*expected, *each.net.replaces]
    folder.apply_changes(UNIT, *build_commit(fx.Transact(0, rows, operations)))
    assert folder.rows(UNIT, TABLE) == expected


def test_what_is_held_in_two_operations_is_held() -> None:
    _, progress = build_commit(
        of_operations(ops.QuarantineEvents([held(5)]), ops.QuarantineEvents([held(6), held(7)]))
    )
    assert progress.held == [held(5), held(6), held(7)]


def test_the_quarantine_is_closed_before_it_takes_more() -> None:
    _, progress = build_commit(
        of_operations(ops.CloseQuarantineBefore(8, "emptied"), ops.QuarantineEvents([held(9)]))
    )
    assert (progress.closed_before, progress.why, progress.held) == (8, "emptied", [held(9)])


@pytest.mark.parametrize(
    "operations",
    [
        (ops.QuarantineEvents([held(5)]), ops.CloseQuarantineBefore(8, "emptied")),
        (ops.CloseQuarantineBefore(4, "one"), ops.CloseQuarantineBefore(8, "two")),
    ],
    ids=["closed behind what is held", "closed twice"],
)
def test_what_a_commit_cannot_say_in_its_order_is_refused(operations: Sequence[ops.Operation]) -> None:
    with pytest.raises(ValueError, match="closes entries of the quarantine once"):
        build_commit(of_operations(*operations))


@pytest.mark.parametrize(
    "operation",
    [
        ops.DropTarget(TABLE.table),
        ops.MarkSharersIncomplete(TABLE.table),
        ops.RequireRowsPresent(),
        ops.RequireTableUnchanged(TABLE.table, TABLE.table),
    ],
)
def test_a_change_of_the_table_itself_is_refused(operation: ops.Operation) -> None:
    """Left out without a word, rows of the table before would stay among the ones that follow."""
    with pytest.raises(TargetConfigError, match="alter the table by hand"):
        build_commit(of_operations(writes(1), operation))


def test_the_last_progress_counts() -> None:
    state = UnitState("{}", None, None)
    _, progress = build_commit(
        of_operations(ops.WriteUnit(state), ops.WriteProgress([AFTER]), ops.ReplaceLaneRows([MORE]))
    )
    assert (progress.rows, progress.state) == ([MORE], state)


def test_a_copy_that_ends_is_told_with_where_it_began() -> None:
    _, progress = build_commit(
        of_operations(ops.SupersedeDisplaced("s.t", 4, "why"), ops.WriteProgress([AFTER]))
    )
    assert progress.copied == 4
    assert build_commit(of_operations(ops.WriteProgress([AFTER])))[1].copied is None


def test_without_operations_progress_stays() -> None:
    changes, progress = build_commit(of_operations())
    assert (changes, progress.rows, progress.state, progress.closed_before) == ([], [ROW], None, None)


def test_what_was_added_in_the_same_commit_is_closed_by_not_being_added() -> None:
    """Two rows of a key are refused, and a row of a snapshot behind the first one closes it alone."""

    def entry(offset: int, part: int) -> QuarantineEntry:
        return QuarantineEntry(offset, part, "s.t", "[1]", "", "{}", "no", 0)

    ids = [(6, 0), (2, 0)]
    change = build_commit(
        fx.Transact(
            0,
            [ROW],
            [
                ops.QuarantineEvents([entry(6, 0), entry(6, 1), entry(7, 0)]),
                ops.CloseQuarantine(ids, "again"),
            ],
        )
    )[1]
    assert [(each.offset, each.part) for each in change.held] == [(6, 1), (7, 0)]
    assert (change.closed, change.why) == (ids, "again")
