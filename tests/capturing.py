"""Capture of one source in stretches, judged by what is in its topics; the fixtures are there for all tests
(conftest)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka
from schemas.wire.event import EventEnvelope
from schemas.wire.records import format_former_table_topic
from tests.kits.capture import (
    events,
    position,
    replay,
    running,
    size,
    source,
    source_rows,
    topic_rows,
    transactions_are_whole,
    watermarks,
    write_config,
)
from tests.kits.waiting import until


@pytest.fixture(params=["mariadb", "mysql"])
def database(request: pytest.FixtureRequest) -> Any:
    """Each server that can be a source."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def db(database: Any, unique: str) -> Iterator[str]:
    """The name of a fresh database on it."""
    database.create_database(unique)
    yield unique
    database.drop_database(unique)


@pytest.fixture
def capturing(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> Capturing:
    """Capture of that database, in stretches."""
    return Capturing(kafka, database, db, tmp_path)


ACCOUNT = "CREATE TABLE {db}.{name} (id INT PRIMARY KEY, v VARCHAR(20))"


class Capturing:
    """A source's tables `a` and `b` (where all goes well), and capture of them in stretches."""

    def __init__(self, kafka: Kafka, database: Any, db: str, folder: Path, **options: Any) -> None:
        self.kafka, self.database, self.db, self.folder = kafka, database, db, folder
        self.options = {"snapshot": "never", **options}
        for name in ("a", "b"):
            database.execute(ACCOUNT.format(db=db, name=name))
        self.beats = 0

    def config(self, *patterns: str) -> Path:
        tables = [f"{self.db}.{pattern}" for pattern in patterns or ("*",)]
        return write_config(
            self.folder, self.kafka.bootstrap, self.db, {"s": source(self.database, tables, **self.options)}
        )

    def run(self, *statements: str, patterns: tuple[str, ...] = ()) -> None:
        """Capture until what `statements` do, and everything before, is in Kafka."""
        before = self._gen()
        with running(self.config(*patterns), "s") as unit:
            until(lambda: self._gen() > before, f"a start; {unit.output()[-3000:]}", 200)
            self.change(*statements)
            self.beats += 1
            self.database.execute(f"REPLACE INTO {self.db}.b VALUES (1, 'beat {self.beats}')")
            expected = {"id": 1, "v": f"beat {self.beats}"}
            until(
                lambda: any(e.after == expected for e in self.events("b")),
                f"captured: {expected}; {unit.output()[-3000:]}",
                200,
            )
            assert unit.stop() == 0, unit.output()

    def run_until(self, done: Callable[[], object], what: str) -> None:
        """Capture until `done`, where that is no matter of the log alone: a run that follows it may end
        before a snapshot's row."""
        with running(self.config(), "s") as unit:
            until(done, f"{what}; {unit.output()[-3000:]}", 200)
            assert unit.stop() == 0, unit.output()

    def _gen(self) -> int:
        found = watermarks(self.kafka.bootstrap, self.db, "s")
        return found[-1].gen if found else 0

    def change(self, *statements: str) -> None:
        with self.database.connect(self.db) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def events(self, table: str) -> list[EventEnvelope]:
        topic = format_former_table_topic(self.db, "s", self.db, table)
        return events(self.kafka.bootstrap, topic) if size(self.kafka.bootstrap, topic) else []

    def values(self, table: str) -> set[Any]:
        return {event.after["v"] for event in self.events(table) if event.after is not None}

    def stopped(self, table: str, cause: str) -> None:
        """Judge: topic, record and watermark say the stop; nothing stands behind it in the topic's order."""
        found = self.events(table)
        stops = [event for event in found if event.stop is not None]
        assert {event.stop.cause for event in stops if event.stop} == {cause}
        at = stops[0].source.position
        assert all(event.source.position <= at for event in found)
        for event in stops:
            assert event.stop is not None
            assert f"{self.db}.{table}" in event.stop.reason
            assert event.stop.remedy
        record = position(self.kafka.bootstrap, self.db, "s")
        assert record.stops[f"{self.db}.{table}"] == stops[-1].stop

    def notified(self) -> set[str]:
        return set(watermarks(self.kafka.bootstrap, self.db, "s")[-1].stops)

    def holds_source_rows(self, *tables: str) -> None:
        """Judge: every topic replays to what the source holds, without a gap, in whole transactions."""
        replays = []
        for table in tables:
            found = replay(self.events(table))
            replays.append(found)
            rows = source_rows(self.database, self.db, table, "id, v")
            assert topic_rows(found, self.db, table, ["id", "v"]) == rows
        defining = {e.transaction.id for each in replays for e in each.accepted if e.ddl and e.transaction}
        for each in replays:  # in a CREATE … SELECT the definition counts, too
            each.transactions = {
                name: seen for name, seen in each.transactions.items() if name not in defining
            }
        assert transactions_are_whole(replays)
        assert self.notified() == set()
