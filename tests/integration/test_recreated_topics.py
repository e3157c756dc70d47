"""A table's topic that is deleted, or deleted and created again: the table is copied into the new topic, and
no other table waits for that."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from rowlock.views.kafka import KafkaView
from schemas.config.model import KafkaConfig
from tests.kits.apply import create_topic, delete_topic
from tests.kits.whole_run import PATIENCE_S, WholeRun, whole_run

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


@pytest.mark.parametrize("repair", ["copy", "stop"])
def test_check_announces_that_an_emptied_kafka_needs_copies_of_all_tables(
    system: WholeRun, kafka: Kafka, repair: str
) -> None:
    system.run.start()
    arrives(system, "acct", "other")
    assert system.run.stop() == 0
    assert list_warnings(system) == []
    prefix = system.topic("s", "acct").split(".")[0]
    with contextlib.closing(KafkaView(KafkaConfig(bootstrap=kafka.bootstrap, prefix=prefix))) as view:
        topics = [each for each in view.list_topics() if each.startswith(f"{prefix}.")]
    for topic in topics:
        delete_topic(kafka.bootstrap, topic)
    system.change("s", *LOST, "INSERT INTO other VALUES (2, 2)")
    (found,) = list_warnings(system)
    assert (found["place"], "that target my, pg has applied" in found["what"]) == ("source s", True)
    assert "all tables of the source are copied again" in found["remedy"]
    system.run.start()
    for table in ("acct", "other") if repair == "stop" else ():
        for pipeline in ("pg", "my"):
            # `stopped` is also the state of a unit that is not started yet.
            look = lambda pipeline=pipeline, table=table: (  # noqa: E731
                (unit := system.unit(pipeline, "s", table)) is not None
                and "Kafka no longer has the events" in (unit["reason"] or "")
            )
            system.run.until(look, f"the unit of {table} in {pipeline} waits", PATIENCE_S)
        assert system.invoke("copy", f"{system.db}.{table}").exit_code == 0
    arrives(system, "other", "acct")
    system.change("s", "DELETE FROM acct WHERE id = 2", "INSERT INTO acct VALUES (5, 5)")
    arrives(system, "acct")
    assert "unit continues with a copy of its whole table" in system.run.log.read_text()
    assert list_warnings(system) == []


def list_warnings(system: WholeRun) -> list[dict[str, str]]:
    """Return what `check` finds about topics that Kafka has lost. Nothing that it finds is an error."""
    checked = system.invoke("check", "--output", "json")
    assert checked.exit_code == 0, checked.output
    return [each for each in json.loads(checked.stdout)["findings"] if "none of the topics" in each["what"]]


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


@pytest.mark.parametrize("repair", ["copy"])
def test_rows_that_were_displaced_before_are_superseded(system: WholeRun, kafka: Kafka) -> None:
    """The offsets of the events that displaced them are higher than that of the copy in the new topic."""
    system.change("s", "ALTER TABLE acct ADD COLUMN u VARCHAR(20) UNIQUE")
    system.run.start()
    arrives(system, "acct")
    system.targets["pg"].execute("INSERT INTO acct VALUES (90, 1, 'x')", database=system.db)
    system.change("s", "INSERT INTO acct VALUES (6, 1, 'x')")
    arrives(system, "acct")

    def count_displaced() -> tuple[int, int]:
        (found,) = [
            each
            for each in json.loads(system.invoke("quarantine", "list", "--output", "json").stdout)[
                "displaced"
            ]
            if each["pipeline"] == "pg"
        ] or [{"rows": 0, "superseded": 0}]
        return found["rows"], found["superseded"]

    assert count_displaced() == (1, 0)
    topic = system.topic("s", "acct")
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic)
    system.change("s", *(each.replace("VALUES (4, 1)", "VALUES (4, 1, NULL)") for each in LOST))
    arrives(system, "acct")
    assert count_displaced() == (0, 1)
