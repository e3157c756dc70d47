"""Three brokers are restarted one after the other, as for an upgrade of Kafka, under a run that captures and
applies all the time: it goes on meanwhile, and no row is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import MariaDB, PostgreSQL
from tests.kits.running import ACCOUNTS, Load
from tests.kits.waiting import until
from tests.kits.whole_run import WholeRun, whole_run
from tests.servers.kafka_brokers import SIZE, Brokers

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = "SELECT id, version, owner, amount FROM acct ORDER BY id"
APPLIED = "SELECT COALESCE(MAX(version), -1) FROM acct"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers() as made:
        yield made


@pytest.fixture
def run(
    brokers: Brokers, mariadb: MariaDB, postgres: PostgreSQL, unique: str, tmp_path: Path
) -> Iterator[WholeRun]:
    """Everything is replicated three times, and two of three acknowledge."""
    pipelines = {
        "p": {"sources": ["b"], "target": "hq", "routes": [{"from": f"{unique}.*", "to": "public.{table}"}]}
    }
    sources, targets = {"b": mariadb}, {"hq": postgres}
    with whole_run(tmp_path, unique, brokers, sources, targets, pipelines) as made:  # type: ignore[arg-type]
        made.parts["kafka"]["replication"] = SIZE
        made.write_parts()
        yield made


def has_replicas_in_sync(run: WholeRun, brokers: Brokers) -> bool:
    return all(brokers.in_sync(topic) for topic in (run.topic("b", "acct"), f"{run.db}.control"))


def test_brokers_that_are_restarted_one_by_one_interrupt_nothing(run: WholeRun, brokers: Brokers) -> None:
    run.change("b", *ACCOUNTS)
    load = Load(run.sources["b"], run.db, pause_s=0.02)
    load.start()
    run.run.start()
    run.run.until(
        lambda: run.read("hq", APPLIED) not in (None, [(-1,)], [(0,)]), "the first rows in the target"
    )
    for member in brokers.members:
        until(lambda: has_replicas_in_sync(run, brokers), "all brokers have everything")
        member.stop()
        version = load.version
        run.run.until(
            lambda version=version: (run.read("hq", APPLIED) or [(-1,)])[0][0] > version,
            f"rows that were written without broker {member.number}",
        )
        member.start()
    load.finish()
    run.run.until(lambda: run.read("hq", ROWS) == run.read_source("b", ROWS), "equal rows")
    run.run.until(lambda: run.invoke("status").exit_code == 0, "a status without problems")
    log = run.run.log.read_text()
    for event in ("unit stopped", "apply process ended", "capture restarts"):
        assert event not in log, event
