"""Spark starts beside the work: who is told when, what is loaded before, and what hands do meanwhile."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from consumer.attempt.reports import Report
from consumer.errors import TransientError, UnitStoppedError
from consumer.process import instructions
from consumer.process import spark_beside as module
from consumer.process.instructions import NO_SPARK, ApplyProcess
from consumer.process.pipeline_queries import PipelineQueries
from consumer.process.spark_beside import SparkStarter
from consumer.process.unit_operations import UnitOperations
from consumer.reporting.protocol import LineWriter
from consumer.units.messages import ApplyRange, OperationFailed, RangeApplied, StartQuery
from consumer.units.progress_checks import MAX_LIVE_BACKLOG
from consumer.units.unit import QueryKind, UnitRef
from tests.kits.apply import ROOT
from tests.kits.hands import operations

#: Process → what it must not load before it has begun: each costs the first seconds of a start.
LATER = {
    "consumer.main": ("pyspark", "pyarrow", "numpy", "sqlalchemy", "grpc", "fastapi", "httpx"),
    "rowlock.agent.run": (
        "pyspark",
        "pyarrow",
        "sqlalchemy",
        "confluent_kafka",
        "fastapi",
        "httpx",
        "pymysql",
    ),
    "rowlock.coordinator.run": ("pyspark", "pyarrow", "sqlalchemy", "fastapi", "httpx", "pymysql", "psycopg"),
    "producer.main": ("pyspark", "pyarrow", "sqlalchemy", "grpc", "fastapi", "httpx"),
    "rowlock.processes.run": (
        "pyspark",
        "pyarrow",
        "sqlalchemy",
        "grpc",
        "fastapi",
        "httpx",
        "confluent_kafka",
    ),
}


@pytest.mark.parametrize("name", LATER)
def test_a_process_does_not_load_what_its_first_seconds_do_not_need(name: str) -> None:
    code = f"import sys, {name}; print(' '.join(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(LATER[name]) & set(found.stdout.split())


class Session:
    """A Spark that is up."""

    java = None

    def __init__(self) -> None:
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1


@contextmanager
def starting(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[Any], Any]
) -> Iterator[tuple[SparkStarter, list[str]]]:
    reported: list[str] = []
    fake = SimpleNamespace(start_spark=start)
    monkeypatch.setitem(sys.modules, "consumer.process.spark_session", cast(Any, fake))
    beside = SparkStarter(
        cast(Any, None),
        on_up=lambda _spark, seconds: reported.append("up" if seconds >= 0 else "?"),
        on_slow=lambda _seconds: reported.append("slow"),
        on_failure=lambda: reported.append("failure"),
    )
    beside.start()
    yield beside, reported
    beside._thread.join(5)
    assert not beside._thread.is_alive()


def test_who_started_it_is_told_when_it_is_up_and_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Session()
    with starting(monkeypatch, lambda _config: spark) as (beside, reported):
        beside._thread.join(5)
        beside.stop()
    assert (reported, spark.stopped) == (["up"], 1)


def test_a_spark_that_cannot_be_started_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_config: Any) -> Any:
        raise RuntimeError("no Java")

    with starting(monkeypatch, start) as (beside, reported):
        beside._thread.join(5)
        beside.stop()
    assert reported == ["failure"]


def test_a_spark_that_takes_long_is_said_to_and_is_not_waited_for_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SPARK_SLOW_S", 0.01)
    monkeypatch.setattr(module, "SPARK_END_S", 0.01)
    go, slow, spark = threading.Event(), threading.Event(), Session()

    def start(_config: Any) -> Any:
        assert go.wait(5)
        return spark

    with starting(monkeypatch, start) as (beside, reported):
        beside._on_slow = lambda _seconds: slow.set()
        assert slow.wait(5)
        beside.stop()
        assert spark.stopped == 0
        go.set()
    assert reported[-1] == "up"


@pytest.mark.parametrize("spark_first", [True, False])
def test_a_shell_gets_spark_whichever_comes_first(monkeypatch: pytest.MonkeyPatch, spark_first: bool) -> None:
    given: list[Any] = []
    shell = SimpleNamespace(provide_spark=given.append, start=lambda: None)
    monkeypatch.setattr(instructions, "PipelineShell", lambda *_: shell)
    monkeypatch.setattr(instructions, "PipelineSettings", SimpleNamespace(from_config=lambda *_: None))
    monkeypatch.setattr(instructions, "end_with_java", lambda *_: None)
    config = SimpleNamespace(sources={}, kafka=SimpleNamespace(prefix="p", bootstrap="b", options={}))
    out = io.StringIO()
    process = ApplyProcess(cast(Any, config), 2, LineWriter(out))
    spark = SimpleNamespace(java=None, warm_up=lambda *_, **__: True)
    steps: list[Callable[[], Any]] = [
        lambda: process._provide_spark(cast(Any, spark), 1.25, threading.Event()),
        lambda: process._shells.assign_shell("apply/p/t", "p"),
    ]
    for step in steps if spark_first else reversed(steps):
        step()
    assert given == [spark]
    assert out.getvalue() == '{"kind": "ready", "seconds": 1.25}\n'


def test_a_process_whose_spark_cannot_be_started_ends_with_a_code_of_its_own() -> None:
    config = SimpleNamespace(sources={}, kafka=SimpleNamespace(prefix="p", bootstrap="b", options={}))
    process, stop = ApplyProcess(cast(Any, config), 2, LineWriter(io.StringIO())), threading.Event()
    process._request_end(stop, NO_SPARK)
    assert stop.is_set()
    assert process._code == NO_SPARK != 0


# -- hands


def hand(monkeypatch: pytest.MonkeyPatch, end: int, apply: Callable[..., Report]) -> UnitOperations:
    pipeline = cast(Any, SimpleNamespace(debezium={}, bootstrap="", kafka_options={}))

    @contextmanager
    def free() -> Iterator[Any]:
        yield SimpleNamespace(drop=lambda _: None)

    made = operations(pipeline, free, SimpleNamespace(fetch_bounds=lambda _: {"a": (0, end)}))
    monkeypatch.setattr(
        made._stretches, "build_spec", lambda _unit, epoch, _was=None: SimpleNamespace(epoch=epoch)
    )
    monkeypatch.setattr(made._stretches, "_apply_records", apply)
    return made


ABOUT = UnitRef("a", "s", 1)


def test_a_hand_applies_one_stretch_of_what_came_and_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int, int]] = []

    def apply(spec: Any, _sessions: Any, start: int, end: int, _sweep_s: float) -> Report:
        asked.append((spec.epoch, start, end))
        return Report("a", "ok", spec.epoch, end - 1, applied=end - start)

    follow = ApplyRange(ABOUT, 7, 9)
    done = hand(monkeypatch, 10 + MAX_LIVE_BACKLOG + 3, apply).apply_range(follow)
    assert isinstance(done, RangeApplied)
    assert asked == [(7, 10, 10 + MAX_LIVE_BACKLOG)]
    assert (done.report and done.report.applied, done.left) == (MAX_LIVE_BACKLOG, 3)
    assert hand(monkeypatch, 10, apply).apply_range(follow) == RangeApplied("a", 1), "nothing has come"
    aborted = hand(monkeypatch, 12, apply)
    aborted.abort_operation("a", 1)
    assert aborted.apply_range(follow) == RangeApplied("a", 1), "of no use any more"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("report", "again", "waits"),
    [
        (Report("a", "fenced", 7, 9, message="no"), True, False),
        (Report("a", "behind", 7, 9, message="no"), True, False),
        (Report("a", "stopped", 7, 9, message="no"), False, True),
        (Report("a", "ok", 7, 9), True, False),
    ],
)
def test_a_hand_that_meets_trouble_says_so_with_the_epoch(
    monkeypatch: pytest.MonkeyPatch, report: Report, again: bool, waits: bool
) -> None:
    """ "ok" without a step forward as well: else it would be asked for ever, and nobody would know."""
    failed = hand(monkeypatch, 12, lambda *_: report).apply_range(ApplyRange(ABOUT, 7, 9))
    assert isinstance(failed, OperationFailed)
    assert (failed.should_retry, failed.waits, failed.epoch) == (again, waits, 7)


def test_a_stop_that_a_hand_finds_is_recorded_and_an_outage_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[str] = []
    monkeypatch.setattr(
        "consumer.process.unit_operations.stop_topic", lambda _spec, _sessions, why: recorded.append(why)
    )

    def raising(error: Exception) -> Callable[..., Report]:
        def apply(*_: Any) -> Report:
            raise error

        return apply

    failed = hand(monkeypatch, 12, raising(UnitStoppedError("retention"))).apply_range(
        ApplyRange(ABOUT, 7, 9)
    )
    assert isinstance(failed, OperationFailed)
    assert (failed.waits, failed.epoch, recorded) == (True, 7, ["retention"])
    failed = hand(monkeypatch, 12, raising(TransientError("target down"))).apply_range(
        ApplyRange(ABOUT, 7, 9)
    )
    assert isinstance(failed, OperationFailed)
    assert (failed.should_retry, failed.epoch, recorded) == (True, 7, ["retention"])


# -- queries


def resolved(starting: dict[str, int], bounds: dict[str, tuple[int, int]]) -> dict[str, int]:
    queries = object.__new__(PipelineQueries)
    queries._bounds = lambda _topics: bounds
    return queries._resolve_offsets(StartQuery(1, QueryKind.LIVE, starting, []))


def test_a_query_has_something_to_read_first_else_its_slow_first_batch_meets_a_row() -> None:
    assert resolved({"a": 100, "b": -1}, {"a": (0, 100), "b": (0, 50)}) == {"a": 100, "b": 49}
    assert resolved({"a": 100}, {"a": (0, 100)}) == {"a": 99}, (
        "all is applied: one is read again, and dropped"
    )
    assert resolved({"a": 90}, {"a": (0, 100)}) == {"a": 90}
    assert resolved({"a": 100, "b": -1}, {"a": (100, 100)}) == {"a": 100}, "nothing is there; b is gone"
