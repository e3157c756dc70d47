"""Capture that copies single tables of a real source."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.embedded.services import Kafka
from schemas.wire.codec import encode_copy_request
from schemas.wire.copies import CopyRequest, CopyState, copy_topic
from schemas.wire.event import EventEnvelope
from schemas.wire.position import Position
from tests.kits.capture import Unit, events, position, size, source, write_config

PLAIN = "(id INT PRIMARY KEY, version INT, v VARCHAR(20))"


ROWS = 11


class Copying:
    """A source with a table for each cause, and `live`, which others change all the time; capture of it in
    chunks of three rows."""

    def __init__(self, kafka: Kafka, database: Any, db: str, folder: Path) -> None:
        self.kafka, self.database, self.db, self.folder = kafka, database, db, folder
        self.version = 1000
        self._end = threading.Event()
        self.make("live", PLAIN)

    def make(self, table: str, form: str) -> None:
        rows = ", ".join(f"({key}, {key}, 'row {key}')" for key in range(1, ROWS + 1))
        self.change(f"CREATE TABLE {table} {form}", f"INSERT INTO {table} (id, version, v) VALUES {rows}")

    def change(self, *statements: str) -> None:
        with self.database.connect(self.db) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    @contextlib.contextmanager
    def running(self, when: str = "never", *patterns: str, snapshot: str = "initial") -> Iterator[Unit]:
        config = write_config(
            self.folder, self.kafka.bootstrap, self.db,
            {"s": source(self.database, [each.format(db=self.db) for each in patterns or ("{db}.*",)],
             snapshot=snapshot)},
        )  # fmt: skip
        unit = Dying(config, "s")
        unit.when = when
        unit.start()
        try:
            yield unit
        finally:
            if unit.process is not None and unit.process.poll() is None:
                unit.kill()
            unit._close()

    @contextlib.contextmanager
    def writing(self, *tables: str) -> Iterator[None]:
        """Change rows of tables all the time, each change with a higher version."""
        end = threading.Event()

        def write() -> None:
            with self.database.connect(self.db) as connection, connection.cursor() as cursor:
                while not end.is_set():
                    for table in tables:
                        self.version += 1
                        key = self.version % (ROWS + 4) + 1
                        cursor.execute(f"REPLACE INTO {table} VALUES ({key}, {self.version}, 'live')")
                        if self.version % 5 == 0:
                            cursor.execute(f"DELETE FROM {table} WHERE id = {self.version % ROWS + 1}")
                    end.wait(0.01)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def request_copy(self, table: str, **more: Any) -> str:
        request = CopyRequest(
            id=secrets.token_hex(4), db=self.db, table=table, by="operator", requested_ms=1, **more
        )
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        producer.produce(
            copy_topic(self.db, "s"), key=request.id.encode(), value=encode_copy_request(request)
        )
        producer.flush()
        return request.id

    # --- what is known

    def events(self, table: str) -> list[EventEnvelope]:
        topic = f"{self.db}.s.{self.db}.{table}"
        return events(self.kafka.bootstrap, topic) if size(self.kafka.bootstrap, topic) else []

    def states(self) -> dict[str, CopyState]:
        found = (
            position(self.kafka.bootstrap, self.db, "s")
            if size(self.kafka.bootstrap, f"{self.db}.s.position")
            else None
        )
        return (
            {name.rpartition(".")[2]: state for name, state in found.copies.items()}
            if found is not None
            else {}
        )

    def stops(self) -> dict[str, str]:
        found = position(self.kafka.bootstrap, self.db, "s")
        return {name.rpartition(".")[2]: stop.cause for name, stop in found.stops.items()}

    def list_copies(self, table: str) -> dict[int, tuple[Any, ...]]:
        found = self.database.execute(f"SELECT id, version, v FROM {table}", database=self.db)
        return {row[0]: tuple(row) for row in found}

    def equal(self, table: str) -> bool:
        return fold(self.events(table)) == self.list_copies(table)


class Dying(Unit):
    """Capture that dies when it is told to."""

    when = "never"

    def start(self) -> Unit:
        import subprocess
        import sys

        from tests.kits.capture import ROOT

        command = [
            sys.executable,
            "-m",
            "tests.kits.copying_capture",
            self.when,
            "--config",
            str(self.config),
            "--source",
            self.name,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT)
        self.starts += 1
        return self


def fold(found: list[EventEnvelope]) -> dict[int, tuple[Any, ...]]:
    """Return what a reader of the topic holds: id → (id, version, v)."""
    rows: dict[int, tuple[Any, ...]] = {}
    living: dict[int, tuple[int, bool]] = {}
    highest: Position | None = None
    gen = 0
    for offset, event in enumerate(found):
        where = event.source
        if where.gen < gen or (highest is not None and where.position <= highest):
            gen = max(gen, where.gen)
            continue
        assert where.prev is None or (highest is not None and where.prev <= highest), "a gap"
        gen, highest = where.gen, where.position
        if event.op == "t":
            rows.clear()
            living.clear()
        for image, there in ((event.before, False), (event.after, True)):
            if image is not None:
                key = image["id"]
                living[key] = (offset, there)
                rows.pop(key, None)
                if there:
                    rows[key] = (key, image["version"], image["v"])
        if event.chunk is not None and event.copy is not None:
            assert event.chunk.repeated
            assert event.copy.since is not None
            after, upto = (None if key is None else key[0] for key in (event.chunk.after, event.chunk.upto))
            for key in list(rows):
                at, there = living.get(key, (-1, False))
                inside = (after is None or key > after) and (upto is None or key <= upto)
                if inside and not event.copy.partial and not (there and at > event.copy.since):
                    del rows[key]
    return rows


@pytest.fixture
def copying(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> Copying:
    return Copying(kafka, database, db, tmp_path)
