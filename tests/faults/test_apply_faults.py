"""What apply survives, with real processes under load: dead workers, driver, broker, target; a lost checkpoint.

After each fault the target equals the source, and an observer that reads the target all the time has never seen a row
go back to an older version.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from consumer.errors import ConsumerError
from consumer.model import Unit
from consumer.targets.dialect import open_session
from schemas.config import TargetConfig
from tests.apply_kit import FakeSource, Process, Topic, start_apply, until, write_config

ROUTE = {"from": "bank.*", "to": "public.{table}"}
SELECT = "SELECT id, email, owner, balance::text, version, opened::text, note FROM acct"


class Load(threading.Thread):
    """Writes changes until stopped: versions of a row only grow, e-mail addresses move between rows."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(daemon=True)
        self.topic, self.source = topic, topic.source
        self.ending = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        rng, version = random.Random(1), 0
        try:
            while not self.ending.is_set():
                events = []
                for _ in range(20):
                    version += 1
                    events += self._change(rng, version)
                self.topic.write(events)
                time.sleep(0.05)
        except BaseException as error:  # noqa: BLE001  # shown by the test
            self.failure = error

    def _change(self, rng: random.Random, version: int) -> list[Any]:
        key, email = rng.randrange(300), f"e{rng.randrange(200)}@x"
        holder = next((k for k, row in self.source.rows.items() if row["email"] == email and k != key), None)
        out = []
        if holder is not None:
            out.append(self.source.put({**self.source.rows[holder], "email": None, "version": version}))
        out.append(self.source.put(self.source.row(key, email, version)))
        return out

    def end(self) -> None:
        self.ending.set()
        self.join(130)
        assert self.failure is None, self.failure


class Observer(threading.Thread):
    """Reads the target all the time and remembers rows that went back."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._connect = connect
        self.ending = threading.Event()
        self.back: list[tuple[int, int, int]] = []
        self.looks = 0

    def run(self) -> None:
        seen: dict[int, int] = {}
        while not self.ending.is_set():
            with suppress(psycopg.Error), self._connect() as connection:
                while not self.ending.is_set():
                    self._look(connection, seen)
            time.sleep(0.1)

    def _look(self, connection: Any, seen: dict[int, int]) -> None:
        for key, version in connection.execute("SELECT id, version FROM acct").fetchall():
            if version < seen.get(key, 0):
                self.back.append((key, seen[key], version))
            seen[key] = version
        self.looks += 1
        time.sleep(0.03)


class Scene:
    """A loaded topic, an apply process that follows it into PostgreSQL, and an observer."""

    def __init__(self, kafka: Any, postgres: Any, database: str, prefix: str, folder: Path) -> None:
        self.kafka, self.postgres, self.database, self.folder = kafka, postgres, database, folder
        target = {
            "type": "postgres",
            "host": "127.0.0.1",
            "port": postgres.port,
            "user": postgres.user,
            "password": "x",
            "database": database,
        }
        self.target = TargetConfig(**target)
        self.config = write_config(folder, kafka=kafka, prefix=prefix, target=target, routes=[ROUTE])
        self.source = FakeSource()
        self.topic = Topic(kafka.bootstrap, prefix, self.source)
        self.topic.write([self.source.definition()])
        self.process: Process = start_apply(self.config)
        self.load = Load(self.topic)
        self.observer = Observer(lambda: postgres.connect(database))
        self.load.start()
        self.observer.start()

    def offset(self) -> int:
        """The lowest lane's offset; -1 while the target is down or has no progress yet."""
        try:
            session = open_session(self.target, name="test")
        except ConsumerError:
            return -1
        try:
            rows, _ = session.read(Unit("p", self.topic.name))
        except ConsumerError:
            return -1
        finally:
            session.close()
        return min((row.offset for row in rows), default=-1)

    def moves(self, by: int = 200) -> None:
        """Wait until progress is `by` offsets further than now."""
        start = until(lambda: (at := self.offset()) >= 0 and at, seconds=120, what="progress can be read")
        until(
            lambda: self.offset() >= start + by, seconds=120, what=f"progress beyond {start}: {self.said()}"
        )

    def said(self) -> str:
        return f"{self.process.problems()[-3:]} {self.process.errors.read_text()[-1500:]}"

    def settles(self) -> None:
        """End the load, wait until all is applied, and judge."""
        self.load.end()
        last = len(self.topic.written) - 1
        until(lambda: self.offset() == last, seconds=180, what=f"offset {last}: {self.said()}")
        assert self.rows() == sorted(tuple(row.values()) for row in self.source.rows.values())
        self.observer.ending.set()
        self.observer.join(20)
        assert self.observer.looks > 5
        assert self.observer.back == []

    def rows(self) -> list[tuple[object, ...]]:
        with self.postgres.connect(self.database) as connection:
            return sorted(connection.execute(SELECT).fetchall())

    def close(self) -> None:
        self.load.ending.set()
        self.observer.ending.set()
        self.observer.join(20)
        self.process.kill()


@pytest.fixture
def scene(kafka: Any, postgres: Any, pg_db: str, unique: str, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(kafka, postgres, pg_db, unique, tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(600)
def test_workers_broker_and_target_die_and_the_same_process_goes_on(scene: Scene) -> None:
    scene.moves()
    workers = until(scene.process.workers, what="Python workers")
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    scene.moves()
    assert not [line for line in scene.process.problems() if "died" in line], (
        "a dead worker must not end the query"
    )
    scene.postgres.kill()
    scene.postgres.start()
    scene.moves()
    scene.kafka.restart()
    scene.moves()
    scene.settles()
    assert scene.process.popen.poll() is None
    assert scene.process.stop() == 0


@pytest.mark.timeout(600)
def test_a_killed_driver_and_a_lost_checkpoint_cost_nothing(scene: Scene) -> None:
    scene.moves()
    scene.process.kill()
    shutil.rmtree(scene.folder / "state", ignore_errors=True)
    scene.process = start_apply(scene.config)
    scene.moves()
    assert scene.process.stop() == 0, "SIGTERM under load: the batch in flight ends, exit 0"
    scene.process = start_apply(scene.config)
    scene.moves()
    assert scene.process.popen.stdin is not None
    scene.process.popen.stdin.close()
    assert scene.process.ended() == 0, "the supervisor's end is ours too"
    scene.process = start_apply(scene.config)
    scene.settles()
