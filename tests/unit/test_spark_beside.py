"""Spark starts beside the work: who receives it when, and what is loaded before."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from consumer.process import spark_beside as module
from consumer.process.instructions import NO_SPARK, ApplyProcess
from consumer.process.spark_beside import SparkStarter
from consumer.reporting.protocol import LineWriter
from schemas.config.spark import SparkConfig
from tests.kits.apply import ROOT

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


def test_the_start_of_spark_is_a_line_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line about its end is the agent's. Off a terminal there was none for nine seconds before it."""
    with capture_logs() as logs, starting(monkeypatch, lambda _config: Session()) as (beside, _):
        beside._thread.join(5)
    (line,) = logs
    assert (line["event"], line["log_level"], line["usually_s"]) == ("Spark starts", "info", "6 to 20")
    assert line["meanwhile"] == "the apply process applies rows itself"


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
        with capture_logs() as logs:
            beside.stop()
        levels = {line["event"]: line["log_level"] for line in logs}
        assert levels["process ends while Spark starts"] == "info", "a short run ends so"
        assert spark.stopped == 0
        go.set()
    assert reported[-1] == "up"


def test_a_process_whose_spark_cannot_be_started_ends_with_a_code_of_its_own() -> None:
    config = SimpleNamespace(sources={}, kafka=SimpleNamespace(prefix="p", bootstrap="b", options={}))
    process, stop = ApplyProcess(cast(Any, config), LineWriter(io.StringIO())), threading.Event()
    process._request_end(stop, NO_SPARK)
    assert stop.is_set()
    assert process._code == NO_SPARK != 0


def test_slots_that_cannot_begin_end_the_process_as_spark_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").touch()
    monkeypatch.setattr("consumer.process.instructions.end_with_java", lambda *_: None)
    monkeypatch.setattr("os._exit", lambda code: pytest.fail(f"the process ends at once with {code}"))
    spark = SparkConfig(master="spark://m:7077", executor_token_file=tmp_path / "token")
    config = SimpleNamespace(
        sources={}, kafka=SimpleNamespace(prefix="p", bootstrap="b", options={}), spark=spark,
        state_dir=tmp_path,
    )  # fmt: skip
    process, stop = ApplyProcess(cast(Any, config), LineWriter(io.StringIO())), threading.Event()
    with capture_logs() as logs:
        process._provide_spark(cast(Any, Session()), 1.0, stop)
    (line,) = [line for line in logs if line["log_level"] == "critical"]
    assert line["event"] == "Spark cannot be started, and this process ends"
    assert f"{tmp_path / 'token'} has 0 characters" in line["error"]
    assert "openssl rand" in line["remedy"]
    assert stop.is_set()
    assert process._code == NO_SPARK


# -- queries
