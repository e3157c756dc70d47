"""The source itself dies, stands still, or cannot be reached: under load, and in the middle of a snapshot.

Afterwards the topic replays to the source, every row; and in what the topic holds no row's version ever goes
back (`events`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from deploy.embedded.services import Kafka
from tests.faults.accounts import DDL, Load, caught_up, copied, judge, load, topic_of
from tests.kits.capture import Unit, running, size, source, write_config
from tests.kits.waiting import until
from tests.servers.proxy import TcpProxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

#: Rows of the snapshot: many chunks.
ROWS = 60_000
PATIENCE_S = 300.0


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
        return topic_of(self.db)

    def copied(self) -> bool:
        return copied(self.kafka, self.db)

    def caught_up(self) -> bool:
        return caught_up(self.kafka, self.database, self.db)


@contextlib.contextmanager
def stage(kafka: Kafka, database: Any, db: str, folder: Path) -> Iterator[Stage]:
    database.execute(DDL.format(db=db))
    rows = ", ".join(f"({100 + n}, 0, NULL)" for n in range(ROWS))
    database.execute(f"INSERT INTO {db}.acct VALUES {rows}")
    with TcpProxy(database.port, host=database.host) as network:
        server = source(database, [f"{db}.*"])
        config = write_config(folder, kafka.bootstrap, db, {"s": {**server, "port": network.port}})
        broken = (pymysql.MySQLError, OSError)
        with load(database, db, survives=broken) as writer, running(config, "s") as unit:
            yield Stage(kafka, database, db, unit, writer, network)


@pytest.fixture
def db(database: Any, unique: str) -> Iterator[str]:
    database.create_database(unique)
    yield unique
    database.process.resume()
    database.start()
    database.drop_database(unique)


def kill_the_source(on: Stage) -> None:
    on.database.kill()
    on.database.start()


def stop_the_source(on: Stage) -> None:
    """It stands still until capture gives the connection up."""
    reported = on.unit.output().count("capture restarts")
    on.database.process.pause()
    try:
        until(lambda: on.unit.output().count("capture restarts") > reported, "capture notices it", PATIENCE_S)
    finally:
        on.database.process.resume()


def cut_the_source(on: Stage) -> None:
    """Nothing arrives, and nothing is closed; then the connections are gone, too."""
    reported = on.unit.output().count("capture restarts")
    on.network.cut()
    try:
        until(lambda: on.unit.output().count("capture restarts") > reported, "capture notices it", PATIENCE_S)
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
    until(on.copied, f"the snapshot ends; {on.unit.output()[-3000:]}", PATIENCE_S)
    before = size(on.kafka.bootstrap, on.topic)
    until(lambda: size(on.kafka.bootstrap, on.topic) > before + 100, "load is captured", PATIENCE_S)
    fault(on)
    before, count = size(on.kafka.bootstrap, on.topic), on.load.count
    until(lambda: on.load.count > count + 50, "load goes on", PATIENCE_S)
    until(lambda: size(on.kafka.bootstrap, on.topic) > before + 100, "it is captured again", PATIENCE_S)
    on.load.finish()
    until(on.caught_up, f"capture of everything; {on.unit.output()[-3000:]}", PATIENCE_S)
    assert on.unit.stop() == 0, on.unit.output()[-3000:]
    judge(on.kafka, on.database, on.db)


@pytest.mark.parametrize(
    "fault", [kill_the_source, stop_the_source, cut_the_source, cut_one_way], ids=lambda fault: fault.__name__
)
def test_the_topic_replays_to_the_source_after(
    fault: Callable[[Stage], None], kafka: Kafka, database: Any, db: str, tmp_path: Path
) -> None:
    with stage(kafka, database, db, tmp_path) as on:
        _breaks(on, fault)
