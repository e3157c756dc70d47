"""The pieces around an attempt: supervision, status lines, and Spark's settings."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import pytest

from consumer.attempt.reports import LaneFigures, Report
from consumer.process.spark_session import Spark
from consumer.reporting.protocol import LineWriter
from consumer.reporting.status_lines import StatusWriter
from consumer.spark import daemon
from consumer.spark.query import build_session_settings, count_slots, find_cause
from consumer.units.supervision import WatchedUnit, apply_report
from schemas.config.spark import SparkConfig


def _report(**facts: Any) -> Report:
    usual = {
        "topic": "t",
        "state": "ok",
        "epoch": 1,
        "offset": 5,
        "applied": 2,
        "dropped": 1,
        "displaced": 2,
        "commit_ts_ms": 7,
        "lanes": LaneFigures(upserted=2, lock_chain=3),
    }
    return Report(**{**usual, **facts})


def test_figures_add_up_and_a_stopped_unit_stays_stopped() -> None:
    unit = apply_report(apply_report(WatchedUnit(offset=-1), _report()), _report(offset=9))
    assert (unit.offset, unit.applied, unit.dropped, unit.displaced) == (9, 4, 2, 4)
    assert unit.lanes == LaneFigures(upserted=4, lock_chain=3)
    stopped = apply_report(unit, _report(state="stopped", message="why"))
    assert (apply_report(stopped, _report()).state, apply_report(stopped, _report()).message) == (
        "stopped",
        "why",
    )
    assert apply_report(unit, _report(state="behind")).state == "behind"
    lagging = apply_report(unit, _report(left=8))
    assert (unit.left, lagging.left, apply_report(lagging, _report()).left) == (None, 8, 8)


def test_status_lines_are_written_once_and_survive_a_reader_that_is_gone() -> None:
    out = io.StringIO()
    writer = StatusWriter("p", LineWriter(out))
    units = {"t": WatchedUnit(offset=3, applied=4, displaced=2)}
    writer.write_changes(0.0, units)
    writer.write_changes(5.0, units)
    (line,) = [json.loads(text) for text in out.getvalue().splitlines()]
    assert (line["kind"], line["pipeline"], line["units"]["t"]["offset"]) == ("status", "p", 3)
    assert (line["units"]["t"]["applied"], line["units"]["t"]["displaced"]) == (4, 2)
    assert "left" not in line["units"]["t"]
    writer = StatusWriter("p", LineWriter(out), lambda topic, unit: unit.offset + len(topic))
    writer.write_changes(10.0, units)
    assert json.loads(out.getvalue().splitlines()[-1])["units"]["t"]["left"] == 4

    class ClosedReader(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    writer = StatusWriter("p", LineWriter(ClosedReader()))
    writer.write_problem("a", "b")
    writer.write_problem("a", "b")


@pytest.mark.parametrize(("master", "slots"), [("local[2,4]", 2), ("local[8,3]", 8), ("spark://h:7077", 5)])
def test_slots_of_a_master(master: str, slots: int) -> None:
    assert count_slots(SparkConfig(master=master, slots=5)) == slots


def test_the_daemon_is_ours_unless_another_is_asked_for() -> None:
    common: dict[str, Any] = {
        "master": "local[2,4]",
        "memory": "1g",
        "local_dir": "/d",
        "log4j": None,
    }
    ours, stock = build_session_settings(**common), build_session_settings(daemon="pyspark.daemon", **common)
    assert ours["spark.python.daemon.module"] == daemon.__name__
    assert stock == ours | {"spark.python.daemon.module": "pyspark.daemon"}, "and nothing else"


def test_java_keeps_temporary_files_in_the_folder_of_its_process(tmp_path: Path) -> None:
    """A folder spark-<uuid> remained in /tmp after each run, because Java is killed at its end."""
    settings = build_session_settings(
        master="local[2,4]", memory="1g", local_dir=str(tmp_path / "spark"), log4j=None
    )
    options = settings["spark.driver.extraJavaOptions"].split()
    assert f"-Djava.io.tmpdir={tmp_path.resolve()}" in options, "it exists, unlike spark.local.dir"


def test_the_scheduler_of_spark_is_silent_from_its_stop_on_and_not_before() -> None:
    """A task that ends while Spark stops was logged as a RejectedExecutionException."""
    session = MagicMock()
    spark = Spark(session)
    assert not session._jvm.mock_calls
    spark.stop()
    log4j = session._jvm.org.apache.logging.log4j
    silence = call._jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(
        "org.apache.spark.scheduler", log4j.Level.OFF
    )
    assert session.mock_calls == [silence, call.stop()]


def test_the_cause_is_the_last_error_of_a_trace() -> None:
    trace = [
        "org.x.SparkException: Job aborted",
        "\tat a.b(C.scala)",
        "Caused by: java.io.IOException: gone",
        "... 3 more",
    ]
    assert find_cause(trace) == "Caused by: java.io.IOException: gone"


def test_the_cause_that_a_slot_gives_is_its_sentence_alone() -> None:
    trace = [
        "x.PythonException: Traceback (most recent call last):",
        "RuntimeError: the executor on h is …",
        "",
    ]
    assert find_cause(trace) == "the executor on h is …"


def test_the_cause_of_a_missing_rowlock_names_the_host_and_what_to_do() -> None:
    trace = [
        "Job aborted: Lost task 0.0 in stage 0.0 (TID 0) (10.77.4.2 executor 1): x.SparkException: ",
        "Error from python worker:",
        "  /usr/bin/python3: Error while finding 'consumer.spark.daemon' (… No module named 'consumer')",
        "org.apache.spark.SparkException: EOFException occurred while reading the port number",
    ]
    cause = find_cause(trace)
    assert cause.startswith("rowlock is not installed for the Python of the executor on 10.77.4.2: ")
    assert "rowlock spark package" in cause


def test_the_cause_of_a_lost_executor_is_the_reason_for_its_loss() -> None:
    reason = "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: lost: x"
    trace = [
        f"Job aborted due to stage failure: Lost task 0.0 (TID 0) (10.77.4.2 executor 1): {reason}",
        "Driver stacktrace:",
        "=== Streaming Query ===",
        "+- ~StreamingDataSourceV2ScanRelation[timestamp#5, value#6L] RatePerMicroBatch(rowsPerBatch=1)",
    ]
    assert find_cause(trace) == reason
