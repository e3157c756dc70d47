"""`GET /metrics`: what coordinators and agents report, as Prometheus reads it; its page, and the alerts."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import structlog
import yaml
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from consumer.attempt.durations import Durations
from consumer.attempt.reports import LaneFigures
from coordinator.core.agent_unit import AgentUnit
from coordinator.rest import RestServer, create_app
from coordinator.rest import metrics as coordinator_metrics
from coordinator.rest.exposition import (
    Histogram,
    MetricDefinition,
    MetricValue,
    build_registry,
    create_metrics_app,
)
from coordinator.rest.metrics import CoordinatorNumbers
from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.api import LeaderView, NoAnswerError
from rowlock.agent import metrics as agent_metrics
from rowlock.agent.apply import ApplyWorker
from rowlock.agent.metric_definitions import AGENT_METRICS
from rowlock.agent.metrics import AgentNumbers, MetricsServer
from rowlock.agent.reported import ReportedFigures
from rowlock.agent.retention import Kept
from rowlock.agent.unit_ledger import UnitLedger
from rowlock.commands.verify_metrics import VERIFY_METRICS
from rowlock.errors import CommandError
from schemas.config.model import Config, load_config
from schemas.units import UnitPhase, UnitProgress
from tests.promtool import REQUIRE, run_promtool
from tests.servers.certificates import Authority
from tests.stands.fake_control import FakeControl, FakeDesk, agent, unit
from tools.docs.metrics import render

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "rowlock.b1.bank.acct"
UNIT = f"apply/p/{TOPIC}"
NOW = 1_800_000_000.0
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""(name, labels in order) → number."""


def scrape(registry: CollectorRegistry) -> Values:
    """Return what a scrape of the registry yields, without the process' own metrics; each value once."""
    found: Values = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} twice"
            assert family.type != "counter" or sample.value >= 0, f"{key} is a counter below 0"
            if not sample.name.startswith("process_"):
                found[key] = sample.value
    return found


def one(values: Values, name: str, **labels: str) -> float:
    return values[name, tuple(sorted(labels.items()))]


def names(values: Values) -> set[str]:
    """Return the names of the metrics; a histogram has several series."""
    return {re.sub(rf"_({'|'.join(_SERIES)})$", "", name) for name, _ in values}


# the coordinator


def scrape_coordinator(control: FakeControl, per_topic: int = 1000) -> Values:
    numbers = CoordinatorNumbers(cast(Coordinator, control), "1.2.3", per_topic, wall=lambda: NOW)
    return scrape(build_registry(coordinator_metrics.COORDINATOR_METRICS, numbers.read_values))


def test_leader_reports_units_agents_and_pipelines() -> None:
    control = FakeControl(
        agents=(agent("a1", backs_off_s=0.0, has_active_config=False), agent("a2", state="expired")),
        units=(
            unit(UNIT),
            unit("apply/p/t2", paused=True, state="absent"),
            unit("apply/p/t3", restricted="two primaries", moving_to="a2"),
            unit("capture/b1", checkpoint_ts=1_790_000_000_500),
        ),
    )
    control.record_event("unit moved", {"cause": "drain"})
    control.record_event("unit moved", {"cause": "drain"})
    values = scrape_coordinator(control)
    assert one(values, "rowlock_build_info", version="1.2.3", process="coordinator") == 1
    assert (one(values, "rowlock_leader"), one(values, "rowlock_term")) == (1, 7)
    assert one(values, "rowlock_events_total", event="unit moved") == 2
    assert one(values, "rowlock_moves_total", why="drain") == 2
    assert one(values, "rowlock_moves_total", why="agent_lost") == 0
    states = {
        state: one(values, "rowlock_agents", state=state) for state in ("synced", "registered", "expired")
    }
    assert states == {"synced": 1, "registered": 0, "expired": 1}
    assert one(values, "rowlock_agent_heard_timestamp_seconds", agent="a1") == NOW - 0.25
    assert one(values, "rowlock_agent_units", agent="a2") == 2
    assert [one(values, "rowlock_agent_backs_off", agent=name) for name in ("a1", "a2")] == [1, 0]
    assert [one(values, "rowlock_agent_has_active_config", agent=name) for name in ("a1", "a2")] == [0, 1]
    healths = ("running", "starting", "restarting", "stopped", "paused")
    found = {health: one(values, "rowlock_units", kind="apply", health=health) for health in healths}
    assert found == {"running": 1, "starting": 0, "restarting": 0, "stopped": 1, "paused": 1}
    assert one(values, "rowlock_units", kind="capture", health="running") == 1
    assert one(values, "rowlock_unit_health", unit="apply/p/t2", health="paused") == 1
    assert one(values, "rowlock_unit_health", unit="apply/p/t2", health="running") == 0
    assert (one(values, "rowlock_restricted_units"), one(values, "rowlock_moving_units")) == (1, 1)
    assert one(values, "rowlock_captured_to_timestamp_seconds", source="b1") == 1_790_000_000.5
    assert one(values, "rowlock_applied_to_timestamp_seconds", pipeline="p", source="b1") == 1_790_000_000
    assert one(values, "rowlock_cut_timestamp_seconds", pipeline="p") == 1_790_000_000
    assert names(values) == {definition.name for definition in coordinator_metrics.COORDINATOR_METRICS}


@pytest.mark.parametrize("leader", [LeaderView(8, "c2", "x:1", "x:2"), None])
def test_follower_reports_itself_alone(leader: LeaderView | None) -> None:
    control = FakeControl(seen_leader=leader)
    control.record_event("term lost", {})
    values = scrape_coordinator(control)
    assert one(values, "rowlock_leader") == 0
    own = {"rowlock_build_info", "rowlock_leader", "rowlock_events_total", "rowlock_moves_total"}
    assert names(values) == (own | {"rowlock_term"} if leader else own)


def test_times_that_are_not_known_are_left_out() -> None:
    pipeline = replace(FakeControl().pipelines[0], cut_ts=None, by_source={"b1": 0})
    control = FakeControl(units=(unit("capture/b1", checkpoint_ts=None),), pipelines=(pipeline,))
    unknown = {"captured_to", "applied_to", "cut"}
    left_out = {f"rowlock_{each}_timestamp_seconds" for each in unknown}
    assert not left_out & names(scrape_coordinator(control))


def test_failures_are_those_of_the_unit_that_fails_most() -> None:
    units = (unit(UNIT, failures=2), unit("apply/p/t2", failures=6), unit("apply/p/t3"))
    values = scrape_coordinator(FakeControl(units=units))
    assert one(values, "rowlock_unit_failures_most", kind="apply") == 6
    assert one(values, "rowlock_unit_failures_most", kind="capture") == 0


def test_pipeline_waits_for_units_that_are_new_to_it() -> None:
    units = (
        unit(UNIT),
        unit("apply/p/t2", checkpoint_ts=None),
        unit("apply/p/t3", checkpoint_ts=1_789_999_999_999),
        unit("apply/p/t4", source="b2", checkpoint_ts=5),
        unit("apply/removed/t5", checkpoint_ts=None),
    )
    values = scrape_coordinator(FakeControl(units=units))
    found = {labels: number for (name, labels), number in values.items() if "waits_for" in name}
    assert found == {
        (("pipeline", "p"), ("source", "b1")): 2,
        (("pipeline", "p"), ("source", "b2")): 0,
    }


def test_units_are_not_reported_one_by_one_above_the_limit() -> None:
    control = FakeControl()
    assert "rowlock_unit_health" in names(scrape_coordinator(control, per_topic=2))
    above = scrape_coordinator(control, per_topic=1)
    assert "rowlock_unit_health" not in names(above)
    assert one(above, "rowlock_units", kind="apply", health="running") == 1


# access


@pytest.fixture
def url() -> Iterator[Any]:
    """Yield what serves an application and returns its URL."""
    servers: list[RestServer] = []

    def serve(app: FastAPI) -> str:
        servers.append(RestServer(app, "127.0.0.1:0"))
        return f"http://{servers[-1].start()}"

    yield serve
    for server in servers:
        server.close()


def make_app(kind: str, token: str) -> FastAPI:
    secret = SecretStr(token) if token else None
    if kind == "coordinator":
        return create_app(cast(Coordinator, FakeControl()), FakeDesk(), token=secret, prefix="rowlock")
    return create_metrics_app(agent_registry(ReportedFigures()), token=secret, prefix="rowlock")


@pytest.mark.parametrize("kind", ["coordinator", "agent"])
def test_access_is_that_of_rest(url: Any, kind: str) -> None:
    with_token, without = url(make_app(kind, "topsecret")), url(make_app(kind, ""))

    def ask(base: str, **headers: str) -> int:
        return httpx.get(f"{base}/metrics", headers=headers, trust_env=False).status_code

    assert ask(with_token) == 401
    assert ask(with_token, Authorization="Bearer wrong") == 401
    assert ask(with_token, Authorization="Bearer topsecret") == 200
    assert ask(without) == 200
    assert ask(without, Host="elsewhere.example") == 403
    assert ask(without, **{"rowlock-prefix": "another"}) == 421


@pytest.mark.parametrize(
    ("accept", "read"),
    [("text/plain", text_string_to_metric_families), ("application/openmetrics-text", read_open_metrics)],
)
def test_both_formats_are_served_as_what_they_are(url: Any, accept: str, read: Any) -> None:
    answer = httpx.get(
        f"{url(make_app('coordinator', ''))}/metrics", headers={"Accept": accept}, trust_env=False
    )
    assert answer.headers["content-type"].startswith(accept)
    found = {family.name for family in read(answer.text)}
    assert {"rowlock_leader", "process_resident_memory_bytes"} <= found


def test_leader_that_does_not_answer_is_no_scrape(url: Any) -> None:
    class Busy(FakeControl):
        def get_view(self) -> Any:
            raise NoAnswerError("the leader is busy")

    app = create_app(cast(Coordinator, Busy()), FakeDesk(), token=None)
    answer = httpx.get(f"{url(app)}/metrics", trust_env=False)
    assert answer.status_code == 504


# the agent


def agent_registry(
    reported: ReportedFigures,
    held: Sequence[AgentUnit] = (),
    per_topic: int = 1000,
    kept: Kept = Kept(),  # noqa: B008  # it is frozen
) -> Any:
    numbers = AgentNumbers(
        reported, lambda: held, per_topic, lambda: kept, clock=lambda: 100.0, wall=lambda: NOW
    )
    return build_registry(AGENT_METRICS, numbers.read_values)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Return a configuration with TLS and a token."""
    issued = Authority(tmp_path).issue("127.0.0.1")
    tls = f"{{ca: {issued.ca}, cert: {issued.cert}, key: {issued.key}}}"
    file = tmp_path / "c.yaml"
    file.write_text(
        "kafka: {bootstrap: '127.0.0.1:1'}\n"
        "sources: {b1: {type: mysql, host: h, user: u, password: p, tables: [b.*]}}\n"
        f"coordination: {{token: topsecret, tls: {tls}, agent_metrics: '127.0.0.1:0'}}\n"
    )
    return load_config(file)


def test_agent_serves_its_address_with_tls_and_token(config: Config) -> None:
    address = config.coordination.agent_metrics
    assert address is not None
    numbers = AgentNumbers(ReportedFigures(), tuple, 1000)
    server = MetricsServer(config, address, numbers)
    server.start()
    tls = config.coordination.tls
    assert tls is not None
    trusted = ssl.create_default_context(cafile=str(tls.ca))
    with httpx.Client(base_url=f"https://{server.address}", verify=trusted, trust_env=False) as client:
        assert client.get("/metrics").status_code == 401
        answer = client.get("/metrics", headers={"Authorization": "Bearer topsecret"})
    assert "rowlock_build_info" in answer.text
    server.close()


def test_agent_serves_its_address_once_that_is_free(config: Config) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    waited: list[float] = []

    def wait(closing: threading.Event, seconds: float) -> bool:
        waited.append(seconds)
        if len(waited) == 2:
            taken.close()
        return closing.is_set()

    address = f"127.0.0.1:{taken.getsockname()[1]}"
    server = MetricsServer(config, address, AgentNumbers(ReportedFigures(), tuple, 1000), wait)
    with structlog.testing.capture_logs() as logged:
        server.start()
        server.await_start()
    assert [each["event"] for each in logged] == ["metrics not served"] * 2 + ["metrics served"]
    assert "--metrics" in logged[0]["remedy"]
    assert waited == [agent_metrics.RETRY_S] * 2
    socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))).close()
    server.close()


def test_close_ends_the_attempts_to_serve(config: Config) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = MetricsServer(config, address, AgentNumbers(ReportedFigures(), tuple, 1000))
        server.start()
        server.close()


def test_certificate_that_cannot_be_used_is_refused_at_start(config: Config) -> None:
    tls = config.coordination.tls
    assert tls is not None
    tls.key.write_text("no key")
    with pytest.raises(CommandError, match="metrics cannot be served with the certificate") as refused:
        MetricsServer(config, "127.0.0.1:0", AgentNumbers(ReportedFigures(), tuple, 1000))
    assert "coordination.tls" in refused.value.problem.action


def status(pipeline: str = "p", topic: str = TOPIC, **figures: Any) -> dict[str, Any]:
    return {"kind": "status", "pipeline": pipeline, "units": {topic: {"offset": 7, **figures}}}


LANES = {
    "upserted": 8,
    "deleted": 2,
    "lock_waits": 5,
    "lock_wait_ms": 1500,
    "lock_chain": 3,
    "open_quarantine": 4,
    "resolved": 6,
    "transactions": {"counts": [0, 3, 1], "total_ms": 42},
    "visible": {"counts": [0, 0, 0, 9], "total_ms": 360},
}


def test_agent_reports_what_its_processes_report() -> None:
    reported = ReportedFigures(wall=lambda: NOW)
    reported.begin_apply()
    reported.begin_capture("b1")
    reported.record_captured(
        "b1",
        {
            "kind": "captured", "events": 12, "snapshot_pending": ["bank.new"],
            "stops": {"bank.t": "altered"},
            "copies": {
                "bank.c": {"phase": "running", "rows": 3, "estimate": 9},
                "bank.d": {"phase": "done", "rows": 5, "estimate": None},
            },
            "removed": {"bank.c": 1_790_000_000_500},
        },
    )  # fmt: skip
    reported.record_status(status(applied=10, held=3, displaced=1, lanes=LANES, left=70))
    reported.record_slots({"kind": "slots", "open": 2, "configured": 4, "short_s": 30})
    reported.count_delivery_failure("b1")
    kept = Kept({"b1": 86_400.0}, {TOPIC: 604_800.0})
    held = (
        AgentUnit(UNIT, 7, UnitPhase.REPLICATING, deadline=108.0, mark=UnitProgress(1_790_000_000_250, 1)),
        AgentUnit("capture/b1", 7, UnitPhase.REPLICATING, deadline=103.5, mark=UnitProgress(1, 1)),
        AgentUnit("apply/p/t2", 7, UnitPhase.PREPARING),
        AgentUnit("apply/p/t3", 7, UnitPhase.ABSENT),
    )
    values = scrape(agent_registry(reported, held, kept=kept))
    unit_ = {"pipeline": "p", "topic": TOPIC}
    expected = {
        ("rowlock_unit_lag_events", ()): 70,
        ("rowlock_applied_events_total", ()): 10,
        ("rowlock_quarantined_events_total", ()): 3,
        ("rowlock_quarantine_open_events", ()): 4,
        ("rowlock_quarantine_resolved_events_total", ()): 6,
        ("rowlock_displaced_rows_total", ()): 1,
        ("rowlock_applied_rows_total", (("op", "upsert"),)): 8,
        ("rowlock_applied_rows_total", (("op", "delete"),)): 2,
        ("rowlock_lock_waits_total", ()): 5,
        ("rowlock_lock_wait_seconds_total", ()): 1.5,
        ("rowlock_lock_chain_longest", ()): 3,
        ("rowlock_unit_applied_to_timestamp_seconds", ()): 1_790_000_000.25,
    }
    assert {key: one(values, key[0], **unit_, **dict(key[1])) for key in expected} == expected
    name = "rowlock_apply_transaction_seconds"
    buckets = [one(values, f"{name}_bucket", pipeline="p", le=bound) for bound in ("0.005", "0.01", "+Inf")]
    assert buckets == [0, 3, 4]
    assert (one(values, f"{name}_count", pipeline="p"), one(values, f"{name}_sum", pipeline="p")) == (
        4,
        0.042,
    )
    assert one(values, "rowlock_commit_to_visible_seconds_count", pipeline="p") == 9
    assert one(values, "rowlock_kafka_delivery_failures_total", source="b1") == 1
    assert one(values, "rowlock_retention_seconds", place="source b1") == 86_400
    assert one(values, "rowlock_headroom_end_timestamp_seconds", place="source b1") == 86_400.001
    assert one(values, "rowlock_retention_seconds", place="pipeline p") == 604_800
    end = one(values, "rowlock_headroom_end_timestamp_seconds", place="pipeline p")
    assert end == 1_790_000_000.25 + 604_800
    assert one(values, "rowlock_lease_end_timestamp_seconds") == NOW + 3.5
    assert one(values, "rowlock_held_units", kind="apply", phase="preparing") == 1
    assert one(values, "rowlock_held_units", kind="capture", phase="replicating") == 1
    assert one(values, "rowlock_captured_rows_total", source="b1") == 12
    assert one(values, "rowlock_heard_timestamp_seconds", source="b1") == NOW
    assert one(values, "rowlock_snapshot_pending_tables", source="b1") == 1
    assert one(values, "rowlock_table_stopped", source="b1", table="bank.t", cause="altered") == 1
    assert one(values, "rowlock_copies", source="b1", phase="done") == 1
    assert one(values, "rowlock_copy_rows", source="b1", table="bank.c") == 3
    assert one(values, "rowlock_copy_estimated_rows", source="b1", table="bank.c") == 9
    assert ("rowlock_copy_rows", (("source", "b1"), ("table", "bank.d"))) not in values
    removed = one(values, "rowlock_removed_rows_timestamp_seconds", source="b1", table="bank.c")
    assert removed == 1_790_000_000.5
    assert one(values, "rowlock_process_starts_total", kind="capture", source="b1") == 1
    assert one(values, "rowlock_slots", state="open") == 2
    assert one(values, "rowlock_slots", state="configured") == 4
    assert names(values) == {definition.name for definition in AGENT_METRICS}


def test_headroom_of_a_source_counts_from_its_oldest_open_xa_prepare() -> None:
    held = [AgentUnit("capture/b1", 7, UnitPhase.REPLICATING, mark=UnitProgress(int(NOW * 1000), 1))]
    for prepared_s, end in ((0, 60), (NOW - 50, 10)):
        reported = ReportedFigures()
        reported.record_captured("b1", {"kind": "captured", "prepared_ms": int(prepared_s * 1000)})
        values = scrape(agent_registry(reported, held, kept=Kept({"b1": 60.0}, {})))
        found = one(values, "rowlock_headroom_end_timestamp_seconds", place="source b1")
        assert found - NOW == end


def test_headroom_is_that_of_the_topic_with_the_least_share_of_it_left() -> None:
    reported = ReportedFigures()
    kept = Kept({}, {"slow": 1000.0, "short": 200.0, "done": 50.0})
    marks = {"slow": NOW - 900, "short": NOW - 50, "done": NOW - 5000, "unknown": NOW - 9000, "new": 0}
    for topic in marks:
        reported.record_status(status(topic=topic, left=0 if topic == "done" else 3))
    held = [
        AgentUnit(f"apply/p/{topic}", 7, UnitPhase.REPLICATING, mark=UnitProgress(int(at * 1000), 1))
        for topic, at in marks.items()
    ]

    def read() -> tuple[float, float]:
        values = scrape(agent_registry(reported, held, kept=kept))
        end = one(values, "rowlock_headroom_end_timestamp_seconds", place="pipeline p")
        return one(values, "rowlock_retention_seconds", place="pipeline p"), end - NOW

    assert read() == (1000, 100), "a tenth of it"
    held = [unit for unit in held if unit.unit != "apply/p/slow"]
    assert read() == (200, 150)
    held = [unit for unit in held if unit.unit != "apply/p/short"]
    assert read() == (50, 50), "what comes from now on is kept for so long"


def test_headroom_ends_for_a_source_that_has_finished() -> None:
    """Its place in the log does not move on any more."""
    reported = ReportedFigures()
    reported.begin_capture("b1")
    held = [AgentUnit("capture/b1", 7, UnitPhase.REPLICATING, mark=UnitProgress(1000, 1))]
    registry = agent_registry(reported, held, kept=Kept({"b1": 60.0}))
    assert "rowlock_headroom_end_timestamp_seconds" in names(scrape(registry))
    reported.finish_snapshot("b1")
    assert "rowlock_headroom_end_timestamp_seconds" not in names(scrape(registry))


def counters(values: Values) -> Values:
    ends = ("_total", "_bucket", "_sum", "_count")
    return {key: number for key, number in values.items() if key[0].endswith(ends)}


def test_no_counter_decreases_whatever_ends() -> None:
    reported = ReportedFigures(wall=lambda: NOW)
    registry = agent_registry(reported)
    steps = [
        reported.begin_apply,
        lambda: reported.begin_capture("b1"),
        lambda: reported.record_captured("b1", {"events": 12}),
        lambda: reported.record_status(status(applied=10, lanes=LANES)),
        lambda: reported.end_unit("p", TOPIC),
        lambda: reported.record_status(status(applied=3, lanes={"upserted": 3})),  # prepared again
        lambda: reported.record_status(status(applied=4, lanes={"upserted": 4})),
        reported.begin_apply,  # the process was killed
        lambda: reported.record_status(status(applied=1)),
        lambda: reported.record_captured("b1", {"events": 2}),  # capture restarted by itself
        lambda: reported.end_capture("b1"),
        lambda: reported.begin_capture("b1"),
        lambda: reported.record_captured("b1", {"events": 5}),
        lambda: reported.end_unit("p", "no such topic"),
    ]
    before: Values = {}
    for step in steps:
        step()
        now = counters(scrape(registry))
        assert {key: number for key, number in before.items() if now.get(key, -1) < number} == {}
        before = now
    unit_ = {"pipeline": "p", "topic": TOPIC}
    assert one(before, "rowlock_applied_events_total", **unit_) == 15
    assert one(before, "rowlock_applied_rows_total", **unit_, op="upsert") == 12
    assert one(before, "rowlock_apply_transaction_seconds_count", pipeline="p") == 4
    assert one(before, "rowlock_captured_rows_total", source="b1") == 19
    assert one(before, "rowlock_process_starts_total", kind="capture", source="b1") == 2
    assert one(before, "rowlock_process_starts_total", kind="apply", source="") == 2


def test_counts_of_a_unit_begin_at_0_when_it_is_prepared() -> None:
    """Prometheus sees no increase in the first value of a series, not even if that is not 0."""
    reported = ReportedFigures()
    config = SimpleNamespace(pipelines={"p": None})
    ApplyWorker(cast(Config, config), UnitLedger(), reported).prepare(UNIT, 7, None)
    unit_ = {"pipeline": "p", "topic": TOPIC}
    values = scrape(agent_registry(reported))
    found = {name for name, labels in values if unit_.items() <= dict(labels).items()}
    assert {name for name in found if name.endswith("_total")} == {
        definition.name
        for definition in AGENT_METRICS
        if definition.kind == "counter" and "topic" in definition.labels
    }
    assert not any(number for (name, _), number in values.items() if name in found)
    reported.record_status(status(applied=10))
    reported.begin_unit("p", TOPIC)
    assert one(scrape(agent_registry(reported)), "rowlock_applied_events_total", **unit_) == 10


def test_what_has_ended_has_sums_and_no_present_values() -> None:
    reported = ReportedFigures(wall=lambda: NOW)
    reported.begin_capture("b1")
    reported.record_captured("b1", {"events": 12, "stops": {"bank.t": "altered"}})
    reported.record_status(status(applied=10, lanes=LANES, left=9))
    reported.end_capture("b1")
    reported.end_unit("p", TOPIC)
    left = names(scrape(agent_registry(reported)))
    assert {
        "rowlock_captured_rows_total",
        "rowlock_applied_events_total",
        "rowlock_lock_chain_longest",
    } <= left
    ended = {
        "rowlock_heard_timestamp_seconds", "rowlock_table_stopped", "rowlock_quarantine_open_events",
        "rowlock_unit_lag_events",
    }  # fmt: skip
    assert not left & ended


def test_source_with_a_snapshot_only_is_finished_until_its_unit_ends() -> None:
    reported = ReportedFigures(wall=lambda: NOW)

    def is_finished() -> float:
        return one(scrape(agent_registry(reported)), "rowlock_capture_finished", source="b1")

    reported.begin_capture("b1")
    seen = [is_finished()]
    reported.end_capture("b1")
    reported.finish_snapshot("b1")
    seen.append(is_finished())
    reported.end_capture("b1")
    assert [*seen, is_finished()] == [0, 1, 0]


def test_topics_above_the_limit_are_added_up_by_pipeline() -> None:
    reported = ReportedFigures(wall=lambda: NOW)
    for topic, lanes in (("t1", LANES), ("t2", {"lock_chain": 1, "open_quarantine": 2}), ("t3", {})):
        reported.record_status(status(topic=topic, applied=10, lanes=lanes, left=5))
    reported.record_status(status("q", "t1", applied=1))
    assert len(reported.list_units(4)) == 4
    values = scrape(agent_registry(reported, per_topic=3))
    assert one(values, "rowlock_applied_events_total", pipeline="p", topic="") == 30
    assert one(values, "rowlock_applied_events_total", pipeline="q", topic="") == 1
    assert one(values, "rowlock_unit_lag_events", pipeline="p", topic="") == 15
    assert one(values, "rowlock_quarantine_open_events", pipeline="p", topic="") == 6
    assert one(values, "rowlock_lock_chain_longest", pipeline="p", topic="") == 3
    assert ("rowlock_quarantine_open_events", (("pipeline", "q"), ("topic", ""))) not in values


def test_later_figures_of_lanes_count_in_addition() -> None:
    first = LaneFigures(1, 2, 3, 4, 5, 6)
    assert first.merge(LaneFigures(10, 20, 30, 40, 2, 0)) == LaneFigures(11, 22, 33, 44, 5, 0)
    assert first.merge(LaneFigures()) == first


# the definitions


ALL = {
    each.name: each for each in (*coordinator_metrics.COORDINATOR_METRICS, *AGENT_METRICS, *VERIFY_METRICS)
}


@pytest.mark.parametrize("definition", ALL.values(), ids=ALL)
def test_names_follow_prometheus(definition: MetricDefinition) -> None:
    assert definition.name.startswith("rowlock_")
    assert definition.name.endswith("_total") == (definition.kind == "counter")
    assert definition.meaning.endswith(".")


def test_a_name_has_one_meaning() -> None:
    """A counter is known without `_total`, too: a gauge may not have that name."""
    definitions = {*coordinator_metrics.COORDINATOR_METRICS, *AGENT_METRICS, *VERIFY_METRICS}
    assert len({each.name.removesuffix("_total") for each in definitions}) == len(definitions)


def test_page_is_generated() -> None:
    page = ROOT / "docs" / "reference" / "metrics.md"
    assert page.read_text() == render(), "run: python -m tools.docs.metrics > docs/reference/metrics.md"


def test_samples_of_an_unknown_metric_are_refused() -> None:
    unknown = MetricDefinition("rowlock_unknown", "gauge", "Unknown.")
    registry = CollectorRegistry()
    with pytest.raises(KeyError):
        next(iter(build_registry((), lambda: [(unknown, (), 1.0)]).collect()))
    assert not list(registry.collect())


# the alerts


RULES = ROOT / "deploy" / "prometheus" / "rowlock.rules.yml"


def list_alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


_SERIES = ("bucket", "sum", "count")
"""What the names of a histogram's series end with."""


def test_alerts_and_questions_name_existing_metrics() -> None:
    texts = [rule["expr"] for rule in list_alerts()]
    texts.append((ROOT / "docs" / "how-to" / "monitor.md").read_text())
    used = {name for text in texts for name in re.findall(r"\browlock_[a-z_]+\b", text)}
    series = {f"{name}_{end}" for name, each in ALL.items() if each.kind == "histogram" for end in _SERIES}
    assert used - set(ALL) - series == set()
    assert len(used) > 15


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = yaml.safe_load(RULES.with_name("rowlock.rules.test.yml").read_text())["tests"]
    found = {
        (rule["alertname"], bool(rule["exp_alerts"])) for case in cases for rule in case["alert_rule_test"]
    }
    assert found == {(rule["alert"], fires) for rule in list_alerts() for fires in (True, False)}


@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", RULES.name),
        ("test", "rules", "rowlock.rules.test.yml"),
        ("check", "config", "--syntax-only", "prometheus.example.yml"),
    ],
)
def test_promtool_accepts_the_alerts(words: tuple[str, ...]) -> None:
    done = run_promtool(*words, cwd=RULES.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "definitions", [coordinator_metrics.COORDINATOR_METRICS, AGENT_METRICS, VERIFY_METRICS]
)
def test_promtool_accepts_every_metric(definitions: tuple[MetricDefinition, ...]) -> None:
    """Also those that a scrape of a system without problems leaves out."""
    registry = build_registry(definitions, lambda: [_some_value(each) for each in definitions])
    text = generate_latest(registry).decode()
    assert all(f"\n{each.name}" in text for each in definitions)
    checked = run_promtool("check", "metrics", stdin=text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def _some_value(definition: MetricDefinition) -> MetricValue:
    value = Histogram(Durations((1, 2)).list_buckets(), 0.5) if definition.kind == "histogram" else 1.0
    return definition, definition.labels, value


@pytest.mark.parametrize(("required", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_machine_without_promtool_skips_unless_it_must_have_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, required: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(REQUIRE, required)
    with pytest.raises(outcome, match="promtool is"):
        run_promtool("check", "metrics")
