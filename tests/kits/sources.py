"""Sources as the tests of every source see them: tables of rows (id, version), and capture in stretches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from confluent_kafka import Producer

from deploy.embedded.services import Kafka
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
    watermarks,
    write_config,
)
from tests.kits.waiting import until

Step = Callable[[], object]


class SourceSite(Protocol):
    """A source with the empty tables `a` and `b`, and capture of them in stretches. `chunk_rows`: rows of a
    snapshot's chunk."""

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
        """Capture, take the steps meanwhile, and end once all is in Kafka; or kill it while it still has to
        do."""

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


def stopped(site: SourceSite, table: str, *causes: str) -> None:
    """Judge: topic and record say the stop with one of `causes`, and nothing of the table follows it."""
    found = site.events(table)
    stops = [event for event in found if event.stop is not None]
    (cause,) = {event.stop.cause for event in stops if event.stop}
    assert cause in causes
    assert all(event.source.position <= stops[0].source.position for event in found)
    assert site.position().stops[f"{site.db}.{table}"].cause == cause


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
        end = self.database.execute(self.database.log_status)[0]
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
