"""A table's topic that is deleted, or deleted and created again: the table is copied into the new topic, and
no other table waits for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.apply import create_topic, delete_topic
from tests.kits.whole_run import WholeRun, whole_run

pytestmark = pytest.mark.timeout(1200)

TABLES = (
    "CREATE TABLE acct (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE other (id INT PRIMARY KEY, v INT)",
    "INSERT INTO acct VALUES (1, 1), (2, 1), (3, 1)",
    "INSERT INTO other VALUES (1, 1)",
)
LOST = (
    "DELETE FROM acct WHERE id = 1",
    "UPDATE acct SET v = 2 WHERE id = 2",
    "INSERT INTO acct VALUES (4, 1)",
)
QUERIES = {table: f"SELECT * FROM {table} ORDER BY id" for table in ("acct", "other")}


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, mysql: MySQL, unique: str,
    repair: str,
) -> Iterator[WholeRun]:  # fmt: skip
    """Each target has a pipeline of its name."""
    pipelines = {
        name: {"sources": ["s"], "target": name, "repair": repair,
        "routes": [{"from": f"{unique}.*", "to": place + ".{table}"}]}
        for name, place in {"pg": "public", "my": unique}.items()
    }  # fmt: skip
    with whole_run(tmp_path, unique, kafka, {"s": mariadb}, {"pg": postgres, "my": mysql}, pipelines) as made:
        made.change("s", *TABLES)
        yield made


def arrives(system: WholeRun, *tables: str) -> None:
    for table in tables:
        system.arrives(QUERIES[table], system.read_source("s", QUERIES[table]))


@pytest.mark.parametrize(
    "how", ["created again", "deleted", "created again while stopped", "deleted while stopped"]
)
@pytest.mark.parametrize("repair", ["copy"])
def test_a_copy_heals_a_table_with_another_topic(system: WholeRun, kafka: Kafka, how: str) -> None:
    topic = system.topic("s", "acct")
    system.run.start()
    arrives(system, "acct", "other")
    stopped = how.endswith("while stopped")
    if stopped:
        assert system.run.stop() == 0
    delete_topic(kafka.bootstrap, topic)
    if how.startswith("created"):
        create_topic(kafka.bootstrap, topic)
    system.change("s", *LOST, "INSERT INTO other VALUES (2, 2)")
    if stopped:
        system.run.start()
    arrives(system, "other", "acct")
    system.change("s", "DELETE FROM acct WHERE id = 2", "INSERT INTO acct VALUES (5, 5)")
    arrives(system, "acct")
    for pipeline in ("pg", "my"):
        look = lambda pipeline=pipeline: system.unit(pipeline, "s", "acct")  # noqa: E731
        found = system.await_state("the unit is current", look, "current")
        assert found["stopped"] is None
        other = system.unit(pipeline, "s", "other") or {}
        assert (other["state"], other["stopped"]) == ("current", None)


@pytest.mark.parametrize("repair", ["stop"])
def test_without_repair_the_table_waits_for_the_command(system: WholeRun, kafka: Kafka) -> None:
    system.run.start()
    arrives(system, "acct", "other")
    topic = system.topic("s", "acct")
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic)
    system.change("s", *LOST)
    stops = system.run.until(
        lambda: next((each["tables"] for each in system.status()["sources"] if each["tables"]), None),
        "capture stops the table",
    )
    assert [(each["table"], each["cause"]) for each in stops] == [(f"{system.db}.acct", "topic-lost")]
    assert stops[0]["remedy"] == f"rowlock copy {system.db}.acct"
    for pipeline in ("pg", "my"):
        look = lambda pipeline=pipeline: system.unit(pipeline, "s", "acct")  # noqa: E731
        found = system.await_state("the unit waits", look, "stopped")
        assert "created again" in found["reason"]
        assert found["remedy"] == f"rowlock copy {system.db}.acct"
        assert found["lag_events"] is None, "what is applied has offsets of the former topic"
    system.change("s", "INSERT INTO other VALUES (2, 2)", "INSERT INTO acct VALUES (6, 6)")
    arrives(system, "other")
    assert system.read("pg", QUERIES["acct"]) == [(1, 1), (2, 1), (3, 1)], (
        "nothing is applied across the hole"
    )
    copied = system.invoke("copy", f"{system.db}.acct")
    assert copied.exit_code == 0, copied.output
    arrives(system, "acct")
