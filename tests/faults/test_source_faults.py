"""The source itself dies, stands still, or cannot be reached: under load, and in the middle of a snapshot.

Afterwards the topic replays to the source, every row; and in what the topic holds no row's version ever goes back (`events`).
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from deploy.embedded.services import Kafka, MariaDB
from tests.capture_kit import (
    Unit,
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
)
from tests.proxy import TcpProxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

DDL = "CREATE TABLE {db}.acct (id INT PRIMARY KEY, version BIGINT NOT NULL, owner VARCHAR(20) NULL UNIQUE)"
#: Rows of the snapshot: many chunks.
ROWS = 60_000
PATIENCE_S = 300.0


class Load(threading.Thread):
    """Changes 40 keys over and over, each change with a higher version; connects again where the server has gone."""

    def __init__(self, database: Any, db: str) -> None:
        super().__init__(name="load", daemon=True)
        self._database, self._db, self._random = database, db, random.Random(11)
        self._ending = threading.Event()
        self.version = self.count = 0

    def run(self) -> None:
        while not self._ending.wait(0.1):
            with (
                contextlib.suppress(pymysql.MySQLError, OSError),
                contextlib.closing(self._database.connect(self._db, read_timeout=60)) as connection,
            ):
                self._write(connection)

    def _write(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            while not self._ending.wait(0.005):
                connection.begin()
                for _ in range(3):
                    self._change(cursor)
                connection.commit()
                self.count += 1

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

    def finish(self) -> None:
        self._ending.set()
        self.join(90)
        assert not self.is_alive()


@dataclass
class Stage:
    """`network`: between capture and the source."""

    kafka: Kafka
    database: Any
    db: str
    unit: Unit
    load: Load
    network: TcpProxy

    @property
    def topic(self) -> str:
        return f"{self.db}.s.{self.db}.acct"

    def judge(self) -> None:
        result = replay(events(self.kafka.bootstrap, self.topic))
        wanted = source_rows(self.database, self.db, "acct")
        assert topic_rows(result, self.db, "acct", ["id", "version", "owner"]) == wanted
        assert transactions_are_whole([result])

    def copied(self) -> bool:
        """The snapshot is over."""
        found = watermarks(self.kafka.bootstrap, self.db, "s")
        return bool(found and not found[-1].snapshot_pending)

    def caught_up(self) -> bool:
        """The watermark is past the end of the log."""
        status = "SHOW MASTER STATUS" if isinstance(self.database, MariaDB) else "SHOW BINARY LOG STATUS"
        end = self.database.execute(status)[0]
        found = watermarks(self.kafka.bootstrap, self.db, "s")
        return bool(found and (found[-1].file, found[-1].position[2]) >= (end[0], int(end[1])))


@contextlib.contextmanager
def stage(kafka: Kafka, database: Any, db: str, folder: Path) -> Iterator[Stage]:
    database.execute(DDL.format(db=db))
    rows = ", ".join(f"({100 + n}, 0, NULL)" for n in range(ROWS))
    database.execute(f"INSERT INTO {db}.acct VALUES {rows}")
    with TcpProxy(database.port, host=database.host) as network:
        server = source(database, [f"{db}.*"])
        config = write_config(folder, kafka.bootstrap, db, {"s": {**server, "port": network.port}})
        load = Load(database, db)
        load.start()
        try:
            with running(config, "s") as unit:
                yield Stage(kafka, database, db, unit, load, network)
        finally:
            load.finish()


@pytest.fixture(params=["mariadb", "mysql"])
def database(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def db(database: Any, unique: str) -> Iterator[str]:
    database.create_database(unique)
    yield unique
    database.resume()
    database.start()
    database.drop_database(unique)


def kill_the_source(on: Stage) -> None:
    on.database.kill()
    on.database.start()


def stop_the_source(on: Stage) -> None:
    """It stands still until capture gives the connection up."""
    said = on.unit.says().count("capture restarts")
    on.database.pause()
    try:
        until(lambda: on.unit.says().count("capture restarts") > said, "capture notices it", PATIENCE_S)
    finally:
        on.database.resume()


def cut_the_source(on: Stage) -> None:
    """Nothing arrives, and nothing is closed; then the connections are gone, too."""
    said = on.unit.says().count("capture restarts")
    on.network.cut()
    try:
        until(lambda: on.unit.says().count("capture restarts") > said, "capture notices it", PATIENCE_S)
    finally:
        on.network.close_connections()
        on.network.heal()


def cut_one_way(on: Stage) -> None:
    """What the source sends is held back for a moment, and comes after all."""
    on.network.cut(up=False)
    before = on.load.count
    try:
        until(lambda: on.load.count > before + 50, "load meanwhile", PATIENCE_S)
    finally:
        on.network.heal()


def _breaks(on: Stage, fault: Callable[[Stage], None]) -> None:
    """`fault` in the middle of the snapshot, and again under load behind it; then judge."""
    until(lambda: size(on.kafka.bootstrap, on.topic) > 300, "the snapshot is under way", PATIENCE_S)
    fault(on)
    until(on.copied, f"the snapshot ends; {on.unit.says()[-3000:]}", PATIENCE_S)
    before = size(on.kafka.bootstrap, on.topic)
    until(lambda: size(on.kafka.bootstrap, on.topic) > before + 100, "load is captured", PATIENCE_S)
    fault(on)
    before, count = size(on.kafka.bootstrap, on.topic), on.load.count
    until(lambda: on.load.count > count + 50, "load goes on", PATIENCE_S)
    until(lambda: size(on.kafka.bootstrap, on.topic) > before + 100, "it is captured again", PATIENCE_S)
    on.load.finish()
    until(on.caught_up, f"capture of everything; {on.unit.says()[-3000:]}", PATIENCE_S)
    assert on.unit.stop() == 0, on.unit.says()[-3000:]
    on.judge()


@pytest.mark.parametrize(
    "fault", [kill_the_source, stop_the_source, cut_the_source, cut_one_way], ids=lambda fault: fault.__name__
)
def test_the_topic_replays_to_the_source_after(
    fault: Callable[[Stage], None], kafka: Kafka, database: Any, db: str, tmp_path: Path
) -> None:
    with stage(kafka, database, db, tmp_path) as on:
        _breaks(on, fault)
