"""The pieces around an attempt: grouping of Arrow batches, reports, supervision, Spark's settings, the daemon's patches."""

from __future__ import annotations

import io
import json
import pickle
import socket
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer import daemon
from consumer.query import java_options, kafka_options, session_settings, slots_of
from consumer.reports import MAX_REPORTS, Report, ReportReceiver, ReportSender
from consumer.running import cause, end_offsets
from consumer.status import StatusWriter
from consumer.supervision import LONGEST_PAUSE_S, QUIET_S, Backoff, Watched, left_behind, reported, troubled
from consumer.task import by_topic
from consumer.worker import TaskConfig
from schemas.config import TargetConfig


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
        (topic, [record for piece in pieces for record in piece]) for topic, pieces in by_topic(batches)
    ]
    assert [(topic, offset) for topic, group in groups for offset, _ in group] == records
    assert all(value == b"%d" % offset for _, group in groups for offset, value in group)
    assert all(one[0] != two[0] for one, two in pairwise(groups)), "a topic is one group"


def test_reports_arrive_and_strangers_are_ignored() -> None:
    receiver = ReportReceiver()
    good, bad = ReportSender(receiver.port, receiver.token), ReportSender(receiver.port, "guess")
    bad.send([Report(topic="x", state="ok", epoch=1, offset=1)])
    many = [
        Report(topic=f"t{n}", state="behind", epoch=1, offset=n, message="m" * 5000)
        for n in range(MAX_REPORTS + 50)
    ]
    good.send(many)
    got: list[Report] = []
    while len(got) < len(many):
        got += receiver.receive(5)
    assert [report.topic for report in got] == [report.topic for report in many]
    assert all(len(report.message) < 400 for report in got)
    good.close()
    bad.close()
    receiver.close()


def test_backoff_doubles_up_to_a_limit_and_starts_again_after_quiet() -> None:
    backoff, now, pauses = Backoff(), 0.0, []
    for _ in range(8):
        backoff = backoff.after_trouble(now)
        pauses.append(backoff.pause)
        assert not backoff.due(now)
        now = backoff.next_at
        assert backoff.due(now)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 20, LONGEST_PAUSE_S]
    assert backoff.after_trouble(now + QUIET_S + 1).pause == 0.5


def _report(**facts: Any) -> dict[str, Any]:
    usual = {
        "state": "ok",
        "offset": 5,
        "applied": 2,
        "dropped": 1,
        "held": 0,
        "commit_ts_ms": 7,
        "message": "",
    }
    return {**usual, **facts}


def test_figures_add_up_and_a_stopped_unit_stays_stopped() -> None:
    unit = reported(reported(Watched(offset=-1), **_report()), **_report(offset=9))
    assert (unit.offset, unit.applied, unit.dropped) == (9, 4, 2)
    stopped = reported(unit, **_report(state="stopped", message="why"))
    assert reported(stopped, **_report()).message == "why"
    units = {"a": unit, "b": reported(unit, **_report(state="behind")), "c": stopped}
    assert troubled(units) == ["b"]
    assert left_behind(units, {"a": 11, "c": 100, "unknown": 5}) == ["a"]
    assert left_behind(units, {"a": 10}) == []


def test_status_lines_are_written_once_and_survive_a_reader_that_is_gone() -> None:
    out = io.StringIO()
    writer = StatusWriter("p", out)
    units = {"t": Watched(offset=3, applied=4)}
    writer.tick(0.0, "running", units)
    writer.tick(5.0, "running", units)
    (line,) = [json.loads(text) for text in out.getvalue().splitlines()]
    assert (line["kind"], line["units"]["t"]["offset"], line["applied"]) == ("status", 3, 4)

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    writer = StatusWriter("p", Gone())
    writer.problem("a", "b")
    writer.problem("a", "b")


@pytest.mark.parametrize(("master", "slots"), [("local[2,4]", 2), ("local[8,3]", 8), ("spark://h:7077", 2)])
def test_slots_of_a_master(master: str, slots: int) -> None:
    assert slots_of(master) == slots


@pytest.mark.parametrize("master", ["local", "local[4]", "local[4,1]"])
def test_a_master_that_one_dead_worker_ends_is_refused(master: str) -> None:
    with pytest.raises(ValueError, match="dead Python worker"):
        slots_of(master)


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition"])
def test_options_that_split_a_topic_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        kafka_options("b:1", {"t": 0}, {}, {name: "2"})


def test_the_source_reads_from_the_progress() -> None:
    options = kafka_options("b:1", {"t": 5, "w": -1}, {}, {})
    assert json.loads(options["assign"]) == {"t": [0], "w": [0]}
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 5}, "w": {"0": -1}}


def test_librdkafka_security_becomes_javas() -> None:
    java = java_options(
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
    assert session_settings(jars="a.jar", **common)["spark.jars"] == "a.jar"
    assert "spark-sql-kafka" in session_settings(jars=None, **common)["spark.jars.packages"]


def test_what_workers_get_is_pickled_whole_and_printed_without_secrets() -> None:
    target = TargetConfig(type="postgres", host="h", port=1, user="u", password="secret7", database="d")  # type: ignore[arg-type]
    config = TaskConfig(
        run="r",
        query="q",
        pipeline="p",
        target=target,
        bootstrap="b",
        kafka_options={"sasl.password": "secret8"},
        units={},
        board="/d",
        attempts="/a",
        report_port=1,
        report_token="secret9",
    )
    again = pickle.loads(pickle.dumps(config))
    assert again.target.password.get_secret_value() == "secret7"
    assert "secret" not in repr(config)


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
    assert cause(trace) == "Caused by: java.io.IOException: gone"


def test_the_daemon_patches_only_the_version_it_knows() -> None:
    stock = object()
    other = SimpleNamespace(worker_main=stock)
    assert not daemon.patch(other, "4.0.1")
    assert other.worker_main is stock
    assert not daemon.patch(SimpleNamespace(), "4.0.0")


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
