"""The pieces around an attempt: grouping of Arrow batches, reports, supervision, Spark's settings, the
daemon's patches."""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import socket
import sys
import zipfile
import zipimport
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pyspark
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.attempt.reports import (
    MAX_REPORTS,
    LaneFigures,
    Report,
    ReportReceiver,
    ReportSender,
    clear_figures,
)
from consumer.attempt.spec import UnitSpec
from consumer.ordering.model import ApplyUnit
from consumer.reporting.protocol import LineWriter
from consumer.reporting.status_lines import StatusWriter
from consumer.spark import daemon
from consumer.spark.active_units import write_active_units
from consumer.spark.pipeline import TaskConfig
from consumer.spark.query import (
    build_kafka_options,
    build_session_settings,
    parse_slots,
    start_query,
    to_java_options,
)
from consumer.spark.query_handle import end_offsets, find_cause
from consumer.spark.task import group_by_topic
from consumer.spark.worker import QueryWorker
from consumer.units.supervision import WatchedUnit, apply_report
from schemas.config.model import TargetConfig
from schemas.problems import decode_problem
from tests.kits.unit_process import Chain


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=8), st.integers(1, 5))
def test_batches_are_cut_where_the_topic_changes(runs: list[tuple[str, int]], size: int) -> None:
    records = [(topic, number) for topic, count in runs for number in range(count)]
    batches = [
        pa.record_batch(
            {
                "topic": [topic for topic, _ in part],
                "offset": [number for _, number in part],
                "value": [b"%d" % number for _, number in part],
            }
        )
        for part in (records[at : at + size] for at in range(0, len(records), size))
    ]
    groups = [
        (topic, [record for piece in pieces for record in piece]) for topic, pieces in group_by_topic(batches)
    ]
    assert [(topic, offset) for topic, group in groups for offset, _ in group] == records
    assert all(value == b"%d" % offset for _, group in groups for offset, value in group)
    assert all(one[0] != two[0] for one, two in pairwise(groups)), "a topic is one group"


def test_reports_arrive_and_strangers_are_ignored() -> None:
    receiver = ReportReceiver()
    good, bad = ReportSender(receiver.port, receiver.token), ReportSender(receiver.port, "guess")
    bad.send([Report(topic="x", state="ok", epoch=1, offset=1)])
    many = [
        Report(topic=f"t{n}", state="behind", epoch=1, offset=n, message="seen" + "m" * 5000 + ": do it")
        for n in range(MAX_REPORTS + 50)
    ]
    good.send(many)
    got: list[Report] = []
    while len(got) < len(many):
        got += receiver.receive(5)
    assert [report.topic for report in got] == [report.topic for report in many]
    assert all(len(report.message) < 700 for report in got)
    found = [decode_problem(report.message) for report in got]
    assert all(each.what.startswith("seenm") and each.remedy == "do it" for each in found)
    good.close()
    bad.close()
    receiver.close()


def test_reports_of_another_version_are_understood() -> None:
    """A worker of an older version reports nothing of displaced rows; one of a newer version reports more
    than we know."""
    receiver = ReportReceiver()
    known = {"topic": "t", "state": "ok", "epoch": 1, "offset": 5, "held": 3}
    lines = [known, {**known, "displaced": 2}, {**known, "later": [1]}]
    raw = json.dumps({"token": receiver.token, "reports": lines}).encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(raw, ("127.0.0.1", receiver.port))
        got = receiver.receive(5)
    receiver.close()
    assert [(report.held, report.displaced) for report in got] == [(3, 0), (3, 2), (3, 0)]


def test_figures_of_a_last_attempt_are_said_once() -> None:
    last = Report(
        topic="t", state="stopped", epoch=1, offset=5, displaced=2, applied=3, message="why", query="q-1"
    )
    again = clear_figures(last)
    assert (again.state, again.message, again.query, again.offset) == ("stopped", "why", "q-1", 5)
    assert (again.displaced, again.applied) == (0, 0)
    assert last.displaced == 2


def _report(**facts: Any) -> dict[str, Any]:
    usual = {
        "state": "ok",
        "offset": 5,
        "applied": 2,
        "dropped": 1,
        "held": 0,
        "displaced": 2,
        "commit_ts_ms": 7,
        "message": "",
        "lanes": LaneFigures(upserted=2, lock_chain=3),
    }
    return {**usual, **facts}


def test_figures_add_up_and_a_stopped_unit_stays_stopped() -> None:
    unit = apply_report(apply_report(WatchedUnit(offset=-1), **_report()), **_report(offset=9))
    assert (unit.offset, unit.applied, unit.dropped, unit.displaced) == (9, 4, 2, 4)
    assert unit.lanes == LaneFigures(upserted=4, lock_chain=3)
    stopped = apply_report(unit, **_report(state="stopped", message="why"))
    assert (apply_report(stopped, **_report()).state, apply_report(stopped, **_report()).message) == (
        "stopped",
        "why",
    )
    assert apply_report(unit, **_report(state="behind")).state == "behind"


def test_a_unit_that_was_given_up_says_its_figures_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later batch gets the last attempt's report again: the apply process would add the same rows each
    time."""
    spec = UnitSpec(unit=ApplyUnit("p", "t"), source="s", epoch=0, topic_id="id", routes=(), lanes=1)
    config = _task_config(
        units={"t": spec}, board=str(tmp_path / "board"), attempts=str(tmp_path / "attempts")
    )
    write_active_units(tmp_path / "board", {"t": 7})
    attempt = Report("t", "stopped", 7, 5, applied=3, displaced=2, message="why")
    monkeypatch.setattr("consumer.spark.worker.apply_topic", lambda *_, **__: attempt)
    worker = QueryWorker(config)
    first, second = worker.apply_slices(config, "t", []), worker.apply_slices(config, "t", [])
    worker.close()
    assert first is not None
    assert second is not None
    assert (first.displaced, first.applied) == (2, 3)
    assert (second.displaced, second.applied) == (0, 0)
    assert (
        (second.state, second.message, second.query)
        == ("stopped", "why", "q")
        == (first.state, first.message, first.query)
    )


def test_status_lines_are_written_once_and_survive_a_reader_that_is_gone() -> None:
    out = io.StringIO()
    writer = StatusWriter("p", LineWriter(out))
    units = {"t": WatchedUnit(offset=3, applied=4, displaced=2)}
    writer.write_changes(0.0, "running", units)
    writer.write_changes(5.0, "running", units)
    (line,) = [json.loads(text) for text in out.getvalue().splitlines()]
    assert (line["kind"], line["units"]["t"]["offset"], line["applied"]) == ("status", 3, 4)
    assert line["units"]["t"]["displaced"] == 2

    class ClosedReader(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    writer = StatusWriter("p", LineWriter(ClosedReader()))
    writer.write_problem("a", "b")
    writer.write_problem("a", "b")


@pytest.mark.parametrize(("master", "slots"), [("local[2,4]", 2), ("local[8,3]", 8), ("spark://h:7077", 2)])
def test_slots_of_a_master(master: str, slots: int) -> None:
    assert parse_slots(master) == slots


@pytest.mark.parametrize("master", ["local", "local[4]", "local[4,1]"])
def test_a_master_that_one_dead_worker_ends_is_refused(master: str) -> None:
    with pytest.raises(ValueError, match="dead Python worker"):
        parse_slots(master)


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
def test_options_that_split_a_topic_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        build_kafka_options("b:1", {"t": 0}, {}, {name: "2"})


def test_the_source_reads_from_the_progress() -> None:
    options = build_kafka_options("b:1", {"t": 5, "w": -1}, {}, {})
    assert json.loads(options["assign"]) == {"t": [0], "w": [0]}
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 5}, "w": {"0": -1}}


def test_librdkafka_security_becomes_javas() -> None:
    java = to_java_options(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "u",
            "sasl.password": 'p"q',
            "ssl.ca.location": "/ca.pem",
            "linger.ms": "5",
        }
    )
    assert java["security.protocol"] == "SASL_SSL"
    assert 'ScramLoginModule required username="u" password="p\\"q";' in java["sasl.jaas.config"]
    assert java["ssl.truststore.location"] == "/ca.pem"
    assert "linger.ms" not in java


def test_jars_are_given_or_fetched() -> None:
    common: dict[str, Any] = {"master": "local[2,4]", "memory": "1g", "local_dir": "/d", "log4j": None}
    assert build_session_settings(jars="a.jar", **common)["spark.jars"] == "a.jar"
    assert "spark-sql-kafka" in build_session_settings(jars=None, **common)["spark.jars.packages"]


def test_the_daemon_is_ours_unless_another_is_asked_for() -> None:
    common: dict[str, Any] = {
        "master": "local[2,4]",
        "memory": "1g",
        "local_dir": "/d",
        "log4j": None,
        "jars": "a.jar",
    }
    ours, stock = build_session_settings(**common), build_session_settings(daemon="pyspark.daemon", **common)
    assert ours["spark.python.daemon.module"] == daemon.__name__
    assert stock == ours | {"spark.python.daemon.module": "pyspark.daemon"}, "and nothing else"


def _task_config(**facts: Any) -> TaskConfig:
    target = TargetConfig(type="postgres", host="h", port=1, user="u", password="secret7", database="d")  # type: ignore[arg-type]
    usual: dict[str, Any] = {
        "run": "r",
        "query": "q",
        "pipeline": "p",
        "target": target,
        "bootstrap": "b",
        "kafka_options": {"sasl.password": "secret8"},
        "units": {},
        "board": "/d",
        "attempts": "/a",
        "report_port": 1,
        "report_token": "secret9",
    }
    return TaskConfig(**{**usual, **facts})


def test_what_workers_get_is_pickled_whole_and_printed_without_secrets() -> None:
    config = _task_config()
    again = pickle.loads(pickle.dumps(config))
    assert again.target.password.get_secret_value() == "secret7"
    assert "secret" not in repr(config)


def test_a_query_has_a_task_a_slot_and_no_shuffle(tmp_path: Path) -> None:
    session, old = Chain(), tmp_path / "checkpoints" / "old"
    old.mkdir(parents=True)
    task = object()
    start_query(session, name="q", options={"assign": "{}"}, task=task, slots=3, checkpoints=old.parent)  # type: ignore[arg-type]
    calls = session.calls
    names = [name for name, _ in calls]
    assert ("coalesce", (3,)) in calls, "a task a topic instead: 200 topics take 200 starts of a task"
    assert names.index("coalesce") < names.index("mapInArrow") < names.index("start")
    assert not {"repartition", "groupBy", "repartitionByRange"} & set(names), "they would mix the topics"
    assert ("mapInArrow", (task, "applied long")) in calls
    assert [arguments for name, arguments in calls if name == "format"] == [("kafka",), ("noop",)]
    options = dict(arguments for name, arguments in calls if name == "option")
    assert options["asyncProgressTrackingEnabled"] == "true"
    assert Path(options["checkpointLocation"]).parent == old.parent
    assert not old.exists(), "the truth is in the target"


def test_the_end_of_a_batch_is_read_in_both_forms() -> None:
    assert end_offsets(['{"t": {"0": 4}, "u": {"0": 7}}', None]) == {"t": 4, "u": 7}
    assert end_offsets([]) == {}


def test_the_cause_is_the_last_error_of_a_trace() -> None:
    trace = [
        "org.x.SparkException: Job aborted",
        "\tat a.b(C.scala)",
        "Caused by: java.io.IOException: gone",
        "... 3 more",
    ]
    assert find_cause(trace) == "Caused by: java.io.IOException: gone"


def test_the_daemon_patches_only_the_version_it_knows() -> None:
    stock = object()
    other = SimpleNamespace(worker_main=stock)
    assert not daemon.patch_daemon(other, "4.0.1")
    assert other.worker_main is stock
    assert not daemon.patch_daemon(SimpleNamespace(), "4.0.0")


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PySpark's own daemon; what `patch` changes in it and in zipimport is put back after the test."""
    from pyspark import daemon as pysparks

    monkeypatch.setattr(pysparks, "worker_main", pysparks.worker_main)
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", zipimport.zipimporter.invalidate_caches)
    return pysparks


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
def test_the_daemon_patches_the_pyspark_that_is_installed(stock: Any) -> None:
    before = stock.worker_main
    assert "worker_main" in stock.worker.__code__.co_names, (
        "a worker calls what the module has under this name"
    )
    assert daemon.patch_daemon(stock, pyspark.__version__)
    assert stock.worker_main is not before


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
def test_a_task_no_longer_reads_the_zips_anew(stock: Any, tmp_path: Path) -> None:
    def sees_what_was_added(name: str) -> bool:
        path = tmp_path / name
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("first.py", "x = 1")
        importer = sys.path_importer_cache[str(path)] = zipimport.zipimporter(str(path))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("added.py", "x = 2")
        importlib.invalidate_caches()  # as pyspark.worker_util does for every task
        del sys.path_importer_cache[str(path)]
        assert importer.find_spec("first") is not None
        return importer.find_spec("added") is not None

    assert sees_what_was_added("stock.zip"), "the stock importer reads it again"
    assert daemon.patch_daemon(stock, daemon.PATCHED_VERSION)
    assert not sees_what_was_added("ours.zip")


class RecordingSocket(socket.socket):
    """Notes the options that are set."""

    options: ClassVar[list[tuple[Any, ...]]] = []

    def setsockopt(self, *option: Any) -> None:
        self.options.append(option)
        super().setsockopt(*option)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
def test_a_patched_worker_asks_for_quick_acks_after_every_read(
    stock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[tuple[bytes, Any]] = []

    def worker_main(infile: Any, outfile: Any) -> str:
        for _ in range(3):
            took.append((infile.read(4), outfile))
            sender.sendall(b"next")
        return "ended"

    stock.worker_main = worker_main
    assert daemon.patch_daemon(stock, daemon.PATCHED_VERSION)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    monkeypatch.setattr(socket, "socket", RecordingSocket)
    monkeypatch.setattr(RecordingSocket, "options", [])
    sender.sendall(b"next")
    # As pyspark.daemon.worker makes the files of a worker.
    with (
        sender,
        receiver,
        os.fdopen(os.dup(receiver.fileno()), "rb", 65536) as infile,
        os.fdopen(os.dup(receiver.fileno()), "wb", 65536) as outfile,
    ):
        assert stock.worker_main(infile, outfile) == "ended"
    assert took == [(b"next", outfile)] * 3
    assert RecordingSocket.options == [(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)] * 3


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
def test_quick_ack_reads_what_was_sent() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()
    raw = receiver.makefile("rb", buffering=0)
    reader = io.BufferedReader(daemon.QuickAckReader(raw), 65536)
    sender.sendall(b"x" * 200_000)
    sender.close()
    assert reader.read() == b"x" * 200_000
    reader.close()
    raw.close()
    receiver.close()
    listener.close()
