"""A binlog as capture reads it: a reader can stop at rows that no table captures, and what cannot be followed
ends nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from producer.binlog_format import log_event as log
from producer.errors import StreamStoppedError, TableStoppedError
from producer.sources.binlog.assembly import TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.transactions import CapturedRows
from producer.sources.changes import Barrier, Boundary
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from schemas.wire.records import Identity, StoredPosition
from tests.kits.log import CAPTURED, OTHER, Log


class Stream:
    """The log, in one read."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.point = (log.file, log.pos)

    def read_events(self, _timeout: float) -> Any:
        return self._log.events

    def close(self) -> None: ...


def opened(log: Log) -> BinlogLog:
    identity = Identity(server_uuid=None, server_id=1, version="11", gtid_set=None)
    record = StoredPosition(source="s", gen=1, epoch=0, file=log.file, pos=4, ts_ms=7, identity=identity)
    return BinlogLog(
        MARIADB_FLAVOUR, record, is_captured, lambda *_: Stream(log), TransactionBuffer(is_captured)
    )  # type: ignore[arg-type, return-value]


def is_captured(db: str, table: str) -> bool:
    return (db, table) == CAPTURED


def test_rows_of_nobody_let_a_reader_stop() -> None:
    """Capture looks whether it is to end at whatever is yielded: a transaction of others' rows may take
    minutes."""
    written = Log()
    written.mariadb_gtid(0)
    for value in range(5):
        written.rows(OTHER, [value])
    written.rows(CAPTURED, [1])
    written.xid()
    found = list(opened(written).read_changes(0))
    assert [None if each is None else type(each) for each in found] == [None] * 5 + [CapturedRows, Boundary]


def test_a_statement_is_followed_by_the_end_of_its_transaction() -> None:
    written = Log()
    written.mariadb_gtid(log.MARIADB_STANDALONE)
    written.query("TRUNCATE TABLE acct")
    reading = opened(written)
    found = [(type(each), reading.begun) for each in reading.read_changes(0)]
    assert found == [(Barrier, True), (Boundary, False)]


def test_what_cannot_be_followed_stops_its_table_there_and_nothing_else() -> None:
    written = Log()
    written.mariadb_gtid(0)
    written.rows(CAPTURED, [1])
    at = written.events[-1]
    written.events[-1] = at._replace(type=log.PARTIAL_UPDATE_ROWS)
    written.rows(CAPTURED, [2])
    written.xid()
    reading = opened(written)
    seen = [(type(each), reading.moment) for each in reading.read_changes(0) if each is not None]
    assert [kind for kind, _ in seen] == [TableStoppedError, CapturedRows, Boundary]
    assert seen[0][1] == (at.file, at.start, at.timestamp * 1000)


def test_an_event_that_cannot_be_read_ends_the_stream() -> None:
    written = Log()
    written.mariadb_gtid(0)
    written.add(log.TABLE_MAP, b"\7")
    written.rows(CAPTURED, [1])
    written.xid()
    with pytest.raises(StreamStoppedError, match="cannot be followed further"):
        list(opened(written).read_changes(0))
