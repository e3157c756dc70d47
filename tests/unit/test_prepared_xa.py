"""XA transactions from XA PREPARE to their end: what is published, where, and what a restart knows of it."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.binlog_format import log_event as log
from producer.errors import SourceRefusedError, TableStoppedError, TransientSourceError
from producer.sources.binlog.assembly import TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.prepared_rows import PreparedRowsCache
from producer.sources.binlog.transactions import CapturedRows
from producer.sources.changes import Boundary, OpenXa, list_places
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from schemas.findings import COPY_EACH
from schemas.wire.records import Identity, StoredPosition
from tests.kits.log import CAPTURED, OTHER, Log
from tests.kits.seekable_log import Reading, SeekableLog

START = ("binlog.000009", 4)
LIMITS = [1 << 20, 0]
"""Bytes of prepared transactions in memory; with 0 each is read again from the log."""


def is_captured(db: str, table: str) -> bool:
    return (db, table) == CAPTURED


class Row(NamedTuple):
    """A published row: offset of its transaction, number in it, value."""

    pos: int
    row: int
    value: int


class Capture:
    """Capture of a log from a place on. `stops`: (tables, place); `ends`: of transactions."""

    def __init__(
        self,
        events: SeekableLog,
        at: tuple[str, int] = START,
        prepared: OpenXa | None = None,
        *,
        prepared_limit: int = 1 << 20,
        limit: int = 1 << 20,
        captured: Any = is_captured,
    ) -> None:
        open_ = prepared or {}
        record = StoredPosition(
            source="s", gen=1, epoch=0, file=at[0], pos=at[1], ts_ms=7,
            identity=Identity(server_uuid=None, server_id=1, version="11", gtid_set=None),
            prepared={xid: each.tables for xid, each in open_.items()}, prepared_at=list_places(open_),
        )  # fmt: skip
        self.rows: list[Row] = []
        self.ends: list[Boundary] = []
        self.stops: list[tuple[TableStoppedError, int]] = []
        self.opened = events.on_stream_opened
        buffer = TransactionBuffer(captured, limit=limit, prepared_limit=prepared_limit)
        self.log = BinlogLog(
            MYSQL_FLAVOUR, record, captured, lambda _, file, pos: events.connect(file, pos), buffer
        )  # fmt: skip

    def read(self) -> Capture:
        """Read until nothing comes."""
        self.log._stream.heard = True
        while self.log.heard or self.log.inside:
            for change in self.log.read_changes(0):
                self._take(change)
        return self

    def _take(self, change: Any) -> None:
        if isinstance(change, CapturedRows):
            values = [value for _, value in struct.iter_unpack("<bi", change.body[12:])]
            self.log.record_position_count(len(values))
            self.rows += [Row(change.header.pos, change.first_row + i, v) for i, v in enumerate(values)]
        elif isinstance(change, Boundary):
            self.ends.append(change)
        elif isinstance(change, TableStoppedError):
            self.stops.append((change, self.log.moment.pos))

    @property
    def values(self) -> list[int]:
        return [row.value for row in self.rows]


class MySqlXa:
    """XA transactions as MySQL logs them."""

    def __init__(self) -> None:
        self.log = Log(START[0])

    def begin(self, xid: str) -> None:
        self.log.gtid()
        self.log.query(f"XA START {text(xid)}")

    def prepare(self, xid: str) -> None:
        self.log.query(f"XA END {text(xid)}")
        self.log.add(log.XA_PREPARE, b"\0")

    def end(self, xid: str, verb: str) -> int:
        """Return where the transaction of the end begins."""
        pos = self.log.pos
        self.log.gtid()
        self.log.query(f"XA {verb} {text(xid)}")
        return pos

    def prepared(self, xid: str, *values: int, table: tuple[str, str] = CAPTURED) -> None:
        self.begin(xid)
        for value in values:
            self.log.rows(table, [value])
        self.prepare(xid)

    def plain(self, *values: int) -> int:
        pos = self.log.pos
        self.log.gtid()
        self.log.query("BEGIN")
        self.log.rows(CAPTURED, list(values))
        self.log.xid()
        return pos

    def capture(self, **options: Any) -> Capture:
        return Capture(SeekableLog(self.log.events, 3), **options)


class MariaDbXa(MySqlXa):
    """As MariaDB logs them, from 10.5 on."""

    def begin(self, xid: str) -> None:
        self._gtid(log.MARIADB_PREPARED_XA, xid)

    def end(self, xid: str, verb: str) -> int:
        pos = self.log.pos
        self._gtid(log.MARIADB_COMPLETED_XA, xid)
        self.log.query(f"XA {verb} {text(xid)}")
        return pos

    def _gtid(self, flags: int, xid: str) -> None:
        self.log.mariadb_gtid(flags, struct.pack("<IBB", 1, len(xid), 0) + xid.encode())


def text(xid: str) -> str:
    return f"X'{xid.encode().hex()}',X'',1"


@pytest.fixture(params=[MySqlXa, MariaDbXa])
def source(request: pytest.FixtureRequest) -> MySqlXa:
    made: MySqlXa = request.param()
    return made


@pytest.mark.parametrize("prepared_limit", LIMITS)
def test_rows_are_published_at_commit_with_its_position(source: MySqlXa, prepared_limit: int) -> None:
    source.prepared("a", 1, 2)
    source.prepared("b", 3)
    plain = source.plain(4)
    second = source.end("b", "COMMIT")
    first = source.end("a", "COMMIT")
    found = source.capture(prepared_limit=prepared_limit).read()
    assert found.rows == [Row(plain, 0, 4), Row(second, 0, 3), Row(first, 0, 1), Row(first, 1, 2)]
    assert [list(end.prepared) for end in found.ends] == [
        ["X61,X,1"], ["X61,X,1", "X62,X,1"], ["X61,X,1", "X62,X,1"], ["X61,X,1"], [],
    ]  # fmt: skip
    assert found.stops == []


@pytest.mark.parametrize("prepared_limit", LIMITS)
def test_rows_are_dropped_at_rollback(source: MySqlXa, prepared_limit: int) -> None:
    source.prepared("a", 1)
    source.end("a", "ROLLBACK")
    source.plain(2)
    found = source.capture(prepared_limit=prepared_limit).read()
    assert found.values == [2]
    assert found.ends[-1].prepared == {}
    assert found.opened == [4], "the log was not read again"


@pytest.mark.parametrize("prepared_limit", LIMITS)
def test_rows_before_a_savepoint_only_are_published(source: MySqlXa, prepared_limit: int) -> None:
    source.begin("a")
    source.log.rows(CAPTURED, [1])
    source.log.query("SAVEPOINT s")
    source.log.rows(CAPTURED, [2])
    source.log.query("ROLLBACK TO s")
    source.log.rows(OTHER, [7, 8])
    source.log.rows(CAPTURED, [3])
    source.prepare("a")
    at = source.end("a", "COMMIT")
    found = source.capture(prepared_limit=prepared_limit).read()
    assert found.rows == [Row(at, 0, 1), Row(at, 4, 3)], "all rows since PREPARE are counted"


@pytest.mark.parametrize("large", [False, True])
def test_a_transaction_that_is_not_in_memory_is_read_again_at_prepare(source: MySqlXa, large: bool) -> None:
    source.plain(0)
    at = source.log.pos
    source.prepared("a", *range(1, 40))
    source.plain(99)
    source.end("a", "COMMIT")
    source.plain(100)
    found = source.capture(prepared_limit=0, limit=2000 if large else 1 << 20).read()
    assert found.values == [0, 99, *range(1, 40), 100]
    assert found.opened == ([4, at, at] if large else [4, at])


def test_a_compressed_transaction_is_read_again() -> None:
    source, inner = MySqlXa(), Log()
    inner.query(f"XA START {text('a')}")
    inner.rows(CAPTURED, [1])
    inner.query(f"XA END {text('a')}")
    inner.add(log.XA_PREPARE, b"\0")
    source.log.gtid()
    source.log.payload(inner)
    source.plain(2)
    source.end("a", "COMMIT")
    for limit in LIMITS:
        assert source.capture(prepared_limit=limit).read().values == [2, 1]


def test_an_xid_may_be_used_again(source: MySqlXa) -> None:
    source.prepared("a", 1)
    source.end("a", "COMMIT")
    source.prepared("a", 2)
    source.end("a", "ROLLBACK")
    source.prepared("a", 3)  # the server lost this one in a crash
    source.prepared("a", 4)
    source.end("a", "COMMIT")
    assert source.capture(prepared_limit=0).read().values == [1, 4]


def test_tables_that_are_not_captured_are_not_read_again(source: MySqlXa) -> None:
    source.prepared("a", 1, table=OTHER)
    source.end("a", "COMMIT")
    found = source.capture(prepared_limit=0).read()
    assert (found.rows, found.stops, found.opened) == ([], [], [4])
    assert found.ends[-1].prepared == {}


def test_a_table_is_published_that_is_captured_since_prepare(source: MySqlXa) -> None:
    source.prepared("a", 1)
    source.end("a", "COMMIT")
    selected: set[tuple[str, str]] = set()
    found = source.capture(captured=lambda db, table: (db, table) in selected)
    for change in found.log.read_changes(0):
        found._take(change)
    selected.add(CAPTURED)
    assert found.read().values == [1]


# --- stops


def test_commit_without_prepare_stops_all_tables(source: MySqlXa) -> None:
    source.end("a", "COMMIT")
    source.plain(1)
    found = source.capture().read()
    [(stop, _)] = found.stops
    assert (stop.tables, stop.cause, stop.remedy) == (None, "xa", COPY_EACH)
    assert len(found.ends) == 2


def test_rollback_without_prepare_stops_nothing(source: MySqlXa) -> None:
    source.end("a", "ROLLBACK")
    assert source.capture().read().stops == []


def test_commit_belongs_to_the_gtid_before_it() -> None:
    source = MySqlXa()
    start = source.end("a", "COMMIT")
    bare = source.log.pos
    source.log.query(f"XA ROLLBACK {text('b')}")
    first, second = source.capture().read().ends
    assert (first.header.pos, first.header.gtid is not None) == (start, True)
    assert (second.header.pos, second.header.gtid) == (bare, None)


def test_transaction_prepared_under_an_older_version_stops_its_tables(source: MySqlXa) -> None:
    source.prepared("a", 1)
    before = source.capture().read().ends[-1]
    old = {xid: each._replace(place=None) for xid, each in before.prepared.items()}
    source.end("a", "COMMIT")
    found = Capture(SeekableLog(source.log.events), (before.file, before.pos), old).read()
    [(stop, _)] = found.stops
    assert (stop.tables, stop.cause) == (frozenset([CAPTURED]), "xa")
    assert found.rows == []
    assert found.ends[-1].prepared == {}


@pytest.mark.parametrize(
    ("sql", "stopped"),
    [
        ("ALTER TABLE acct ADD x INT", {CAPTURED}),
        ("ALTER TABLE `ACCT` ADD x INT", {CAPTURED}),
        ("RENAME TABLE acct TO away", {CAPTURED}),
        ("DROP DATABASE bank", {CAPTURED}),
        ("SOMETHING NEW", {CAPTURED}),
        ("ALTER TABLE log ADD x INT", set()),
        ("DROP DATABASE other", set()),
        ("CREATE USER x", set()),
        ("CREATE TABLE new (id INT PRIMARY KEY)", set()),
        ("CREATE TABLE IF NOT EXISTS acct (id INT PRIMARY KEY)", set()),
        ("CREATE OR REPLACE TABLE acct (id INT PRIMARY KEY)", {CAPTURED}),
    ],
)
def test_a_statement_between_prepare_and_commit_stops_the_table(
    source: MySqlXa, sql: str, stopped: set[tuple[str, str]]
) -> None:
    source.prepared("a", 1)
    if isinstance(source, MariaDbXa):
        source.log.mariadb_gtid(log.MARIADB_STANDALONE)
    else:
        source.log.gtid()
    source.log.query(sql)
    at = source.end("a", "COMMIT")
    whole = source.capture().read()
    altered = whole.ends[1]
    again = Capture(SeekableLog(source.log.events), (altered.file, altered.pos), altered.prepared).read()
    for found in (whole, again):
        assert [stop.tables for stop, _ in found.stops] == ([stopped] if stopped else [])
        assert all(stop.cause == "xa" and place > at for stop, place in found.stops)
        assert found.values == ([] if stopped else [1])


def test_a_table_stops_that_prepared_rows_were_renamed_to(source: MySqlXa) -> None:
    source.prepared("a", 1, table=OTHER)
    for sql in ("RENAME TABLE log TO between", "RENAME TABLE between TO acct"):
        source.log.mariadb_gtid(log.MARIADB_STANDALONE)
        source.log.query(sql)
    source.end("a", "COMMIT")
    [(stop, _)] = source.capture().read().stops
    assert stop.tables == {CAPTURED}


def test_other_tables_of_the_transaction_go_on(source: MySqlXa) -> None:
    source.begin("a")
    source.log.rows(CAPTURED, [1])
    source.log.rows(OTHER, [2])
    source.prepare("a")
    source.log.mariadb_gtid(log.MARIADB_STANDALONE)
    source.log.query("ALTER TABLE log ADD x INT")
    at = source.end("a", "COMMIT")
    stopped: set[tuple[str, str]] = set()

    class Stopping(Capture):
        def _take(self, change: Any) -> None:
            super()._take(change)
            if isinstance(change, TableStoppedError):
                stopped.update(change.tables or ())

    found = Stopping(
        SeekableLog(source.log.events), captured=lambda db, table: (db, table) not in stopped
    ).read()
    assert [stop.tables for stop, _ in found.stops] == [{OTHER}]
    assert found.rows == [Row(at, 0, 1)]


class Purged(SeekableLog):
    """The file of the first connection that is not at the log's begin is purged."""

    def connect(self, file: str, pos: int) -> Reading:
        found = super().connect(file, pos)
        if pos != START[1]:
            found.read_events = _refuse  # type: ignore[method-assign]
        return found


def _refuse(_timeout: float) -> Any:
    raise SourceRefusedError("1236: Could not find first log file name in binary log index file")


def test_a_purged_prepare_stops_its_tables(source: MySqlXa) -> None:
    source.plain(0)
    source.prepared("a", 1)
    source.end("a", "COMMIT")
    source.plain(2)
    found = Capture(Purged(source.log.events, 3), prepared_limit=0).read()
    [(stop, _)] = found.stops
    assert (stop.tables, stop.cause) == ({CAPTURED}, "xa")
    assert START[0] in stop.reason
    assert found.values == [0, 2]


def test_a_log_with_another_transaction_at_prepare_is_not_believed(source: MySqlXa) -> None:
    source.plain(0)
    source.prepared("a", 1)
    source.end("a", "COMMIT")
    [prepared] = source.capture().read().ends[1].prepared.values()
    assert prepared.place is not None
    for other in (4, source.log.events[-1].start, prepared.place.pos):
        place = {"X61,X,1": prepared._replace(place=_moved(prepared.place, other))}
        begin = source.log.events[-2].start
        with pytest.raises(TransientSourceError, match="another server answers"):
            Capture(SeekableLog(source.log.events), (START[0], begin), place).read()


def _moved(place: Any, pos: int) -> Any:
    return msgspec.structs.replace(place, pos=pos, end=place.end - 1)


def test_memory_of_prepared_transactions_is_limited() -> None:
    source, held = MySqlXa(), PreparedRowsCache(100)
    source.prepared("a", 1)
    events = source.log.events
    for number, size in enumerate((40, 50, 101, 20)):
        held.hold_events(events[number], events, size)
    assert held.take_events(START[0], events[0].start) is None, "the oldest one made room"
    assert held.take_events(START[0], events[2].start) is None, "it is larger than the limit"
    assert held.take_events(START[0], events[1].start) == events
    assert held.take_events(START[0], events[1].start) is None
    held.hold_events(events[0], events, 80)
    assert held.take_events(START[0], events[3].start) == events, "what was taken has made room"


# --- any history


class Model:
    """What a source publishes: plain transactions at once, XA transactions at COMMIT."""

    def __init__(self, source: MySqlXa) -> None:
        self.source = source
        self.open: dict[str, list[tuple[int, int]]] = {}
        self.expected: list[Row] = []

    def play(self, action: str, xid: str, values: list[int]) -> None:
        if action == "plain":
            pos = self.source.plain(*values)
            self.expected += [Row(pos, row, value) for row, value in enumerate(values)]
        elif xid not in self.open:
            self._prepare(xid, values, undone=action == "undone")
        else:
            pos = self.source.end(xid, "ROLLBACK" if action == "rollback" else "COMMIT")
            rows = self.open.pop(xid)
            self.expected += [] if action == "rollback" else [Row(pos, *row) for row in rows]

    def _prepare(self, xid: str, values: list[int], *, undone: bool) -> None:
        self.source.begin(xid)
        self.source.log.query("SAVEPOINT s")
        self.source.log.rows(CAPTURED, [77])
        if undone:
            self.source.log.query("ROLLBACK TO s")
        for value in values:
            self.source.log.rows(CAPTURED, [value])
        self.source.prepare(xid)
        rows = list(enumerate([77, *values]))
        self.open[xid] = rows[1:] if undone else rows


actions = st.tuples(
    st.sampled_from(["plain", "commit", "commit", "rollback", "undone"]),
    st.sampled_from("abc"),
    st.lists(st.integers(0, 50), min_size=1, max_size=4),
)


@given(
    st.lists(actions, min_size=1, max_size=14),
    st.booleans(),
    st.sampled_from([0, 600, 1 << 20]),
    st.sampled_from([1, 900, 1 << 20]),
    st.integers(1, 9),
)
def test_any_history_is_published_in_commit_order_whatever_restarts(
    history: list[tuple[str, str, list[int]]], mysql: bool, prepared_limit: int, limit: int, size: int
) -> None:
    model = Model(MySqlXa() if mysql else MariaDbXa())
    for action in history:
        model.play(*action)
    events = SeekableLog(model.source.log.events, size)
    options: dict[str, Any] = {"prepared_limit": prepared_limit, "limit": limit}
    whole = Capture(events, **options).read()
    assert whole.rows == model.expected
    assert whole.stops == []
    assert set(whole.ends[-1].prepared) == {f"X{xid.encode().hex()},X,1" for xid in model.open}
    for end in whole.ends[:-1]:
        again = Capture(events, (end.file, end.pos), end.prepared, **options).read()
        assert again.rows == [row for row in model.expected if row.pos >= end.pos]
        assert again.ends[-1].prepared == whole.ends[-1].prepared


def test_places_are_those_of_the_rows(source: MySqlXa) -> None:
    source.plain(0)
    start = source.log.pos
    source.prepared("a", 1)
    end = source.log.pos
    [prepared] = source.capture().read().ends[-1].prepared.values()
    assert prepared.place is not None
    assert (prepared.place.file, prepared.place.pos, prepared.place.end) == (START[0], start, end)
    assert prepared.place.ts_ms == source.log.now_ms
    assert prepared.tables == (CAPTURED,)
