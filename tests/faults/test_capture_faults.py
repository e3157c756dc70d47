"""Capture is killed, loses its broker, loses its source, in the middle of load: afterwards the topic replays to the source."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB
from tests.capture_kit import (
    Replay,
    events,
    replay,
    running,
    size,
    source,
    source_rows,
    topic_rows,
    transactions_are_whole,
    until,
    watermarks,
    write_config,
)  # fmt: skip

KILLS = 6
DDL = (
    """CREATE TABLE {db}.acct (id INT PRIMARY KEY, version BIGINT NOT NULL, owner VARCHAR(20) NULL UNIQUE)"""
)


class Load(threading.Thread):
    """Changes 40 keys over and over, three statements a transaction, until told to stop."""

    def __init__(self, database: Any, db: str) -> None:
        super().__init__(daemon=True)
        self._connection = database.connect(db)
        self._random = random.Random(7)
        self.ended = threading.Event()
        self.version = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        with contextlib.closing(self._connection), self._connection.cursor() as cursor:
            while not self.ended.is_set():
                self._connection.begin()
                for _ in range(3):
                    self._change(cursor)
                self._connection.commit()

    def _change(self, cursor: Any) -> None:
        self.version += 1
        key, owner = self._random.randrange(40), f"o{self._random.randrange(30)}"
        match self._random.randrange(4):
            case 0:
                cursor.execute("DELETE FROM acct WHERE id = %s", (key,))
            case 1:
                cursor.execute(
                    "UPDATE acct SET version = %s, owner = NULL WHERE owner = %s", (self.version, owner)
                )
            case _:
                cursor.execute("REPLACE INTO acct VALUES (%s, %s, %s)", (key, self.version, owner))


@pytest.fixture(params=["mariadb", "mysql"])
def database(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def db(database: Any, unique: str) -> Iterator[str]:
    database.create_database(unique)
    database.execute(DDL.format(db=unique))
    rows = ", ".join(f"({n}, 0, NULL)" for n in range(100, 5100))
    database.execute(f"INSERT INTO {unique}.acct VALUES {rows}")
    yield unique
    database.drop_database(unique)


@contextlib.contextmanager
def load(database: Any, db: str) -> Iterator[Load]:
    writer = Load(database, db)
    writer.start()
    try:
        yield writer
    finally:
        writer.ended.set()
        writer.join()


def _judge(kafka: Kafka, database: Any, db: str) -> Replay:
    result = replay(events(kafka.bootstrap, f"{db}.s.{db}.acct"))
    assert topic_rows(result, db, "acct", ["id", "version", "owner"]) == source_rows(database, db, "acct")
    assert transactions_are_whole([result])
    return result


def _wait_caught_up(kafka: Kafka, database: Any, db: str) -> None:
    """A last change is made; the watermark has passed it, and nothing is left to snapshot."""
    database.execute(f"REPLACE INTO {db}.acct VALUES (99, 1, 'last')")
    status = "SHOW MASTER STATUS" if isinstance(database, MariaDB) else "SHOW BINARY LOG STATUS"
    end = database.execute(status)[0]

    def passed() -> bool:
        found = watermarks(kafka.bootstrap, db, "s")
        if not found or found[-1].snapshot_pending:
            return False
        return (found[-1].file, found[-1].position[2]) >= (end[0], int(end[1]))

    until(passed, "capture of everything", 120)


def test_kill_9_at_any_moment(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> None:
    """During the snapshot and after it, with the load going on; each kill comes after some more has been written."""
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(database, [f"{db}.*"])})
    topic, chance = f"{db}.s.{db}.acct", random.Random()
    with load(database, db), running(config, "s") as unit:
        for _ in range(KILLS):
            before, more = size(kafka.bootstrap, topic), chance.randrange(1, 1500)
            until(lambda b=before, m=more: size(kafka.bootstrap, topic) >= b + m, "progress")
            unit.kill()
            unit.start()
        until(lambda: not watermarks(kafka.bootstrap, db, "s")[-1].snapshot_pending, "the snapshot")
    # the load has ended, the last unit was left by `running`: one more takes it to the end
    with running(config, "s") as unit:
        _wait_caught_up(kafka, database, db)
        assert unit.stop() == 0, unit.says()
    result = _judge(kafka, database, db)
    assert result.gen > KILLS


@pytest.mark.slow  # tests/faults/test_whole_system.py restarts the broker under all of it
def test_broker_stops_and_starts(kafka: Kafka, mariadb: MariaDB, unique: str, tmp_path: Path) -> None:
    """Killed hard and started again under load: the unit waits or restarts itself, nothing is lost."""
    db = unique
    mariadb.create_database(db)
    mariadb.execute(DDL.format(db=db))
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    topic = f"{db}.s.{db}.acct"
    with running(config, "s") as unit:
        with load(mariadb, db) as writer:
            until(lambda: size(kafka.bootstrap, topic) > 500, "events")
            kafka.kill()
            before = writer.version
            until(lambda: writer.version > before + 300, "load without a broker")
            kafka.start()
            before = size(kafka.bootstrap, topic)
            until(lambda: size(kafka.bootstrap, topic) > before + 300, "events again")
        _wait_caught_up(kafka, mariadb, db)
        assert unit.stop() == 0, unit.says()
    _judge(kafka, mariadb, db)
    mariadb.drop_database(db)


def test_source_stops_and_starts(kafka: Kafka, mariadb: MariaDB, unique: str, tmp_path: Path) -> None:
    """The unit notices that the source is gone, and reconnects by itself."""
    db = unique
    mariadb.create_database(db)
    mariadb.execute(DDL.format(db=db))
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    with running(config, "s") as unit:
        mariadb.execute(f"INSERT INTO {db}.acct VALUES (1, 1, 'a')")
        until(lambda: watermarks(kafka.bootstrap, db, "s"), "the start")
        mariadb.stop()
        until(lambda: "capture restarts" in unit.says(), "noticing it")
        mariadb.start()
        mariadb.execute(f"INSERT INTO {db}.acct VALUES (2, 2, 'b')")
        _wait_caught_up(kafka, mariadb, db)
        assert unit.stop() == 0, unit.says()
    _judge(kafka, mariadb, db)
    mariadb.drop_database(db)


def test_it_ends_with_its_parent(kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path) -> None:
    mariadb.execute(DDL.format(db=mariadb_db))
    config = write_config(tmp_path, kafka.bootstrap, mariadb_db, {"s": source(mariadb, [f"{mariadb_db}.*"])})
    with running(config, "s") as unit:
        until(lambda: watermarks(kafka.bootstrap, mariadb_db, "s"), "the start")
        assert unit.process is not None
        assert unit.process.stdin is not None
        unit.process.stdin.close()
        assert unit.wait() == 0, unit.says()
