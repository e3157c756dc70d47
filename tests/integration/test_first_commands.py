"""Every command that reads a target, on a target that rowlock has not written yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from confluent_kafka import Producer

from consumer.targets.dialect import open_target
from consumer.targets.progress import run_create
from deploy.embedded.services import Kafka, MariaDB
from rowlock.coordinator.fences import UnitFencer
from schemas.config.kinds.targets import TARGET_KINDS
from schemas.config.model import load_config
from schemas.units import build_apply_unit_name
from tests.kits.apply import create_topic
from tests.kits.command_line import invoke
from tests.kits.running import source_config, write_config
from tests.kits.targets import KINDS, fresh
from tests.stands import json_folder

pytestmark = pytest.mark.timeout(240)
SQL_KINDS = (*KINDS, "oracle")
#: What no message about a new target may contain: a bookkeeping table, which its user has never heard of, and
#: the numbers of errors for "there is no such table".
INTERNAL = ("rowlock_", "42p01", "(1146)", "ora-00942", "traceback")


@dataclass
class FirstHour:
    """A source with one table, its topic in Kafka, and a target of one kind."""

    config: Path
    topic: str

    def invoke(self, *words: str) -> Result:
        return invoke(self.config, *words)

    def create_first_table(self) -> None:
        """Create the first of the bookkeeping tables."""
        with closing(open_target(load_config(self.config).targets["hq"], name="rowlock test")) as opened:
            session: Any = opened
            tables = session._books.tables
            run_create(session._link, tables.build_create(tables.list_names()[0]))


def write_parts(
    folder: Path, kafka: Kafka, source: MariaDB, db: str, target: dict[str, Any], to: str
) -> FirstHour:
    config = write_config(
        folder,
        kafka={"bootstrap": kafka.bootstrap, "prefix": db},
        sources={"b": {**source_config(source, "mariadb", db), "events": "debezium"}},
        targets={"hq": target},
        pipelines={"p": {"sources": ["b"], "target": "hq", "routes": [{"from": f"{db}.*", "to": to}]}},
    )
    return FirstHour(config, f"{db}.b.{db}.acct")


@pytest.fixture
def source(kafka: Kafka, mariadb: MariaDB, unique: str) -> Iterator[str]:
    """Return the name of a database with the table, which has a topic."""
    db = f"{unique}_s"
    mariadb.create_database(db)
    mariadb.execute("CREATE TABLE acct (id INT PRIMARY KEY, name VARCHAR(20))", database=db)
    mariadb.execute("INSERT INTO acct VALUES (1, 'ann')", database=db)
    create_topic(kafka.bootstrap, topic := f"{db}.b.{db}.acct")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value=None)
    assert producer.flush(60) == 0
    yield db
    mariadb.drop_database(db)


@pytest.fixture
def first(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    mariadb: MariaDB,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[FirstHour]:
    monkeypatch.setattr("rowlock.coordinator.leader_client.UNHEARD_S", 0.0)
    monkeypatch.setattr("rowlock.processes.run.run_processes", ask_once)
    kind = request.param
    if kind == "json":
        monkeypatch.setitem(TARGET_KINDS, kind, json_folder.KIND)
        target = {"type": kind, "host": "h", "user": "u", "password": "p", "database": str(tmp_path / "t")}
        yield write_parts(tmp_path, kafka, mariadb, source, target, "head.{table}")
        return
    if kind == "kafka":
        target = {"type": kind, "bootstrap": kafka.bootstrap, "prefix": f"{source}.out"}
        yield write_parts(tmp_path, kafka, mariadb, source, target, "head.{table}")
        return
    with fresh(kind, request) as made:
        values = made.config().model_dump(mode="json", include={"type", "host", "port", "user", "database"})
        target = {**values, "password": made.service.password}
        yield write_parts(tmp_path, kafka, mariadb, source, target, f"{made.schema}.{{table}}")


def ask_once(_config: object, goal: Callable[[], bool] | None, **_: object) -> int:
    """Take the place of the processes of a run: ask once whether the goal is reached, which it is not."""
    return int(goal is not None and goal())


def look(first: FirstHour, code: int, *words: str) -> Result:
    """Run a command, which ends with `code` and names nothing internal."""
    result = first.invoke(*words)
    seen = f"{words}: {result.exit_code} {result.output}"
    assert result.exception is None or isinstance(result.exception, SystemExit), seen
    assert result.exit_code == code, seen
    assert not [word for word in INTERNAL if word in result.output.lower()], seen
    return result


def look_at_all(first: FirstHour) -> None:
    assert "error" not in [
        each["level"] for each in json.loads(look(first, 0, "check", "--output", "json").stdout)["findings"]
    ]
    look(first, 0, "run")
    look(first, 0, "run", "--until-caught-up")
    plan = json.loads(look(first, 0, "check", "--plan", "--output", "json").stdout)
    assert plan["layouts"] == []
    status = json.loads(look(first, 1, "status", "--output", "json").stdout)
    assert [(unit["topic"], unit["state"]) for unit in status["units"]] == [(first.topic, "new")]
    look(first, 1, "status")
    verdict = json.loads(look(first, 1, "verify", "--settle", "0", "--output", "json").stdout)
    assert verdict["problem"]
    assert look(first, 0, "quarantine", "list").stdout == "nothing is held\n"
    for words in (("retry",), ("skip", "--yes")):
        assert "no held event matches" in look(first, 0, "quarantine", *words).stdout


@pytest.mark.parametrize("first", [*SQL_KINDS, "kafka", "json"], indirect=True)
def test_commands_read_a_target_that_is_empty(first: FirstHour) -> None:
    look_at_all(first)
    UnitFencer(load_config(first.config))(build_apply_unit_name("p", first.topic), "hq/id", 1)


@pytest.mark.parametrize("first", SQL_KINDS, indirect=True)
def test_commands_read_a_target_with_the_first_table_only(first: FirstHour) -> None:
    """A process was killed between the first CREATE TABLE and the last."""
    first.create_first_table()
    look_at_all(first)


@pytest.mark.parametrize(
    "change", [{"database": "nosuch"}, {"port": 1}, {"user": "nosuch"}], ids=lambda change: next(iter(change))
)
@pytest.mark.parametrize("first", KINDS, indirect=True)
def test_a_target_that_cannot_be_opened_is_reported_with_a_remedy(
    first: FirstHour, change: dict[str, Any]
) -> None:
    parts = yaml.safe_load(first.config.read_text())
    parts["targets"]["hq"] |= change
    first.config.write_text(yaml.safe_dump(parts))
    [found] = json.loads(look(first, 1, "check", "--output", "json").stdout)["findings"]
    assert found["remedy"]
    assert found["remedy"] in look(first, 2, "quarantine", "list").output
    look(first, 2, "run")
