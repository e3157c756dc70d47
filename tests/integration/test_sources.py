"""What capture makes of a source, of whatever kind: these tests run on the real ones, and on any that a test puts beside them.

A source (`SourceSite`) has tables of rows (id, version), where each change of a row has a higher version.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from confluent_kafka import Producer

from deploy.embedded.services import Kafka, MariaDB
from producer.checks.preflight import check_source
from schemas.config.model import load_config
from schemas.wire.codec import encode_stored_position
from schemas.wire.event import EventEnvelope
from schemas.wire.records import StoredPosition, Watermark, format_position_topic
from tests.kits.capture import (
    Unit,
    events,
    position,
    replay,
    running,
    source,
    transactions_are_whole,
    watermarks,
    write_config,
)
from tests.kits.waiting import until

Step = Callable[[], object]


class SourceSite(Protocol):
    """A source with the empty tables `a` and `b`, and capture of them in stretches. `chunk_rows`: rows of a snapshot's chunk."""

    chunk_rows: int
    db: str

    def put(self, table: str, version: int, *ids: int) -> None:
        """Insert or update rows, in one transaction."""

    def delete(self, table: str, *ids: int) -> None: ...
    def truncate(self, table: str) -> None: ...
    def drop(self, table: str) -> None: ...
    def widen(self, table: str) -> None:
        """Give it a column `note`."""

    def rows(self, table: str) -> dict[int, int]:
        """Return what it holds: id → version."""

    def run(self, *steps: Step, kill: bool = False, tables: str = "*", snapshot: str = "initial") -> None:
        """Capture, take the steps meanwhile, and end once all is in Kafka; or kill it while it still has to do."""

    def refused(self) -> str:
        """Start capture, which refuses the source; returns what it says."""

    def become_another(self) -> None: ...
    def events(self, table: str) -> list[EventEnvelope]:
        """Return the events of its topic, in which no row's version goes back."""

    def position(self) -> StoredPosition: ...
    def watermarks(self) -> list[Watermark]: ...


def captured(site: SourceSite, table: str) -> dict[int, int]:
    """What a reader of its topic holds, who stops at a gap."""
    rows = replay(site.events(table)).tables.get((site.db, table), {}).values()
    return {row["id"]: row["version"] for row in rows}


def stopped(site: SourceSite, table: str, cause: str) -> None:
    """Judge: topic and record say the stop, and nothing of the table stands behind it."""
    found = site.events(table)
    stops = [event for event in found if event.stop is not None]
    assert {event.stop.cause for event in stops if event.stop} == {cause}
    assert all(event.source.position <= stops[0].source.position for event in found)
    assert site.position().stops[f"{site.db}.{table}"].cause == cause


# --- the tests


def test_rows_and_changes_replay_to_the_source(site: SourceSite) -> None:
    site.put("a", 1, *range(7))
    site.run(lambda: site.put("a", 2, 3, 4, 11), lambda: site.delete("a", 5, 6), lambda: site.put("b", 1, 1))
    assert captured(site, "a") == site.rows("a")
    assert captured(site, "b") == site.rows("b") == {1: 1}
    read = [replay(site.events(table)) for table in "ab"]
    assert transactions_are_whole(read)
    assert {event.op for event in read[0].accepted} >= {"m", "r", "c", "u", "d"}


def test_it_goes_on_at_the_stored_position(site: SourceSite) -> None:
    site.run(lambda: site.put("a", 1, 1, 2), snapshot="never")
    first = site.position()
    site.put("a", 2, 2, 3)
    site.run(lambda: site.put("a", 3, 3), snapshot="never")
    rows = [event for event in site.events("a") if event.op in "cud"]
    assert [event.source.gen for event in rows] == [first.gen] * 2 + [first.gen + 1] * 3, "nothing again"
    assert [event.source.prev for event in rows[3:]] == [event.source.position for event in rows[2:-1]]
    assert captured(site, "a") == site.rows("a")


def test_nothing_is_missing_behind_a_kill(site: SourceSite) -> None:
    site.run(lambda: site.put("a", 1, *range(9)), kill=True)
    for round_ in range(2, 5):
        site.put("a", round_, *range(round_, 9))
        site.run(lambda v=round_: site.delete("a", v - 2), kill=round_ < 4)
    assert captured(site, "a") == site.rows("a")


def test_no_row_goes_back_while_a_snapshot_is_under_way(site: SourceSite) -> None:
    """Each row is touched once: nothing overwrites what a chunk brings back."""
    keys = list(range(site.chunk_rows * 4))
    site.put("a", 1, *keys)
    random.Random(7).shuffle(keys)
    size = max(len(keys) // 40, 2)
    touched = [keys[at : at + size] for at in range(0, len(keys), size)]
    site.run(*(lambda ids=ids: site.put("a", 2, *ids) for ids in touched))
    assert captured(site, "a") == site.rows("a") == dict.fromkeys(range(len(keys)), 2)


def test_a_snapshot_goes_on_after_a_kill(site: SourceSite) -> None:
    site.put("a", 1, *range(site.chunk_rows * 3))
    site.run(*[lambda: site.put("b", 1, 1)] * 4, kill=True)
    site.put("a", 2, 0, site.chunk_rows)
    site.run(lambda: site.put("a", 3, 1))
    assert captured(site, "a") == site.rows("a")
    chunks = [event.chunk.number for event in site.events("a") if event.chunk]
    assert chunks == [1, 2, 3, 4], "none again"
    assert site.position().snapshot_done == (f"{site.db}.a", f"{site.db}.b")


@pytest.mark.parametrize("while_it_runs", [True, False])
def test_a_table_that_is_dropped_stops_alone(site: SourceSite, while_it_runs: bool) -> None:
    site.put("a", 1, 1)
    site.put("b", 1, 1)
    site.run()
    if while_it_runs:
        site.run(lambda: site.drop("a"), lambda: site.put("b", 2, 1, 2))
    else:
        site.drop("a")
        site.run(lambda: site.put("b", 2, 1, 2))
    stopped(site, "a", "dropped")
    site.run(lambda: site.put("b", 3, 1))
    stopped(site, "a", "dropped")
    assert captured(site, "b") == site.rows("b") == {1: 3, 2: 2}
    assert list(site.watermarks()[-1].stops) == [f"{site.db}.a"]


def test_a_table_that_is_taken_out_stops(site: SourceSite) -> None:
    site.run(lambda: site.put("a", 1, 1))
    site.run(lambda: site.put("a", 2, 1), lambda: site.put("b", 1, 1), tables="b")
    site.run(lambda: site.put("a", 3, 1))
    stopped(site, "a", "deselected")
    assert captured(site, "a") == {1: 1}
    assert captured(site, "b") == site.rows("b")


def test_an_emptied_table_is_empty(site: SourceSite) -> None:
    site.put("a", 1, *range(5))
    site.run(lambda: site.truncate("a"), lambda: site.put("a", 2, 3))
    assert captured(site, "a") == site.rows("a") == {3: 2}
    assert "t" in {event.op for event in site.events("a")}


def test_a_definition_stands_before_its_rows(site: SourceSite) -> None:
    site.run(
        lambda: site.put("a", 1, 1), lambda: site.widen("a"), lambda: site.put("a", 2, 1, 2), snapshot="never"
    )
    columns: tuple[str, ...] = ()
    seen = []
    for event in site.events("a"):
        columns = event.definition.column_names if event.definition else columns
        if event.op in "cu":
            assert tuple(event.after or ()) == columns
            seen.append(len(columns))
    assert seen == [2, 3, 3]


def test_another_source_is_refused(site: SourceSite) -> None:
    site.run(lambda: site.put("a", 1, 1))
    before = site.position()
    site.become_another()
    assert "another server" in site.refused()
    assert site.position().pos == before.pos
    assert len(site.events("a")) == len(replay(site.events("a")).accepted)


# --- the real ones


class ServerSite:
    """A database of a real server, its capture a process."""

    chunk_rows = 2000

    def __init__(self, kafka: Kafka, database: Any, db: str, folder: Path) -> None:
        self.kafka, self.database, self.db, self.folder = kafka, database, db, folder
        for table in "ab":
            self._do(f"CREATE TABLE {table} (id INT PRIMARY KEY, version INT NOT NULL)")

    def _do(self, sql: str) -> None:
        with self.database.connect(self.db) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            connection.commit()

    def put(self, table: str, version: int, *ids: int) -> None:
        values = ", ".join(f"({id_}, {version})" for id_ in ids)
        self._do(
            f"INSERT INTO {table} (id, version) VALUES {values} ON DUPLICATE KEY UPDATE version = {version}"
        )

    def delete(self, table: str, *ids: int) -> None:
        self._do(f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, ids))})")

    def truncate(self, table: str) -> None:
        self._do(f"TRUNCATE TABLE {table}")

    def drop(self, table: str) -> None:
        self._do(f"DROP TABLE {table}")

    def widen(self, table: str) -> None:
        self._do(f"ALTER TABLE {table} ADD COLUMN note VARCHAR(10)")

    def rows(self, table: str) -> dict[int, int]:
        return dict(self.database.execute(f"SELECT id, version FROM `{self.db}`.{table}"))

    def _config(self, tables: str = "*", snapshot: str = "initial") -> Path:
        own = source(self.database, [f"{self.db}.{tables}"], snapshot=snapshot)
        return write_config(self.folder, self.kafka.bootstrap, self.db, {"s": own})

    def run(self, *steps: Step, kill: bool = False, tables: str = "*", snapshot: str = "initial") -> None:
        known = len(self.watermarks())
        with running(self._config(tables, snapshot), "s") as unit:
            until(lambda: len(self.watermarks()) > known, f"a start; {unit.output()[-2000:]}")
            for step in steps:
                step()
            if kill:
                unit.kill()
                return
            until(self._caught_up, "capture of everything")
            assert unit.stop() == 0, unit.output()

    def _caught_up(self) -> bool:
        last = self.watermarks()[-1]
        statement = "SHOW MASTER STATUS" if isinstance(self.database, MariaDB) else "SHOW BINARY LOG STATUS"
        end = self.database.execute(statement)[0]
        return not last.snapshot_pending and (last.file, last.position[2]) == (end[0], int(end[1]))

    def refused(self) -> str:
        unit = Unit(self._config(), "s").start()
        assert unit.wait() == 2, unit.output()
        assert check_source(load_config(self._config(), {}), "s"), "and `check` says so"
        return unit.output()

    def become_another(self) -> None:
        """The record says that it was another one."""
        record = self.position()
        was = msgspec.structs.replace(
            record.identity, server_uuid="another" if record.identity.server_uuid else None, server_id=4711
        )
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        producer.produce(
            format_position_topic(self.db, "s"),
            encode_stored_position(msgspec.structs.replace(record, identity=was)),
            str(record.gen),
        )
        producer.flush()

    def events(self, table: str) -> list[EventEnvelope]:
        return events(self.kafka.bootstrap, f"{self.db}.s.{self.db}.{table}")

    def position(self) -> StoredPosition:
        return position(self.kafka.bootstrap, self.db, "s")

    def watermarks(self) -> list[Watermark]:
        return watermarks(self.kafka.bootstrap, self.db, "s")


@pytest.fixture(params=["mariadb", "mysql"])
def site(request: pytest.FixtureRequest, kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[SourceSite]:
    """Each server that can be a source."""
    database = request.getfixturevalue(request.param)
    database.create_database(unique)
    yield ServerSite(kafka, database, unique, tmp_path)
    database.drop_database(unique)
