"""The order in which a chunk is read: LOW, SELECT, HIGH. A server that commits a transaction before every
statement shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
from msgspec.structs import replace

from producer.errors import SourceRefusedError, TableStoppedError
from producer.snapshot import reader
from producer.snapshot.reader import ChunkReader
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, LogMark, ReadChunk
from producer.sources.mariadb.flavour import MariaDBVisibility
from producer.sources.mysql.flavour import MySQLVisibility
from schemas.io.mysql_connection import MYSQL_SESSION_SQL
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.position import LogPoint

INT = ColumnType(kind=Kind.INT, bits=32)
TABLE = Table(
    db="d", name="t", columns=(Column(name="id", type=INT, nullable=False), Column(name="v", type=INT)),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)  # fmt: skip
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SIZE = 10


class CommittingServer:
    """Transaction number n writes row (1, n), starts in the log at n·SIZE and is visible at once;
    `logged_ahead`: so many more are in the log and not visible yet."""

    def __init__(self, *, mysql: bool, logged_ahead: int = 0) -> None:
        self.mysql, self.logged_ahead = mysql, logged_ahead
        self.committed = 0
        self.reported: list[str] = []
        self.view: int | None = None  # what the transaction's snapshot sees
        self.in_transaction = False
        self._rows: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None
        self.first_outside: LogPoint | None = None
        self.first_asked = 0
        self.opened = self.closed = 0
        self.key: object = 1  # as the SELECT shows it

    # --- a connection and its cursor in one

    @contextmanager
    def cursor(self, *_: object) -> Iterator[CommittingServer]:
        yield self

    def close(self) -> None:
        self.closed += 1

    def execute(self, sql: str, _arguments: object = None) -> None:
        self.committed += 1
        self.reported.append(sql)
        self._rows = self._answer(sql)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def _answer(self, sql: str) -> list[tuple[Any, ...]]:
        if sql.startswith("START TRANSACTION"):
            self.in_transaction = True
            self.view = self.committed if "CONSISTENT SNAPSHOT" in sql else None
        elif sql == "COMMIT":
            self.in_transaction, self.view = False, None
        elif "binlog_snapshot_" in sql:
            at = self.committed if self.view is None else self.view
            return [
                ("Binlog_snapshot_file", "binlog.000001"),
                ("Binlog_snapshot_position", str(self._end(at))),
            ]
        elif "gtid_executed" in sql:
            return [(f"{UUID}:1-{self.committed}",)]
        elif "LOG STATUS" in sql or "MASTER STATUS" in sql:
            return [("binlog.000001", self._end(self.committed + self.logged_ahead))]
        elif "FROM `d`.`t`" in sql:
            if self.fails is not None:
                raise self.fails
            if self.view is None:
                self.view = self.committed
            seen, self.view = self.view, self.view if self.in_transaction else None
            return [(self.key, seen)]
        return []

    @staticmethod
    def _end(number: int) -> int:
        return (number + 1) * SIZE

    # --- what is asked of it

    def first(self, _executed: str) -> LogPoint | None:
        self.first_asked += 1
        return self.first_outside

    def connect(self) -> Any:
        self.opened += 1
        return self

    def reader(self) -> ChunkReader:
        visibility = MySQLVisibility(self.first) if self.mysql else MariaDBVisibility()
        return ChunkReader(self.connect, visibility, (1, 4))


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> CommittingServer:
    return CommittingServer(mysql=request.param == "mysql")


def asking(where: str | None = None, table: Table = TABLE) -> ReadChunk:
    return ReadChunk(7, table, None, 100, 0.0, where)


def read(server: CommittingServer, where: str | None = None) -> ChunkRead | ChunkFailed | ChunkRefused:
    return server.reader().read_chunk(asking(where))


def mark(number: int) -> LogMark:
    return LogMark((1, number * SIZE), f"{UUID}:{number}")


def test_low_holds_nothing_that_the_select_does_not_see_and_high_all_that_it_does(
    server: CommittingServer,
) -> None:
    found = read(server)
    assert isinstance(found, ChunkRead)
    ((_, newest),) = found.rows
    assert isinstance(newest, int)
    seen = [number for number in range(1, server.committed + 1) if found.low.has_seen(mark(number))]
    assert seen, "LOW says something"
    assert max(seen) <= newest
    assert found.high >= (1, (newest + 1) * SIZE), "HIGH is read behind the SELECT"


def test_the_select_sees_one_state_and_the_transaction_ends_with_it(server: CommittingServer) -> None:
    read(server)
    begins = [sql for sql in server.reported if sql.startswith("START TRANSACTION")]
    order = [server.reported.index(sql) for sql in (begins[0], _select(server), "COMMIT")]
    assert len(begins) == 1
    assert order == sorted(order)
    assert "REPEATABLE READ" in server.reported[0], "else each statement sees another state"


def test_keys_that_may_be_incomplete_are_read_again_in_the_same_transaction(server: CommittingServer) -> None:
    """Afterwards the chunk would have rows that its LOW does not know."""
    server.reader().read_chunk(asking(table=replace(TABLE, columns=TABLE.columns[:1])))
    told = [
        "packed" if "GROUP_CONCAT" in sql else "rows" if "FROM `d`.`t`" in sql else sql.partition(" ")[0]
        for sql in server.reported
    ]
    first = told.index("START")
    assert told[told.index("packed") : told.index("COMMIT") + 1] == ["packed", "rows", "COMMIT"]
    assert told.index("packed") > first
    assert told.count("START") == told.count("packed") == 1


def test_mysql_asks_what_is_executed_before_its_select_and_inside_the_transaction() -> None:
    server = CommittingServer(mysql=True)
    low = MySQLVisibility(lambda _executed: None).begin_snapshot(server)  # type: ignore[arg-type]
    assert [sql.split()[0] for sql in server.reported] == ["START", "SELECT"]
    assert low.gtids is not None
    assert f"{UUID}:{server.committed}" in low.gtids


def test_mariadb_takes_the_place_that_belongs_to_its_snapshot() -> None:
    server = CommittingServer(mysql=False)
    low = MariaDBVisibility().begin_snapshot(server)  # type: ignore[arg-type]
    assert server.view is not None
    assert low.point == (1, (server.view + 1) * SIZE)


def test_what_was_logged_before_the_stream_must_be_visible_first(server: CommittingServer) -> None:
    """MariaDB's LOW is a position, which the machine compares; MySQL's does not show what the stream did not
    deliver."""
    for first, waits in ((1, 3), True), ((1, 4), False), ((1, 9), False), (None, False):
        server.first_outside = first
        assert isinstance(read(server), ChunkFailed) == (waits and server.mysql)


def test_once_all_of_before_is_visible_that_is_not_asked_again() -> None:
    server = CommittingServer(mysql=True)
    reading = server.reader()
    for first, asked in ((1, 3), 1), ((1, 4), 2), ((1, 4), 2):
        server.first_outside = first
        reading.read_chunk(asking())
        assert server.first_asked == asked, "a dump of the log is read for it"


def test_a_connection_that_failed_is_closed_and_the_next_chunk_is_read_on_another(
    server: CommittingServer,
) -> None:
    reading = server.reader()
    reading.close()
    assert (server.opened, server.closed) == (0, 0)
    server.fails = pymysql.err.OperationalError(2013, "why")
    assert isinstance(reading.read_chunk(asking()), ChunkFailed)
    assert (server.opened, server.closed) == (1, 1)
    server.fails = None
    server.reported.clear()
    assert isinstance(reading.read_chunk(asking()), ChunkRead)
    assert "REPEATABLE READ" in server.reported[0]
    assert isinstance(reading.read_chunk(asking()), ChunkRead)
    assert (server.opened, server.closed) == (2, 1)
    reading.close()
    reading.close()
    assert (server.opened, server.closed) == (2, 2)


def test_chunks_are_read_in_utc_and_utf8_whatever_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is asked between two chunks is in no transaction: that would keep old versions of rows alive
    at the source."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(reader, "open_connection", lambda **settings: given.update(settings))
    reader.make_connection_opener({"host": "h", "charset": "latin1", "autocommit": False})()
    assert given == {"host": "h", "charset": "utf8mb4", "autocommit": True, "init_command": MYSQL_SESSION_SQL}


def test_a_row_that_stops_its_table_leaves_no_transaction_open(server: CommittingServer) -> None:
    """The connection may have nothing more to read until capture ends: the source would keep old versions of
    all rows for it."""
    text = ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_bin")
    table = replace(TABLE, columns=(Column(name="id", type=text, nullable=False), TABLE.columns[1]))
    server.key = b"a\xff"
    with pytest.raises(TableStoppedError, match="key column id of a row"):
        server.reader().read_chunk(asking(table=table))
    assert not server.in_transaction


def _select(server: CommittingServer) -> str:
    return next(sql for sql in server.reported if "FROM `d`.`t`" in sql)


TRIED_AGAIN = {
    pymysql.err.ProgrammingError: (1054, 1146, 1412),  # unknown column, no such table, definition changed
    pymysql.err.OperationalError: (1205, 2006, 2013),
    pymysql.err.InterfaceError: (0,),
}
FOR_A_PERSON = {
    pymysql.err.ProgrammingError: (1064,),
    pymysql.err.OperationalError: (1044, 1045, 1142, 1143, 1227, 1370, 1698),
}
OF_A_CONDITION = (1064, 1142, 1143, 1227, 1370)
"""A condition may name another table, or a function."""


@pytest.mark.parametrize(
    ("error", "code"), [(error, code) for error, codes in TRIED_AGAIN.items() for code in codes]
)
def test_a_chunk_that_fails_for_the_moment_is_asked_for_again(
    server: CommittingServer, error: type[Exception], code: int
) -> None:
    server.fails = error(code, "why")
    found = read(server)
    assert isinstance(found, ChunkFailed)
    assert (found.request, "why" in found.reason) == (7, True)


@pytest.mark.parametrize(
    ("error", "code"), [(error, code) for error, codes in FOR_A_PERSON.items() for code in codes]
)
def test_a_chunk_that_nobody_may_read_is_said(
    server: CommittingServer, error: type[Exception], code: int
) -> None:
    server.fails = error(code, "why")
    with pytest.raises(SourceRefusedError, match=rf"why \({code}\): \S"):
        read(server)
    if code in OF_A_CONDITION:
        assert read(server, "id > 3") == ChunkRefused(7, "why")
    else:
        with pytest.raises(SourceRefusedError, match="why"):
            read(server, "id > 3")


NOT_OF_A_CONDITION = (
    1040,
    1053,
    1205,
    1213,
    1317,
    1412,
    1927,
    1969,
    2002,
    2003,
    2006,
    2013,
    2014,
    2026,
    2055,
    3024,
)


@pytest.mark.parametrize("error", [pymysql.err.InterfaceError(0, "why"), OSError(111, "why")])
def test_what_no_server_said_is_no_conditions_fault(server: CommittingServer, error: Exception) -> None:
    server.fails = error
    assert isinstance(read(server, "id > 3"), ChunkFailed)


@pytest.mark.parametrize("code", NOT_OF_A_CONDITION)
def test_what_no_condition_is_to_blame_for_is_tried_again_with_one(
    server: CommittingServer, code: int
) -> None:
    server.fails = pymysql.err.OperationalError(code, "why")
    assert isinstance(read(server, "id > 3"), ChunkFailed)


def test_what_the_server_has_against_the_statement_is_the_conditions_fault(server: CommittingServer) -> None:
    server.fails = pymysql.err.OperationalError(1054, "Unknown column 'nonsense'")
    assert read(server, "nonsense > 3") == ChunkRefused(7, "Unknown column 'nonsense'")
