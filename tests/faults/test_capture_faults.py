"""Capture is killed, loses its broker, loses its source, in the middle of load: afterwards the topic replays
to the source."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB
from tests.faults.accounts import DDL, caught_up, copied, judge, load, topic_of
from tests.kits.capture import running, size, source, watermarks, write_config
from tests.kits.waiting import until

KILLS = 6


@pytest.fixture
def db(database: Any, unique: str) -> Iterator[str]:
    database.create_database(unique)
    database.execute(DDL.format(db=unique))
    rows = ", ".join(f"({n}, 0, NULL)" for n in range(100, 5100))
    database.execute(f"INSERT INTO {unique}.acct VALUES {rows}")
    yield unique
    database.drop_database(unique)


def _wait_caught_up(kafka: Kafka, database: Any, db: str) -> None:
    """A last change is made, and captured; nothing is left to snapshot."""
    database.execute(f"REPLACE INTO {db}.acct VALUES (99, 1, 'last')")
    until(lambda: caught_up(kafka, database, db), "capture of everything")


def test_kill_9_at_any_moment(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> None:
    """During the snapshot and after it, with the load going on; each kill comes after some more has been
    written."""
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(database, [f"{db}.*"])})
    topic, chance = topic_of(db), random.Random()
    with load(database, db), running(config, "s") as unit:
        for _ in range(KILLS):
            before, more = size(kafka.bootstrap, topic), chance.randrange(1, 1500)
            until(lambda b=before, m=more: size(kafka.bootstrap, topic) >= b + m, "progress")
            unit.kill()
            unit.start()
        until(lambda: copied(kafka, db), "the snapshot")
    # the load has ended, the last unit was left by `running`: one more takes it to the end
    with running(config, "s") as unit:
        _wait_caught_up(kafka, database, db)
        assert unit.stop() == 0, unit.output()
    result = judge(kafka, database, db)
    assert result.gen > KILLS


@pytest.mark.slow  # tests/faults/test_whole_system.py restarts the broker under all of it
def test_broker_stops_and_starts(kafka: Kafka, mariadb: MariaDB, unique: str, tmp_path: Path) -> None:
    """Killed hard and started again under load: the unit waits or restarts itself, nothing is lost."""
    db = unique
    mariadb.create_database(db)
    mariadb.execute(DDL.format(db=db))
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    topic = topic_of(db)
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
        assert unit.stop() == 0, unit.output()
    judge(kafka, mariadb, db)
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
        until(lambda: "capture restarts" in unit.output(), "noticing it")
        mariadb.start()
        mariadb.execute(f"INSERT INTO {db}.acct VALUES (2, 2, 'b')")
        _wait_caught_up(kafka, mariadb, db)
        assert unit.stop() == 0, unit.output()
    judge(kafka, mariadb, db)
    mariadb.drop_database(db)


def test_it_ends_with_its_parent(kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path) -> None:
    mariadb.execute(DDL.format(db=mariadb_db))
    config = write_config(tmp_path, kafka.bootstrap, mariadb_db, {"s": source(mariadb, [f"{mariadb_db}.*"])})
    with running(config, "s") as unit:
        until(lambda: watermarks(kafka.bootstrap, mariadb_db, "s"), "the start")
        assert unit.process is not None
        assert unit.process.stdin is not None
        unit.process.stdin.close()
        assert unit.wait() == 0, unit.output()
