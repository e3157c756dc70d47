"""Rows arrive while Spark starts, also where it never does; and nothing is lost, doubled or goes back when it
takes over.

Java is held back by a program in its place, which waits for a file before it becomes Java.
"""

from __future__ import annotations

import itertools
import os
import random
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from consumer.spark.class_archive import archive_file
from tests.kits.apply import FakeSource, Topic, until, write_config
from tests.kits.assigned import AssignedApply, Writer, assigned_apply

UNIT_EPOCH = 1_700_000_000_000
HELD_BACK = """#!/bin/sh
while [ ! -e '{go}' ]; do sleep 0.2; done
exec '{java}' "$@"
"""
NO_JAVA = """#!/bin/sh
while [ ! -e '{go}' ]; do sleep 0.2; done
echo 'no such machine' >&2
exit 1
"""


@dataclass
class Scene:
    """A topic and its target, and the file that lets Java go."""

    service: Any
    database: str
    source: FakeSource
    topic: Topic
    config: Path
    go: Path

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.service.execute(sql, database=self.database)]

    @property
    def unit(self) -> str:
        return f"apply/p/{self.topic.name}"

    def write(self, keys: range, versions: Iterator[int]) -> None:
        self.topic.write_changes(
            [self.source.put(self.source.row(key, f"{key}@x", next(versions))) for key in keys]
        )

    def is_there(self) -> bool:
        try:
            found = self.query(f"SELECT id, email, version FROM {self.source.table.name} ORDER BY id")
        except Exception:  # noqa: BLE001  # the table is not there yet
            return False
        return found == sorted((r["id"], r["email"], r["version"]) for r in self.source.rows.values())

    def watch(self) -> None:
        """Keep every row version that is written from now on, in order."""
        self.query("CREATE TABLE history (n BIGSERIAL PRIMARY KEY, id BIGINT, version INT)")
        self.query(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO history (id, version) VALUES (NEW.id, NEW.version); RETURN NULL; END $$"
        )
        self.query(
            f"CREATE TRIGGER n AFTER INSERT OR UPDATE ON {self.source.table.name} FOR "
            "EACH ROW EXECUTE FUNCTION note()"
        )


@pytest.fixture
def scene(
    kafka: Any, postgres: Any, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    postgres.create_database(unique)
    target = {
        "type": "postgres", "host": "127.0.0.1", "port": postgres.port, "user": postgres.user,
        "password": "x", "database": unique,
    }  # fmt: skip
    routes = [{"from": "bank.*", "to": "public.{table}"}]
    config = write_config(tmp_path, kafka=kafka, prefix=unique, target=target, routes=routes)
    source = FakeSource()
    topic = Topic(kafka.bootstrap, unique, source)
    topic.write_changes([source.definition()])
    go = tmp_path / "go"
    put_in_place_of_java(tmp_path, monkeypatch, HELD_BACK.format(go=go, java=shutil.which("java")))
    yield Scene(postgres, unique, source, topic, config, go)
    postgres.drop_database(unique)


def put_in_place_of_java(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    home = folder / f"java-{secrets.token_hex(2)}"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(program)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))


def give(process: AssignedApply, scene: Scene) -> None:
    process.do("prepare", scene.unit, UNIT_EPOCH)
    process.wait(scene.unit, UNIT_EPOCH, "prepared")
    process.do("start", scene.unit, UNIT_EPOCH)


def spark_is_up(process: AssignedApply) -> bool:
    return any(line["kind"] == "ready" for _, line in process.reported.copy())


def test_rows_arrive_and_keep_arriving_without_spark_and_it_takes_over_under_load(scene: Scene) -> None:
    versions = itertools.count(1)
    with assigned_apply(scene.config, judged=False) as process:
        scene.write(range(10), versions)
        give(process, scene)
        until(scene.is_there, what=f"the first rows: {process.log()}")
        scene.watch()
        for _ in range(5):
            scene.write(range(20), versions)
            until(scene.is_there, what=f"rows that come later: {process.log()}")
        assert not spark_is_up(process)
        keys = random.Random(7)

        def some(number: int) -> None:
            for _ in range(number):
                key = keys.randrange(200)
                scene.write(range(key, key + 1), versions)

        with Writer(some, 100):
            scene.go.touch()
            process.ready()
            until(
                lambda: '"slot opened"' in process.errors.read_text(),
                what=f"a slot: {process.log()}",
            )
            until(process.workers, what="a worker of Spark's")
            assert classes_are_shared(process)
            before = len(scene.topic.written)
            until(lambda: len(scene.topic.written) > before + 200, what="load behind that")
        until(scene.is_there, what=f"everything: {process.log()}")
        assert_each_version_once(scene)
        assert applied_by(process, scene) == len(scene.topic.written), "each event once, by whomever"
        assert "operation of a unit failed" not in process.errors.read_text()
        assert process.end() == 0


def classes_are_shared(process: AssignedApply) -> bool:
    """Tell whether Java has the archive of its classes open, where `make test` made one of this Java."""
    if not archive_file().exists():
        return True
    family = psutil.Process(process.popen.pid).children(recursive=True)
    (java,) = (each for each in family if each.name() == "java")
    return any(each.path == str(archive_file()) for each in java.memory_maps())


def assert_each_version_once(scene: Scene) -> None:
    highest: dict[int, int] = {}
    for key, version in scene.query("SELECT id, version FROM history ORDER BY n"):
        assert version > highest.get(key, -1), f"row {key}: {version} behind {highest[key]}"
        highest[key] = version
    assert len(highest) > 20


def applied_by(process: AssignedApply, scene: Scene) -> int:
    """Return how many events the process says that it has applied, once it stands at the topic's end."""
    end = len(scene.topic.written) - 1

    def at_the_end() -> dict[str, Any] | None:
        reported = [line for _, line in process.reported.copy() if line["kind"] == "status"]
        units = [line["units"][scene.topic.name] for line in reported if scene.topic.name in line["units"]]
        unit = units[-1] if units else None
        return unit if unit and unit["offset"] == end else None

    return int(until(at_the_end, what="the figures")["applied"])


def test_a_backlog_does_not_wait_for_a_spark_that_does_not_come(scene: Scene) -> None:
    """More than a takeover applies at once; then stopped while Java still starts: fenced, and nothing is left
    over."""
    versions = itertools.count(1)
    with assigned_apply(scene.config) as process:
        for _ in range(7):
            scene.write(range(10_000), versions)
        give(process, scene)
        until(scene.is_there, what=f"the backlog: {process.log()}", seconds=300)
        assert not spark_is_up(process)
        family = psutil.Process(process.popen.pid).children(recursive=True)
        process.do("remove", scene.unit, UNIT_EPOCH)
        _, ended = process.wait(scene.unit, UNIT_EPOCH, "ended")
        assert ended["error"] is None
        assert process.stop() == 0
        _, alive = psutil.wait_procs(family, timeout=30)
        for left in alive:  # the shell that stands for Java waits for ever
            os.kill(left.pid, 9)


def test_a_process_whose_spark_cannot_be_started_says_so_and_ends(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place_of_java(tmp_path, monkeypatch, NO_JAVA.format(go=scene.go))
    with assigned_apply(scene.config) as process:
        process.do("prepare", scene.unit, UNIT_EPOCH)
        process.wait(scene.unit, UNIT_EPOCH, "prepared")  # the process has it when Spark fails
        scene.go.touch()
        assert process.popen.wait(120) == 5
        assert "Spark cannot be started" in process.errors.read_text()
        until(lambda: process.last(scene.unit), what="what it says of its unit")
        last = process.last(scene.unit)
        assert last is not None
        assert last["event"] == "ended"
