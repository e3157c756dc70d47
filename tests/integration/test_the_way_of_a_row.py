"""docs/explanation/architecture.md is true: a row, followed from commit to commit, passes what the page names, in its order."""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import consumer.spark.task
from consumer.attempt.spec import UnitSpec, build_initial_layout
from consumer.ordering.model import ApplyUnit
from consumer.spark.active_units import write_active_units
from consumer.spark.pipeline import TaskConfig
from consumer.spark.task import run_task
from consumer.tables.router import TableRoute
from consumer.targets.dialect import open_session
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from producer.capture import run_capture
from schemas.config.model import TargetConfig, load_config
from schemas.wire.records import Watermark, format_former_table_topic
from tests.gates.path import measure_way
from tests.gates.ratchet import compare_values, load_baseline
from tests.kits.capture import messages, source, write_config

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
ROWS = 2_000

pytestmark = pytest.mark.integration


def steps(heading: str) -> list[str]:
    """Return "file: function" of every step that the page has under `heading`, in order."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found, f"the page has no heading {heading!r}"
    named = [
        re.findall(r"`([^`]+)`", line)[:2] for line in found[1].splitlines() if re.match(r"\| \d+ \|", line)
    ]
    return [f"{file}: {function}" for file, function in named]


class Tracer:
    """Which functions of the product ended for the first time, in order, in all threads that begin while it watches."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def forget(self) -> None:
        self._seen = {}

    @property
    def order(self) -> list[str]:
        return list(self._seen)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "return" and path.startswith(str(ROOT)):
            self._seen.setdefault(f"{os.path.relpath(path, ROOT)}: {frame.f_code.co_qualname}")


def in_order(named: list[str], seen: list[str]) -> None:
    assert set(named) <= set(seen), f"not passed: {sorted(set(named) - set(seen))}"
    assert named == sorted(named, key=seen.index), "passed in another order"


def test_every_place_that_the_page_names_exists() -> None:
    for heading in ("The way of a row", "The way of a unit"):
        assert len(steps(heading)) > 8
        for step in steps(heading):
            file, _, function = step.partition(": ")
            text, name = (ROOT / file).read_text(), function.rpartition(".")
            assert re.search(rf"\bdef {re.escape(name[2])}\(", text), step
            assert not name[0] or re.search(rf"\bclass {re.escape(name[0])}\b", text), step


def test_a_row_passes_what_the_page_names(
    kafka: Kafka,
    mariadb: MariaDB,
    mariadb_db: str,
    postgres: PostgreSQL,
    pg_db: str,
    unique: str,
    tmp_path: Path,
) -> None:
    named = steps("The way of a row")
    captured, first, second = follow_rows(kafka, mariadb, mariadb_db, postgres, pg_db, tmp_path)
    in_order([step for step in named if step.startswith("producer/")], captured)
    in_order([step for step in named if step.startswith("consumer/")], first)
    assert postgres.execute("SELECT count(*) FROM acct", database=pg_db) == [(ROWS,)]
    way = measure_way([*captured, *second])
    assert compare_values(way, load_baseline(way)) == [], way.figure


def follow_rows(
    kafka: Kafka, mariadb: MariaDB, db: str, postgres: PostgreSQL, target_db: str, folder: Path
) -> tuple[list[str], list[str], list[str]]:
    """Return what `ROWS` rows passed in capture, and in each of two tasks that applied half of them."""
    mariadb.execute(f"CREATE TABLE {db}.acct (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE)")
    captured = captured_order(kafka, mariadb, db, folder)
    topic = format_former_table_topic(db, "s", db, "acct")
    records = [(each.offset(), each.value()) for each in messages(kafka.bootstrap, topic)]
    half = len(records) // 2
    first, second = applied_orders(postgres, target_db, topic, [records[:half], records[half:]], folder)
    return captured, first, second


def captured_order(kafka: Kafka, mariadb: MariaDB, db: str, folder: Path) -> list[str]:
    """Capture a transaction of `ROWS` rows, and return what was passed once the snapshot was over."""
    sources = {"s": source(mariadb, [f"{db}.*"])}
    config = load_config(write_config(folder, kafka.bootstrap, db, sources), {})
    tracer, stop, wrote = Tracer(), threading.Event(), threading.Event()

    def watermark(mark: Watermark) -> None:
        if mark.snapshot_pending or not mark.idle:
            return
        if not wrote.is_set():
            wrote.set()
            tracer.forget()
            mariadb.execute(f"INSERT INTO {db}.acct SELECT seq, seq FROM {db}.seq_1_to_{ROWS}")
        elif mark.events >= ROWS:
            stop.set()

    with tracer.watching():
        run_capture(config, "s", stop, on_watermark=watermark)
    return tracer.order


def applied_orders(
    postgres: PostgreSQL, database: str, topic: str, tasks: list[list[tuple[int, Any]]], folder: Path
) -> list[list[str]]:
    """Apply the records of each task as one worker of Spark's does, and return what was passed in each task."""
    target = TargetConfig(type="postgres", host="127.0.0.1", port=postgres.port, user=postgres.user, password="", database=database)  # type: ignore[arg-type]  # fmt: skip
    unit, routes = ApplyUnit("p", topic), (TableRoute("*.*", "public.{table}", ()),)
    session = open_session(target, name="test")
    session.ensure_bookkeeping()
    epoch, _, _ = session.take_over(unit, "id", build_initial_layout(routes, 4).encode(), 4)
    session.close()
    spec = UnitSpec(unit=unit, source="s", epoch=epoch, topic_id="id", routes=routes, lanes=4)
    board = folder / "board"
    write_active_units(board, {topic: epoch})
    config = TaskConfig(
        run="way", query="q", pipeline="way", target=target, bootstrap="", kafka_options={}, units={topic: spec},
        board=str(board), attempts=str(folder / "attempts"), report_port=1, report_token="",
    )  # fmt: skip
    found = []
    with ended():
        for records in tasks:
            batch = pa.record_batch(
                {
                    "topic": [topic] * len(records),
                    "offset": [at for at, _ in records],
                    "value": [raw for _, raw in records],
                }
            )
            tracer = Tracer()
            with tracer.watching():
                list(run_task(config, [batch]))
            found.append(tracer.order)
    return found


@contextmanager
def ended() -> Iterator[None]:
    """End what `run_task` keeps for the next task of its process, and undo what it sets for the process."""
    interval = sys.getswitchinterval()
    try:
        yield
    finally:
        gc.enable()
        sys.setswitchinterval(interval)
        if worker := consumer.spark.task._WORKERS.pop("way", None):
            worker.close()
