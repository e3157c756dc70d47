"""A running coordinator and agent, scraped: the numbers are those of what was written, and Prometheus' own
checker accepts them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.rest import metrics as coordinator_metrics
from coordinator.rest.exposition import MetricDefinition
from deploy.embedded.ports import pick_port
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from rowlock.agent.metric_definitions import AGENT_METRICS
from tests.kits.running import HERE, Run
from tests.kits.whole_run import PATIENCE_S, WholeRun, whole_run
from tests.promtool import run_promtool

pytestmark = pytest.mark.integration


class ScrapedRun(WholeRun):
    """A run from the MariaDB b1 into the PostgreSQL hq, whose coordinator and agent are scraped."""

    def get_text(self, key: str) -> str:
        """Return the metrics that are served on an address: one of the configuration, or `key` itself."""
        address = self.parts["coordination"].get(key, key)
        answer = httpx.get(f"http://{address}/metrics", trust_env=False, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.text

    def read_metric(self, key: str, name: str, **labels: str) -> float | None:
        """Return the sum of the values that have these labels; None: there are none."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self.get_text(key))
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def shows(self, key: str, name: str, number: float, **labels: str) -> None:
        """Await that a metric has this value."""
        self.run.until(
            lambda: self.read_metric(key, name, **labels) == number, f"{name} {labels} = {number}", PATIENCE_S
        )


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[ScrapedRun]:
    db = f"metrics{secrets.token_hex(4)}"
    pipeline = {
        "sources": ["b1"], "target": "hq", "schema_changes": "stop", "repair": "stop", "lanes": 2,
        "routes": [{"from": f"{db}.*", "to": "public.{table}"}],
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("metrics")
    with whole_run(folder, db, kafka, {"b1": mariadb}, {"hq": postgres}, {"p": pipeline}) as whole:
        made = ScrapedRun(**vars(whole))
        listen, rest, agent = (f"127.0.0.1:{pick_port()}" for _ in range(3))
        made.parts["coordination"] = {
            "coordinators": [listen], "listen": listen, "rest": rest, "agent_metrics": agent
        }  # fmt: skip
        made.write_parts()
        made.change("b1", "CREATE TABLE acct (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE)")
        made.change("b1", "CREATE TABLE narrow (id INT PRIMARY KEY, note VARCHAR(20))")
        postgres.execute("CREATE TABLE narrow (id int PRIMARY KEY, note varchar(6))", database=db)
        made.run.start()
        made.run.until(lambda: is_replicating(made), "all units replicate", PATIENCE_S)
        yield made


def is_replicating(system: ScrapedRun) -> bool:
    try:
        return system.read_metric("agent_metrics", "rowlock_held_units", phase="replicating") == 3
    except httpx.TransportError:
        return False


def test_numbers_are_those_of_what_was_written(system: ScrapedRun) -> None:
    unit = {"pipeline": "p", "topic": system.topic("b1", "acct")}
    before = system.read_metric("agent_metrics", "rowlock_captured_rows_total", source="b1") or 0
    system.change(
        "b1",
        "INSERT INTO acct VALUES (1, 'lucy'), (2, 'anna'), (3, NULL)",
        "UPDATE acct SET name = 'otto' WHERE id = 2",
        "DELETE FROM acct WHERE id = 3",
        "INSERT INTO narrow VALUES (1, 'far too long')",
    )
    system.arrives("SELECT id, name FROM acct WHERE id < 10 ORDER BY id", [(1, "lucy"), (2, "otto")])
    system.run.until(
        lambda: (
            (system.read_metric("agent_metrics", "rowlock_captured_rows_total", source="b1") or 0)
            >= before + 6
        ),
        "the captured rows",
        PATIENCE_S,
    )
    system.run.until(
        lambda: (system.read_metric("agent_metrics", "rowlock_applied_events_total", **unit) or 0) >= 5,
        "the applied events",
        PATIENCE_S,
    )
    assert (system.read_metric("agent_metrics", "rowlock_applied_rows_total", **unit, op="upsert") or 0) >= 2
    system.shows("agent_metrics", "rowlock_unit_lag_events", 0, **unit)
    for histogram in ("rowlock_apply_transaction_seconds", "rowlock_commit_to_visible_seconds"):
        assert (system.read_metric("agent_metrics", f"{histogram}_count", pipeline="p") or 0) >= 1
        assert (system.read_metric("agent_metrics", f"{histogram}_sum", pipeline="p") or 0) > 0
    system.shows("agent_metrics", "rowlock_quarantine_open_events", 1, topic=system.topic("b1", "narrow"))
    system.shows("rest", "rowlock_units", 2, kind="apply", health="running")
    assert system.read_metric("rest", "rowlock_leader") == 1
    assert system.read_metric("rest", "rowlock_agents", state="synced") == 1
    assert (system.read_metric("agent_metrics", "rowlock_process_starts_total") or 0) >= 2


def test_slots_in_spark_are_counted_by_metrics_and_rest(system: ScrapedRun) -> None:
    configured = system.run.until(
        lambda: system.read_metric("agent_metrics", "rowlock_slots", state="configured"), "slots", PATIENCE_S
    )
    system.shows("agent_metrics", "rowlock_slots", configured, state="open")
    expected = {"open": configured, "configured": configured, "short_s": 0, "cores": None, "failures": {}}
    url = f"http://{system.parts['coordination']['rest']}/v1/agents"
    system.run.until(
        lambda: httpx.get(url, trust_env=False, timeout=30).json()["agents"][0]["slots"] == expected,
        "slots in REST",
        PATIENCE_S,
    )


def test_times_move_on_while_nothing_is_written(system: ScrapedRun) -> None:
    for key, name in (
        ("rest", "rowlock_captured_to_timestamp_seconds"),
        ("rest", "rowlock_applied_to_timestamp_seconds"),
        ("agent_metrics", "rowlock_heard_timestamp_seconds"),
        ("agent_metrics", "rowlock_lease_end_timestamp_seconds"),
    ):
        first = system.run.until(lambda key=key, name=name: system.read_metric(key, name), name, PATIENCE_S)
        system.run.until(
            lambda key=key, name=name, first=first: (system.read_metric(key, name) or 0) > first,
            f"{name} grows",
            PATIENCE_S,
        )


def test_counters_go_on_after_the_death_of_a_process(system: ScrapedRun) -> None:
    events = ("agent_metrics", "rowlock_applied_events_total")
    system.change("b1", "INSERT INTO acct VALUES (10, 'before')")
    system.arrives("SELECT name FROM acct WHERE id = 10", [("before",)])
    before = system.read_metric(*events)
    starts = system.read_metric("agent_metrics", "rowlock_process_starts_total", kind="apply")
    assert before is not None
    assert starts is not None
    system.run.kill_processes("consumer.main")
    system.shows("agent_metrics", "rowlock_process_starts_total", starts + 1, kind="apply")
    system.change("b1", "INSERT INTO acct VALUES (11, 'after')")
    system.arrives("SELECT name FROM acct WHERE id = 11", [("after",)])
    system.run.until(lambda: (system.read_metric(*events) or 0) > before, "the count goes on", PATIENCE_S)


def test_follower_reports_that_it_does_not_lead(system: ScrapedRun, tmp_path: Path) -> None:
    listen, rest = (f"127.0.0.1:{pick_port()}" for _ in range(2))
    words = ("--name", "second", "--listen", listen, "--rest", rest)
    log = tmp_path / "second.log"
    follower = Run(system.config, log, HERE.spawn("coordinator", "-c", str(system.config), *words, log=log))
    try:
        system.run.until(lambda: follows(system, rest), "the follower knows the leader", PATIENCE_S)
        assert system.read_metric(rest, "rowlock_leader") == 0
        assert system.read_metric(rest, "rowlock_units") is None
    finally:
        follower.close()


def follows(system: ScrapedRun, rest: str) -> bool:
    try:
        return system.read_metric(rest, "rowlock_term") == system.read_metric("rest", "rowlock_term")
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("key", "definitions"),
    [("rest", coordinator_metrics.COORDINATOR_METRICS), ("agent_metrics", AGENT_METRICS)],
)
def test_promtool_accepts_a_scrape(
    system: ScrapedRun, key: str, definitions: tuple[MetricDefinition, ...]
) -> None:
    text = system.get_text(key)
    checked = run_promtool("check", "metrics", stdin=text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    named = {
        family.name for family in text_string_to_metric_families(text) if family.name.startswith("rowlock_")
    }
    assert named <= {definition.name.removesuffix("_total") for definition in definitions}
