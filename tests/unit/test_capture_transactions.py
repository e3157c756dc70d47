"""Folding log events into transactions: positions, ends, what is counted, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent
from producer.errors import StreamStoppedError, TableStoppedError
from producer.sources.binlog.assembly import RereadRequest, TransactionBuffer
from producer.sources.binlog.transactions import CapturedRows, FoldedChange, TransactionAssembler
from producer.sources.changes import Barrier, Boundary, find_not_undone_stop
from schemas.findings import START_OVER
from tests.kits.log import CAPTURED, OTHER, Log


def _captured(db: str, table: str) -> bool:
    return (db, table) == CAPTURED


def whole(events: list[BinlogEvent]) -> Iterator[BinlogEvent]:
    """The events as the assembly passes them on."""
    assembly = TransactionBuffer(_captured)
    for event in events:
        found = assembly.accept_event(event)
        assert not isinstance(found, RereadRequest)
        yield from found


def fold(events: list[BinlogEvent], folding: TransactionAssembler | None = None) -> list[FoldedChange]:
    """Everything that follows; each Rows is counted by its length in bytes, as the encoder would."""
    folding = folding or TransactionAssembler(_captured)
    found: list[FoldedChange] = []
    for event in whole(events):
        output = folding.fold_event(event)
        if output is not None:
            found.append(output)
        if isinstance(output, CapturedRows):
            folding.record_position_count((len(output.body) - 12) // 5)
        if isinstance(output, Barrier):
            folding.record_position_count(1)
            boundary = folding.finish_barrier(event)
            found.extend([boundary] if boundary else [])
    return found


transactions = st.lists(
    st.lists(st.tuples(st.sampled_from([CAPTURED, OTHER]),
     st.lists(st.integers(0, 9), min_size=1, max_size=4)), max_size=5),
    max_size=6,
)  # fmt: skip


@given(transactions, st.sampled_from(["gtid", "mariadb", "none"]))
def test_rows_are_counted_before_any_filter(
    desired: list[list[tuple[tuple[str, str], list[int]]]], style: str
) -> None:
    written = Log()
    expected = []
    for statements in desired:
        start, row = written.pos, 0
        if style == "gtid":
            written.gtid()
        if style == "mariadb":
            written.mariadb_gtid(0)
        else:
            written.query("BEGIN")
        for name, values in statements:
            written.rows(name, values)
            if name == CAPTURED:
                expected.append((start, row))
            row += len(values)
        written.xid()
        expected.append((start, written.pos))
    found = [
        (o.header.pos, o.first_row) if isinstance(o, CapturedRows) else (o.header.pos, o.pos)
        for o in fold(written.events)
        if isinstance(o, CapturedRows | Boundary)
    ]
    assert found == expected


def test_a_statement_is_a_transaction_of_its_own() -> None:
    written = Log()
    written.gtid()
    written.query("ALTER TABLE acct ADD x INT")
    written.mariadb_gtid(log.MARIADB_STANDALONE)
    written.query("DROP TABLE other")
    kinds = [type(output) for output in fold(written.events)]
    assert kinds == [Barrier, Boundary, Barrier, Boundary]


def test_create_select_stays_inside_its_transaction() -> None:
    written = Log()
    written.gtid()
    written.query("BEGIN")
    written.query("CREATE TABLE `acct` (`id` int) START TRANSACTION")
    written.rows(CAPTURED, [1, 2])
    written.xid()
    barrier, rows, boundary = fold(written.events)
    assert isinstance(barrier, Barrier)
    assert isinstance(rows, CapturedRows)
    assert rows.first_row == 1, "the definition event has a position of its own"
    assert isinstance(boundary, Boundary)


def test_unknown_status_variables_do_not_stop_the_stream() -> None:
    written = Log()
    written.query("BEGIN")  # Log.query writes status variables that nobody knows
    written.xid()
    assert len(fold(written.events)) == 1


def _begin(written: Log) -> None:
    written.gtid()
    written.query("BEGIN")


def _partial(written: Log) -> None:
    written.rows(CAPTURED, [])
    written.events.pop()
    written.add(log.PARTIAL_UPDATE_ROWS, struct.pack("<Q", 7)[:6] + b"\1\0\2\0\1\1\1")


def _xa(written: Log, name: tuple[str, str]) -> None:
    written.gtid()
    written.query("XA START X'61',X'',1")
    written.rows(name, [1])
    written.query("XA END X'61',X'',1")
    written.add(log.XA_PREPARE, b"\0")


def _dml(written: Log) -> None:
    _begin(written)
    written.query("UPDATE acct SET x = 1")
    written.xid()


def _incident(written: Log) -> None:
    written.add(log.INCIDENT, b"\1\0")


def _future(written: Log) -> None:
    _begin(written)
    written.add(77, b"???")
    written.xid()


def _tagged(written: Log) -> None:
    written.add(log.GTID_TAGGED, b"???")
    written.query("DROP TABLE other")


@pytest.mark.parametrize(
    ("write", "reported", "remedy"),
    [
        (_incident, "INCIDENT", START_OVER),
        (_future, "type 77", ""),
        (_tagged, "tagged GTID", f"use untagged ones, and {START_OVER}"),
    ],
)
def test_what_would_be_lost_is_refused(write: object, reported: str, remedy: str) -> None:
    written = Log()
    write(written)  # type: ignore[operator]
    with pytest.raises(StreamStoppedError, match=reported) as refused:
        fold(written.events)
    assert refused.value.problem.remedy == remedy


def test_a_partial_image_stops_its_table_only() -> None:
    written = Log()
    _begin(written)
    written.rows(CAPTURED, [1, 2])
    _partial(written)
    written.rows(CAPTURED, [3])
    written.xid()
    folding, found, stops = TransactionAssembler(_captured), [], []
    for event in whole(written.events):
        try:
            output = folding.fold_event(event)
        except TableStoppedError as error:
            stops.append((error.tables, error.cause, "binlog_row_value_options" in error.remedy))
            continue
        if isinstance(output, CapturedRows):
            found.append(output.first_row)
            folding.record_position_count((len(output.body) - 12) // 5)
    assert stops == [({CAPTURED}, "log", True)]
    assert found == [0, 3], "an event that cannot be counted takes one position"
    assert isinstance(output, Boundary)


def test_xa_in_one_phase_is_a_transaction_like_any_other() -> None:
    written = Log()
    _xa(written, CAPTURED)
    written.events[-1] = written.events[-1]._replace(body=b"\1")
    rows, boundary = fold(written.events)
    assert isinstance(rows, CapturedRows)
    assert isinstance(boundary, Boundary)
    assert boundary.prepared == {}


def test_rows_that_were_rolled_back_are_counted_and_told() -> None:
    written = Log()
    written.mariadb_gtid(0)
    written.query("SAVEPOINT `x`")
    written.rows(OTHER, [1, 2])
    written.rows(CAPTURED, [1, 2, 3])
    written.query("ROLLBACK TO `x`")
    written.rows(CAPTURED, [4])
    written.xid()
    written.mariadb_gtid(0)
    written.rows(CAPTURED, [5])
    written.query("ROLLBACK")
    rows, first, second = fold(written.events)
    assert isinstance(rows, CapturedRows)
    assert rows.first_row == 5
    assert isinstance(first, Boundary)
    assert first.undone == {CAPTURED}
    assert isinstance(second, Boundary)
    assert second.undone == {CAPTURED}


def test_ignorable_and_unimportant_events_pass() -> None:
    written = Log()
    for kind in (29, 35, 160, 161, 163):
        written.add(kind, b"whatever")
    assert fold(written.events) == []


def _parts(*parts: bytes) -> list[FoldedChange]:
    """An ALTER as MariaDB logs it with binlog_alter_two_phase; each part is the GTID event's flags as a
    server wrote them."""
    written = Log()
    for extra in parts:
        written.mariadb_gtid(0x29, extra)
        written.query("ALTER TABLE acct ADD COLUMN w int")
    return fold(written.events)


_START, _COMMIT, _ROLLBACK = (
    b"\x02" + bytes(5),
    b"\x04" + struct.pack("<Q", 1),
    b"\x08" + struct.pack("<Q", 1),
)


def test_a_two_phase_alter_is_one_statement_at_its_commit() -> None:
    first, barrier, last = _parts(_START, _COMMIT)
    assert isinstance(first, Boundary)
    assert isinstance(barrier, Barrier)
    assert barrier.header.id == "0-1-2"
    assert isinstance(last, Boundary)


def test_a_two_phase_alter_that_fails_is_none() -> None:
    assert [type(each) for each in _parts(_START, _ROLLBACK)] == [Boundary, Boundary]


@pytest.mark.parametrize("extra", [b"", bytes(6)])
def test_an_alter_in_one_part_is_a_statement(extra: bytes) -> None:
    """Before MariaDB 10.8 nothing stands behind the flags; later versions fill the event up."""
    barrier, boundary = _parts(extra)
    assert isinstance(barrier, Barrier)
    assert isinstance(boundary, Boundary)


def test_the_parts_are_found_behind_what_else_a_gtid_event_has() -> None:
    group = struct.pack("<Q", 77)
    xid = struct.pack("<IBB", 1, 2, 1) + b"abc"
    for flags, before in ((0x2B, group), (0x69, xid), (0x6B, group + xid)):
        for extra, part in (
            (_START, "start"),
            (_COMMIT, "commit"),
            (_ROLLBACK, "rollback"),
            (bytes(6), None),
        ):
            body = struct.pack("<QIB", 5, 0, flags) + before + extra
            assert log.parse_mariadb_gtid(body, 1).alter == part


def test_a_barrier_says_where_its_statement_stands() -> None:
    written = Log()
    written.gtid()
    start = written.pos
    written.query("ALTER TABLE acct ADD COLUMN w int")
    (barrier, _) = fold(written.events)
    assert isinstance(barrier, Barrier)
    assert barrier.start == start > barrier.header.pos


def test_only_tables_without_transactions_stop_when_their_rows_are_rolled_back() -> None:
    stop = find_not_undone_stop({CAPTURED: "MyISAM", OTHER: None})
    assert stop is not None
    assert (stop.tables, stop.cause) == (frozenset([CAPTURED]), "log")
    assert "bank.acct (MyISAM)" in stop.reason
    assert find_not_undone_stop({CAPTURED: None}) is None


@pytest.mark.parametrize(
    ("sql", "is_change"),
    [
        ("ALTER TABLE acct ADD x INT", True),
        ("CREATE TABLE other.t (a INT)", True),
        ("ANALYZE TABLE acct", False),
        ("OPTIMIZE TABLE acct", True),
        ("INSERT INTO acct VALUES (1)", False),
    ],
)
def test_the_place_of_the_last_statement_that_may_change_tables_is_kept(sql: str, is_change: bool) -> None:
    written, folding = Log(), TransactionAssembler(_captured)
    written.gtid()
    at = (9, written.pos)
    written.query(sql)
    list(map(folding.fold_event, whole(written.events)))
    assert folding.objects_changed == (at if is_change else (0, 0))
