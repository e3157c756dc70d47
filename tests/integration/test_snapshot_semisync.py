"""LOW on real semi-synchronous primaries: a transaction is logged and delivered, and no SELECT sees it yet.

The wrong rule (LOW := the log's end) emits the stale row here; each server's own rule does not.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from deploy.embedded.services import EmbeddedError, MariaDB, MySQL
from producer.snapshot.chunks import FROM_START, RowsPassed, SnapshotMachine, StreamReached
from producer.snapshot.reader import ChunkReader, make_connection_opener
from producer.sources.catalog import BINLOG_FLAVOURS
from producer.sources.chunk_data import ChunkRead, EmitChunk, LogMark, LowWatermark, ReadChunk
from producer.sources.mysql.flavour import MYSQL_FLAVOUR, find_first_unexecuted
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.io.mysql_catalog import read_table
from schemas.table.model import Row, Table
from schemas.wire.position import LogPoint, parse_binlog_file_number
from tests.kits.waiting import until
from tests.servers.semisync_replica import SemiSyncReplica
from tests.services import without_mysql

_PLUGIN = {"mariadb": [], "mysql": ["--plugin-load-add=semisync_source.so"]}
_SEMI_SYNC = {
    "mariadb": "SET GLOBAL rpl_semi_sync_master_enabled = ON, rpl_semi_sync_master_timeout = 600000,"
    " rpl_semi_sync_master_wait_point = AFTER_SYNC",
    "mysql": "SET GLOBAL rpl_semi_sync_source_enabled = ON, rpl_semi_sync_source_timeout = 600000",
}


class Primary:
    """A semi-sync primary with table d.t = (1, 1), its replica, and the UPDATE that is held back."""

    def __init__(self, kind: str, service: Any) -> None:
        self.kind, self.service = kind, service
        self.settings = {
            "host": service.host, "port": service.port, "user": service.user, "password": service.password,
        }  # fmt: skip
        service.execute(_SEMI_SYNC[kind])
        self.replica = SemiSyncReplica(service.port, *self._status())
        self._session: threading.Thread | None = None

    def prepare(self) -> Table:
        self.service.execute("DROP DATABASE IF EXISTS d")
        self.service.execute("CREATE DATABASE d")
        self.service.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
        self.service.execute("INSERT INTO d.t VALUES (1, 1)")
        with closing(self.service.connect()) as connection:
            return read_table(connection, "d", "t")

    def _status(self) -> tuple[str, int]:
        row = self.service.execute(self.service.log_status)[0]
        return row[0], int(row[1])

    def log_end(self) -> LogPoint:
        file, pos = self._status()
        return parse_binlog_file_number(file), pos

    def delivered(self) -> GtidSet | None:
        """What a stream has delivered that stands at the log's end when nothing is held back."""
        if self.kind == "mariadb":
            return None
        return GtidSet.parse(self.service.execute("SELECT @@global.gtid_executed")[0][0])

    def next_gtid(self) -> str | None:
        if self.kind == "mariadb":
            return None
        uuid = self.service.execute("SELECT @@server_uuid")[0][0]
        number = int(re.split("[:-]", str(self.delivered()))[-1]) + 1
        return f"{uuid}:{number}"

    def hold_update(self, update: str = "UPDATE d.t SET v = 100") -> LogMark:
        """Start UPDATE v = 100 and return once it is delivered; its commit waits for the acknowledgement."""
        mark = LogMark(self.log_end(), self.next_gtid())
        self.replica.hold()
        self._session = threading.Thread(target=self.service.execute, args=(update,))
        self._session.start()
        assert self.replica.held_one.wait(60)
        return mark

    def hold_xa_commit(self) -> LogMark:
        """Prepare the same update in a session that ends, and hold its XA COMMIT in the same way."""
        with closing(self.service.connect()) as connection, connection.cursor() as cursor:
            for statement in ("XA START 'x'", "UPDATE d.t SET v = 100", "XA END 'x'", "XA PREPARE 'x'"):
                cursor.execute(statement)
        until(self._is_detached, "the end of the session")
        return self.hold_update("XA COMMIT 'x'")

    def _is_detached(self) -> bool:
        listed = self.service.execute("SHOW PROCESSLIST")
        return not any("Sleep" in map(str, row) for row in listed)

    def release(self) -> None:
        self.replica.release()
        if self._session is not None:
            self._session.join(60)
            assert not self._session.is_alive()
            self._session = None

    def reader(self) -> ChunkReader:
        return ChunkReader(
            make_connection_opener(self.settings),
            BINLOG_FLAVOURS[self.kind].visibility(self.settings),
            (0, 0),
        )


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def primary(request: pytest.FixtureRequest) -> Iterator[Primary]:
    service: Any = (MariaDB if request.param == "mariadb" else MySQL)(
        durable=False, extra=_PLUGIN[request.param]
    )
    if request.param == "mysql":
        try:
            MySQL.fetch()
        except EmbeddedError as error:
            without_mysql(error.seen)
    with service:
        found = Primary(request.param, service)
        yield found
        found.release()
        found.replica.close()


@pytest.fixture(autouse=True)
def _nothing_stays_held(primary: Primary) -> Iterator[None]:
    yield
    primary.release()


def read(reader: ChunkReader, request: Any) -> ChunkRead:
    assert isinstance(request, ReadChunk)
    answer = reader.read_chunk(request)
    assert isinstance(answer, ChunkRead), answer
    return answer


def emitted(effects: list[Any]) -> list[Row]:
    return [row for effect in effects if isinstance(effect, EmitChunk) for row in effect.rows]


def test_the_gap_is_real(primary: Primary) -> None:
    """Without this the other tests would show nothing."""
    primary.prepare()
    start = primary.log_end()
    primary.hold_update()
    assert primary.log_end() > start
    assert primary.service.execute("SELECT v FROM d.t") == [(1,)] or primary.service.execute(
        "SELECT v FROM d.t"
    ) == ((1,),)
    primary.release()


HOLDS: dict[str, Callable[[Primary], LogMark]] = {"update": Primary.hold_update, "xa": Primary.hold_xa_commit}


@pytest.mark.parametrize("hold", HOLDS)
def test_low_does_not_hold_what_the_select_does_not_see(primary: Primary, hold: str) -> None:
    table = primary.prepare()
    machine, at, delivered = SnapshotMachine(10), primary.log_end(), primary.delivered()
    state, [request] = machine.start_snapshot(table, at, delivered, FROM_START, 0.0)
    mark = HOLDS[hold](primary)
    with closing(primary.reader()) as reader:
        answer = read(reader, request)
        primary.release()
    assert answer.rows == [(1, 1)]
    state, _ = machine.apply_event(
        state, RowsPassed(mark, [(1,), (1,)]), 0.0
    )  # the stream delivered it before the answer came
    state, _ = machine.apply_event(state, answer, 0.0)
    _, effects = machine.apply_event(state, StreamReached(primary.log_end(), primary.delivered()), 0.0)
    assert emitted(effects) == []
    assert answer.low.has_seen(mark) is False


@pytest.mark.parametrize("hold", HOLDS)
def test_a_stream_ahead_of_the_select_has_the_chunk_read_again(primary: Primary, hold: str) -> None:
    table = primary.prepare()
    mark = HOLDS[hold](primary)
    before = primary.delivered()
    if before is not None:
        before.add(str(mark.gtid))
    machine, at = SnapshotMachine(10), primary.log_end()
    state, [request] = machine.start_snapshot(table, at, before, FROM_START, 0.0)
    with closing(primary.reader()) as reader:
        stale = read(reader, request)
        assert stale.rows == [(1, 1)]
        state, [again] = machine.apply_event(state, stale, 0.0)
        primary.release()
        state, effects = machine.apply_event(state, read(reader, again), 1.0)
    assert effects == []
    _, effects = machine.apply_event(state, StreamReached(primary.log_end(), primary.delivered()), 1.0)
    assert emitted(effects) == [(1, 100)]


def test_the_log_end_as_low_would_emit_the_stale_row(primary: Primary) -> None:
    table = primary.prepare()
    machine, at, delivered = SnapshotMachine(10), primary.log_end(), None
    mark = primary.hold_update()
    state, [request] = machine.start_snapshot(table, at, delivered, FROM_START, 0.0)
    with closing(primary.reader()) as reader:
        answer = read(reader, request)._replace(low=LowWatermark(primary.log_end(), None))
        primary.release()
    state, _ = machine.apply_event(state, RowsPassed(mark, [(1,), (1,)]), 0.0)
    state, _ = machine.apply_event(state, answer, 0.0)
    _, effects = machine.apply_event(state, StreamReached(primary.log_end()), 0.0)
    assert emitted(effects) == [(1, 1)], "the naive rule is expected to be wrong here"


def test_what_lies_before_the_stream_must_be_visible_first(primary: Primary) -> None:
    """A stream that begins behind a transaction that nobody sees yet would miss it in both ways."""
    if primary.kind == "mariadb":
        pytest.skip("MariaDB's LOW is a position: the machine compares it itself")
    primary.prepare()
    held = primary.hold_update().point
    started = primary.log_end()
    executed = str(primary.delivered())
    assert find_first_unexecuted(primary.settings, executed) == held
    visibility = MYSQL_FLAVOUR.visibility(primary.settings)
    with closing(primary.service.connect()) as connection:
        assert not visibility.is_start_visible(connection, started)
        primary.release()
        assert visibility.is_start_visible(connection, started)
