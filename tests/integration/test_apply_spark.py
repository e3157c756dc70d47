"""The apply process as an agent starts it: Kafka → Spark → a real target. One process for most tests."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from consumer.ordering.model import ApplyUnit
from consumer.tables.router import TableRoute, build_desired_table, build_target_table, resolve_route
from consumer.targets.dialect import open_session
from schemas.config.model import TargetConfig
from tests.kits.apply import (
    FakeSource,
    Topic,
    account_table,
    create_topic,
    delete_topic,
    until,
    write_config,
)
from tests.kits.assigned import Agent, AssignedApply, assigned_apply

ROUTES = [
    {"from": "many.*", "to": "public.{table}", "add": {"branch": "{source}"}},
    {"from": "bank.*", "to": "public.{table}"},
]


@dataclass
class Running:
    """A running apply process, who gives it units, and its target."""

    process: AssignedApply
    agent: Agent
    bootstrap: str
    prefix: str
    target: TargetConfig
    routes: tuple[TableRoute, ...]
    service: Any = None

    def execute(self, sql: str) -> None:
        self.service.execute(sql, database=self.target.database)

    def topic(self, source: FakeSource) -> Topic:
        return Topic(self.bootstrap, self.prefix, source)

    def applied(self, topic: Topic) -> None:
        """Wait until the target's progress stands at the topic's end."""
        with _Session(self.target) as session:
            session.ensure_bookkeeping()  # nobody has asked the target for anything before the first unit
            unit = ApplyUnit("p", topic.name)

            def done() -> bool:
                self.alive()
                rows, _ = session.read_progress(unit)
                return bool(rows) and min(row.offset for row in rows) == len(topic.written) - 1

            try:
                until(done, what=f"{topic.name} applied")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.reported(topic.name)}") from error

    def alive(self) -> None:
        assert self.process.popen.poll() is None, self.process.log()
        assert self.agent.error is None, self.agent.error

    def reported(self, topic: str) -> str:
        """What the process reported of a unit, its problems, and the end of its log: for a test that
        failed."""
        process = self.process
        return (
            f"unit: {process.last(unit_of(topic))}\nproblems: "
            f"{process.problems()[-10:]}\nlog: …{process.log()}"
        )

    def rows(self, source: FakeSource) -> list[tuple[object, ...]]:
        routed = resolve_route(self.routes, source.name, source.table.db, source.table.name)
        assert routed is not None
        with _Session(self.target) as session:
            real = session.read_table(routed.schema, routed.table)
            assert real is not None
            table = build_target_table(build_desired_table(source.table, routed), real)
            return sorted(session.fetch_rows(table, None, 100_000), key=str)

    def stopped(self, topic: Topic, saying: str) -> None:
        """Wait until the unit waits for a person, and process and target say why."""
        with _Session(self.target) as session:

            def waits() -> bool:
                self.alive()
                why = self.agent.waits_for(unit_of(topic.name))
                if why is None or saying not in why:
                    return False
                _, state = session.read_progress(ApplyUnit("p", topic.name), lanes=False)
                return state is not None and state.stopped == why

            try:
                until(waits, what=f"unit stopped by {saying!r}")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.reported(topic.name)}") from error


def unit_of(topic: str) -> str:
    return f"apply/p/{topic}"


class _Session:
    def __init__(self, target: TargetConfig) -> None:
        self._target = target

    def __enter__(self) -> Any:
        self._session = open_session(self._target, name="test")
        return self._session

    def __exit__(self, *_: object) -> None:
        self._session.close()


def rows_of(source: FakeSource, *added: str) -> list[tuple[object, ...]]:
    return sorted(((*row.values(), *added) for row in source.rows.values()), key=str)


@pytest.fixture(scope="module")
def running(kafka: Any, postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    name = f"t{secrets.token_hex(4)}"
    postgres.create_database(name)
    target = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": postgres.port,
        "user": postgres.user,
        "password": "x",
        "database": name,
    }
    folder = tmp_path_factory.mktemp("apply")
    config = write_config(
        folder, kafka=kafka, prefix=name, target=target, sources=["north", "south"], routes=ROUTES
    )
    routes = tuple(TableRoute(r["from"], r["to"], tuple(r.get("add", {}).items())) for r in ROUTES)  # type: ignore[attr-defined,arg-type]
    with assigned_apply(config) as process:
        with Agent(config, process) as agent:
            yield Running(process, agent, kafka.bootstrap, name, TargetConfig(**target), routes, postgres)
        assert process.stop() == 0
    postgres.drop_database(name)


def _source(name: str, db: str = "bank", source: str = "north") -> FakeSource:
    return FakeSource(table=account_table(db, name), name=source)


def test_histories_in_batches_of_any_size_arrive(running: Running) -> None:
    """Also: the topic appears while the process is already running."""
    source = _source("history")
    topic = running.topic(source)
    topic.write_changes([source.definition()])
    rng = random.Random(1)
    for count in (1, 40, 2500, 3):
        topic.write_changes(source.history(rng, count))
        running.applied(topic)
        assert running.rows(source) == rows_of(source)


def test_two_sources_flow_into_one_table(running: Running) -> None:
    sources = [_source("joint", "many", name) for name in ("north", "south")]
    topics = [running.topic(source) for source in sources]
    rng = random.Random(2)
    for source, topic in zip(sources, topics, strict=True):
        topic.write_changes([source.definition(), *source.history(rng, 300)])
    for topic in topics:
        running.applied(topic)
    both = sorted([row for source in sources for row in rows_of(source, source.name)], key=str)
    assert running.rows(sources[0]) == both
    topics[1].write_changes([sources[1].truncate(), sources[1].put(sources[1].row(1, "new@x", 1))])
    running.applied(topics[1])
    both = sorted([row for source in sources for row in rows_of(source, source.name)], key=str)
    assert running.rows(sources[0]) == both


def test_a_stopped_unit_does_not_hold_up_the_others(running: Running) -> None:
    bad, good = _source("gap"), _source("beside")
    bad_topic, good_topic = running.topic(bad), running.topic(good)
    bad_topic.write_changes([bad.definition()])
    bad.put(bad.row(1, None, 1))  # lost on the way
    bad_topic.write_changes([bad.put(bad.row(2, None, 1))])
    good_topic.write_changes([good.definition(), *good.history(random.Random(3), 50)])
    running.applied(good_topic)
    assert running.rows(good) == rows_of(good)
    running.stopped(bad_topic, "gap in the topic")
    good_topic.write_changes(good.history(random.Random(4), 50))
    running.applied(good_topic)
    assert running.rows(good) == rows_of(good)


def test_a_topic_that_is_made_again_stops_its_unit(running: Running) -> None:
    source = _source("again")
    topic = running.topic(source)
    topic.write_changes([source.definition(), source.put(source.row(1, None, 1))])
    running.applied(topic)
    delete_topic(running.bootstrap, topic.name)
    create_topic(running.bootstrap, topic.name)
    running.stopped(topic, "was deleted and created again")
    other = _source("after_again")
    other_topic = running.topic(other)
    other_topic.write_changes([other.definition(), other.put(other.row(1, None, 1))])
    running.applied(other_topic)


def test_a_progress_taken_back_is_applied_anew(running: Running) -> None:
    """A target restored from a backup: its older epoch fences the query, which then resumes at the backup's
    position."""
    source = _source("restored")
    topic = running.topic(source)
    topic.write_changes([source.definition(), *source.history(random.Random(5), 30)])
    running.applied(topic)
    running.execute("CREATE TABLE backup_rows AS SELECT * FROM restored")
    mine = f"WHERE topic = '{topic.name}'"
    running.execute(f"CREATE TABLE backup_progress AS SELECT * FROM rowlock_progress {mine}")
    topic.write_changes(source.history(random.Random(6), 30))
    running.applied(topic)
    running.execute("DELETE FROM restored")
    running.execute("INSERT INTO restored SELECT * FROM backup_rows")
    running.execute(f"DELETE FROM rowlock_progress {mine}")
    running.execute("INSERT INTO rowlock_progress SELECT * FROM backup_progress")
    running.execute(f"UPDATE rowlock_progress SET epoch = epoch - 1 {mine}")
    topic.write_changes(source.history(random.Random(7), 30))
    running.applied(topic)
    assert running.rows(source) == rows_of(source)


@pytest.mark.slow  # tests/integration/test_whole_way.py goes the whole way into MySQL, whose dialect this is
@pytest.mark.parametrize("kind", ["mariadb"])
def test_into_mariadb(
    kafka: Any, mariadb: Any, mariadb_db: str, unique: str, tmp_path: Path, kind: str
) -> None:
    target = {
        "type": kind,
        "host": "127.0.0.1",
        "port": mariadb.port,
        "user": "root",
        "password": "",
        "database": mariadb_db,
    }
    route = {"from": "bank.*", "to": mariadb_db + ".{table}"}
    config = write_config(
        tmp_path, kafka=kafka, prefix=unique, target=target, sources=["north"], routes=[route]
    )
    source = _source("acct")
    topic = Topic(kafka.bootstrap, unique, source)
    topic.write_changes([source.definition(), *source.history(random.Random(8), 1500)])
    with assigned_apply(config) as process:
        with Agent(config, process) as agent:
            routes = (TableRoute(**_of(route)),)
            running = Running(process, agent, kafka.bootstrap, unique, TargetConfig(**target), routes)
            running.applied(topic)
            assert running.rows(source) == rows_of(source)
            topic.write_changes(source.history(random.Random(9), 20))
            running.applied(topic)
            assert running.rows(source) == rows_of(source)
        assert process.stop() == 0


def _of(route: dict[str, str]) -> dict[str, str]:
    return {"from_": route["from"], "to": route["to"]}
