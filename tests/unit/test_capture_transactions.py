"""Folding log events into transactions: positions, ends, what is counted, and what is refused."""

from __future__ import annotations

import struct
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer import log_event as log
from producer.errors import StreamStoppedError
from producer.log_event import LogEvent
from producer.transactions import Barrier, Boundary, Fold, Output, Rows

CAPTURED, OTHER = ("bank", "acct"), ("bank", "log")
IDS = {CAPTURED: 7, OTHER: 8}


class Log:
    """Builds a log file event by event."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []
        self.pos = 4
        self.numbers = count(1)

    def add(self, kind: int, body: bytes, flags: int = 0) -> None:
        end = self.pos + 19 + len(body)
        self.events.append(LogEvent(kind, 1_700_000_000, 1, flags, "binlog.000009", self.pos, end, body))
        self.pos = end

    def query(self, sql: str, db: str = "bank") -> None:
        head = struct.pack("<IIBHH", 1, 0, len(db), 0, 3)
        self.add(log.QUERY, head + b"\xfa\xfb\xfc" + db.encode() + b"\0" + sql.encode())

    def gtid(self) -> None:
        uuid = bytes(range(16))
        self.add(log.GTID, b"\0" + uuid + struct.pack("<Q", next(self.numbers)) + b"\2" + bytes(16))

    def mariadb_gtid(self, flags: int, xid: bytes = b"") -> None:
        self.add(log.MARIADB_GTID, struct.pack("<QIB", next(self.numbers), 0, flags) + xid)

    def rows(self, name: tuple[str, str], values: list[int]) -> None:
        table_id = struct.pack("<Q", IDS[name])[:6]
        db, table = (part.encode() for part in name)
        names = bytes([len(db)]) + db + b"\0" + bytes([len(table)]) + table + b"\0"
        self.add(log.TABLE_MAP, table_id + b"\1\0" + names + b"\x01\x03\x00\x00")
        images = b"".join(b"\0" + struct.pack("<i", value) for value in values)
        self.add(30, table_id + b"\1\0" + b"\2\0" + b"\x01\x01" + images)

    def xid(self) -> None:
        self.add(log.XID, bytes(8))


def fold(events: list[LogEvent], size: int = 10_000) -> list[Output]:
    """Everything that follows; each Rows is counted by its length in bytes, as the encoder would."""
    folding = Fold(lambda db, table: (db, table) == CAPTURED, lambda: {"acct"})
    found: list[Output] = []
    for event in events:
        output = folding.feed(event)
        if output is not None:
            found.append(output)
        if isinstance(output, Rows):
            folding.counted((len(output.body) - 12) // 5)
        if isinstance(output, Barrier):
            folding.counted(1)
            boundary = folding.after_barrier(event)
            found.extend([boundary] if boundary else [])
    return found


transactions = st.lists(
    st.lists(st.tuples(st.sampled_from([CAPTURED, OTHER]), st.lists(st.integers(0, 9), min_size=1, max_size=4)), max_size=5),
    max_size=6,
)  # fmt: skip


@given(transactions, st.sampled_from(["gtid", "mariadb", "none"]))
def test_rows_are_counted_before_any_filter(
    wanted: list[list[tuple[tuple[str, str], list[int]]]], style: str
) -> None:
    written = Log()
    expected = []
    for statements in wanted:
        start, row, captured = written.pos, 0, False
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
                captured = True
            row += len(values)
        written.xid()
        expected.append((start, written.pos, captured))
    found = [
        (o.header.pos, o.first_row) if isinstance(o, Rows) else (o.header.pos, o.pos, o.captured)
        for o in fold(written.events)
        if isinstance(o, Rows | Boundary)
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
    assert isinstance(rows, Rows)
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
    _begin(written)
    written.rows(CAPTURED, [1])
    written.add(log.PARTIAL_UPDATE_ROWS, struct.pack("<Q", 7)[:6] + b"\1\0\2\0\1\1\1")


def _payload(written: Log) -> None:
    written.gtid()
    written.add(log.TRANSACTION_PAYLOAD, b"zstd")


def _xa(written: Log) -> None:
    written.gtid()
    written.query("XA START X'61',X'',1")
    written.rows(CAPTURED, [1])


def _mariadb_xa(written: Log) -> None:
    written.mariadb_gtid(log.MARIADB_PREPARED_XA, struct.pack("<IBB", 1, 1, 0) + b"a")
    written.rows(CAPTURED, [1])


def _old_xa(written: Log) -> None:
    written.gtid()
    written.query("XA COMMIT X'61',X'',1")


def _dml(written: Log) -> None:
    _begin(written)
    written.query("UPDATE acct SET x = 1")


def _rollback(written: Log) -> None:
    _begin(written)
    written.rows(CAPTURED, [1])
    written.query("ROLLBACK")


def _incident(written: Log) -> None:
    written.add(log.INCIDENT, b"\1\0")


def _future(written: Log) -> None:
    _begin(written)
    written.add(77, b"???")


def _tagged(written: Log) -> None:
    written.add(log.GTID_TAGGED, b"???")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (_partial, "binlog_row_value_options"), (_payload, "binlog_transaction_compression"), (_xa, "XA"),
        (_mariadb_xa, "XA"), (_old_xa, "XA COMMIT"), (_dml, "binlog_format"), (_rollback, "rolled back"),
        (_incident, "INCIDENT"), (_future, "type 77"), (_tagged, "tagged GTID"),
    ],
)  # fmt: skip
def test_what_would_be_lost_is_refused(write: object, said: str) -> None:
    written = Log()
    write(written)  # type: ignore[operator]
    with pytest.raises(StreamStoppedError, match=said):
        fold(written.events)


def test_xa_of_other_tables_passes() -> None:
    written = Log()
    written.gtid()
    written.query("XA START X'61',X'',1")
    written.rows(OTHER, [1])
    written.query("XA END X'61',X'',1")
    written.add(log.XA_PREPARE, b"\0")
    written.gtid()
    written.query("XA COMMIT X'61',X'',1")
    written.mariadb_gtid(log.MARIADB_PREPARED_XA, struct.pack("<IBB", 1, 1, 0) + b"b")
    written.rows(OTHER, [1])
    written.add(log.XA_PREPARE, b"\0")
    written.mariadb_gtid(log.MARIADB_COMPLETED_XA, struct.pack("<IBB", 1, 1, 0) + b"b")
    written.query("XA COMMIT X'62',X'',1")
    assert [type(output) for output in fold(written.events)] == [Boundary] * 4


def test_ignorable_and_unimportant_events_pass() -> None:
    written = Log()
    for kind in (29, 35, 160, 161, 163):
        written.add(kind, b"whatever")
    assert fold(written.events) == []
