"""Two apply processes whose units an agent would give them: moves under load, pauses, deaths. PostgreSQL and
MySQL.

The targets keep a history of every write of a row, so that a version that goes back is seen whatever comes
after it.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from consumer.ordering.model import ApplyUnit
from consumer.targets.dialect import open_session
from deploy.embedded.services import MySQL
from schemas.config.model import TargetConfig
from tests.kits.apply import FakeSource, Topic, account_table, until
from tests.kits.assigned import AssignedApply, Writer, assigned_apply
from tests.kits.families import standing_still
from tests.services import without_mysql

KINDS = ["postgres", "mysql"]
EPOCHS = count(int(time.time() * 1000))


@dataclass
class Place:
    """A target of its own, with the pipeline that writes it: both are named like the kind of database."""

    kind: str
    config: TargetConfig
    service: Any
    history: str

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.service.execute(sql, database=self.config.database)
        return rows

    def offset(self, topic: str) -> int:
        session = open_session(self.config, name="test")
        try:
            rows, _ = session.read_progress(ApplyUnit(self.kind, topic))
            return min((row.offset for row in rows), default=-1)
        finally:
            session.close()

    def watch(self, table: str) -> None:
        """Keep what is written to `table`, in order."""
        self.query(self.history)
        if self.kind == "postgres":
            self.query(
                "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN INSERT INTO history (id, version) VALUES (NEW.id, NEW.version); RETURN NULL; END $$"
            )
            self.query(
                f"CREATE TRIGGER n AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION note()"
            )
            return
        for what in ("INSERT", "UPDATE"):
            self.query(
                f"CREATE TRIGGER n_{what} AFTER {what} ON {table} FOR EACH ROW "
                "INSERT INTO history (id, version) VALUES (NEW.id, NEW.version)"
            )


@dataclass
class TwoAgents:
    """Two processes of one configuration each, like two agents."""

    prefix: str
    bootstrap: str
    places: dict[str, Place]
    processes: list[AssignedApply]
    configs: list[Path]
    stack: ExitStack
    names: Iterator[int] = field(default_factory=count)

    def table(self, place: Place) -> tuple[FakeSource, Topic]:
        name = f"t{next(self.names)}"
        source = FakeSource(table=account_table("bank", name))
        topic = Topic(self.bootstrap, self.prefix, source)
        topic.write_changes([source.definition()])
        return source, topic

    def replace(self, number: int) -> AssignedApply:
        """Start another process in the place of one that is gone."""
        self.processes[number] = self.stack.enter_context(assigned_apply(self.configs[number], judged=False))
        self.processes[number].ready()
        return self.processes[number]


def _place(kind: str, service: Any, name: str) -> Place:
    service.create_database(name)
    password = "x" if kind == "postgres" else service.password
    config = TargetConfig(
        type=kind, host="127.0.0.1", port=service.port, user=service.user, password=password, database=name
    )  # type: ignore[arg-type]
    serial = "BIGSERIAL" if kind == "postgres" else "BIGINT AUTO_INCREMENT"
    return Place(
        kind, config, service, f"CREATE TABLE history (n {serial} PRIMARY KEY, id BIGINT, version INT)"
    )


def _config(folder: Path, kafka: Any, prefix: str, places: dict[str, Place]) -> Path:
    folder.mkdir()
    source = {
        "type": "mariadb",
        "host": "127.0.0.1",
        "port": 1,
        "user": "x",
        "password": "x",
        "tables": ["*.*"],
    }
    targets = {
        name: {**place.config.model_dump(mode="json"), "password": place.config.password.get_secret_value()}
        for name, place in places.items()
    }
    pipelines = {
        name: {
            "sources": ["branch1"],
            "target": name,
            "routes": [
                {
                    "from": "bank.*",
                    "to": ("public" if name == "postgres" else place.config.database) + ".{table}",
                }
            ],
        }
        for name, place in places.items()
    }
    path = folder / "rowlock.yaml"
    path.write_text(
        json.dumps(
            {
                "kafka": {"bootstrap": kafka.bootstrap, "prefix": prefix},
                "state_dir": str(folder / "state"),
                "sources": {"branch1": source},
                "targets": targets,
                "pipelines": pipelines,
            }
        )
    )
    return path


@pytest.fixture(scope="module")
def agents(
    kafka: Any, postgres: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwoAgents]:
    name = f"t{secrets.token_hex(4)}"
    places = {"postgres": _place("postgres", postgres, name)}
    if MySQL.explain_unavailable() is None:
        places["mysql"] = _place("mysql", request.getfixturevalue("mysql"), name)
    folder = tmp_path_factory.mktemp("assigned")
    configs = [_config(folder / which, kafka, name, places) for which in ("a", "b")]
    with ExitStack() as stack:
        processes = [stack.enter_context(assigned_apply(config, judged=False)) for config in configs]
        for process in processes:
            process.ready()
        yield TwoAgents(name, kafka.bootstrap, places, processes, configs, stack)
    for place in places.values():
        place.service.drop_database(name)


@pytest.fixture(params=KINDS)
def place(agents: TwoAgents, request: pytest.FixtureRequest) -> Place:
    if request.param not in agents.places:
        without_mysql(str(MySQL.explain_unavailable()))
    return agents.places[request.param]


def unit_of(place: Place, topic: Topic) -> str:
    return f"apply/{place.kind}/{topic.name}"


def give(process: AssignedApply, unit: str) -> int:
    """Open and start a unit; returns its epoch."""
    epoch = next(EPOCHS)
    process.do("prepare", unit, epoch)
    process.wait(unit, epoch, "prepared")
    process.do("start", unit, epoch)
    return epoch


def applied(place: Place, topic: Topic) -> None:
    until(lambda: place.offset(topic.name) == len(topic.written) - 1, what=f"{topic.name} applied")


def rows_are(place: Place, source: FakeSource) -> None:
    name = source.table.name
    found = place.query(f"SELECT id, email, version, note FROM {name} ORDER BY id")
    expected = sorted((r["id"], r["email"], r["version"], r["note"]) for r in source.rows.values())
    assert [tuple(row) for row in found] == expected


def nothing_went_back(place: Place) -> None:
    highest: dict[int, int] = {}
    for key, version in place.query("SELECT id, version FROM history ORDER BY n"):
        assert version >= highest.get(key, -1), f"row {key} went back"
        highest[key] = version
    assert highest


def changes(source: FakeSource, rng: random.Random, versions: Iterator[int]) -> Callable[[int], list[Any]]:
    """Return what makes `n` changes whose versions rise, some of them handing a unique value on."""

    def make(n: int) -> list[Any]:
        out = []
        for _ in range(n):
            key = rng.randrange(300)
            old = source.rows.get(key)
            email = old["email"] if old else f"{key}@x"
            if old and rng.random() < 0.1:
                other = rng.randrange(300)
                if other in source.rows and other != key:
                    out.append(source.put({**source.rows[other], "email": None, "version": next(versions)}))
                    email = f"{other}@x" if rng.random() < 0.5 else None
                    taken = {row["email"] for k, row in source.rows.items() if k != key}
                    email = None if email in taken else email
            out.append(source.put(source.row(key, email, next(versions), note="x" * rng.randrange(100))))
        return out

    return make


@contextmanager
def load(source: FakeSource, topic: Topic, rate: float) -> Iterator[Writer]:
    make = changes(source, random.Random(5), count(1))
    topic.write_changes(make(1))
    with Writer(lambda n: topic.write_changes(make(n)), rate) as writer:
        yield writer


def test_a_unit_moves_to_and_fro_under_load_and_nothing_is_lost_or_goes_back(agents: TwoAgents) -> None:
    place = agents.places["postgres"]
    source, topic = agents.table(place)
    beside_source, beside = agents.table(place)
    unit = unit_of(place, topic)
    here, there = agents.processes
    give(there, unit_of(place, beside))
    epoch = give(here, unit)
    applied(place, topic)
    place.watch(source.table.name)
    with load(source, topic, 300), load(beside_source, beside, 50):
        for _ in range(10):
            new = next(EPOCHS)
            there.do("prepare", unit, new)
            there.wait(unit, new, "prepared")
            here.do("remove", unit, epoch)
            _, ended = here.wait(unit, epoch, "ended")
            assert ended["error"] is None
            there.do("start", unit, new)
            before = place.offset(topic.name)
            until(lambda before=before: place.offset(topic.name) > before, what="applied after a move")  # type: ignore[misc]
            here, there, epoch = there, here, new
    applied(place, topic)
    applied(place, beside)
    rows_are(place, source)
    rows_are(place, beside_source)
    nothing_went_back(place)
    position = tuple(topic.written[-1].source.position)

    def reported() -> bool:
        mark = (here.last(unit) or {}).get("mark")
        return mark is not None and tuple(mark[2]) == position

    until(reported, what="the mark's position")


def test_a_paused_process_can_never_write_again(agents: TwoAgents, place: Place) -> None:
    """Paused in the middle of a target transaction; the other's take-over finds and ends the connection."""
    source, topic = agents.table(place)
    unit = unit_of(place, topic)
    paused, heir = agents.processes
    old = give(paused, unit)
    topic.write_changes([source.put(source.row(1, "1@x", 1))])
    applied(place, topic)
    with _row_locked(place, source.table.name) as release:
        topic.write_changes([source.put(source.row(1, "1@x", 2))])
        until(lambda: _lock_waits(place), what="a worker in the middle of its transaction")
        with standing_still(paused.popen.pid):
            release()
            topic.write_changes([source.put(source.row(1, "1@x", 3))])
            give(heir, unit)
            applied(place, topic)
            assert place.query(f"SELECT version FROM {source.table.name}") == [(3,)]
    topic.write_changes([source.put(source.row(1, "1@x", 4))])
    applied(place, topic)
    topic.write_changes([source.put(source.row(2, "2@x", 5))])
    applied(place, topic)
    assert place.query(f"SELECT version FROM {source.table.name} ORDER BY id") == [(4,), (5,)]
    _, ended = paused.wait(unit, old, "ended")
    assert "assigned to another process" in str(ended["error"])
    assert paused.popen.poll() is None
    assert "connections that locked progress rows killed" in heir.errors.read_text()


@contextmanager
def _row_locked(place: Place, table: str) -> Iterator[Callable[[], None]]:
    """Hold a lock on the table's row 1, until released."""
    connection = place.service.connect(place.config.database)
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    cursor.execute(f"SELECT id FROM {table} WHERE id = 1 FOR UPDATE")
    try:
        yield lambda: cursor.execute("ROLLBACK")
    finally:
        connection.close()


def _lock_waits(place: Place) -> bool:
    sql = {
        "postgres": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
        "datname = current_database()",
        "mysql": "SELECT count(*) FROM performance_schema.data_lock_waits",
    }[place.kind]
    return bool(place.query(sql)[0][0])


def test_a_unit_that_must_stop_says_why_and_the_others_go_on(agents: TwoAgents) -> None:
    place = agents.places["postgres"]
    process = agents.processes[0]
    tables = [agents.table(place) for _ in range(12)]
    for number, (source, topic) in enumerate(tables):
        topic.write_changes([source.put(source.row(1, None, number))])
    bad_source, bad_topic = tables[0]
    bad_source.put(bad_source.row(5, None, 1))  # lost on the way
    bad_topic.write_changes([bad_source.put(bad_source.row(6, None, 1))])
    epoch = next(EPOCHS)
    for _, topic in tables:
        process.do("prepare", unit_of(place, topic), epoch)
    for _, topic in tables:
        process.wait(unit_of(place, topic), epoch, "prepared")
        process.do("start", unit_of(place, topic), epoch)
    for _, topic in tables[1:]:
        applied(place, topic)
    waiting = process.wait_error(unit_of(place, bad_topic), epoch)
    assert "gap" in waiting["error"]
    stopped = place.query(f"SELECT stopped FROM rowlock_unit WHERE topic = '{bad_topic.name}'")
    assert "gap" in stopped[0][0]
    for source, topic in tables[1:]:
        topic.write_changes([source.put(source.row(2, None, 7))])
    for source, topic in tables[1:]:
        applied(place, topic)
        rows_are(place, source)
        process.do("remove", unit_of(place, topic), epoch)
        process.wait(unit_of(place, topic), epoch, "ended")
    assert process.errors.read_text().count('"unit stopped"') == 1, "told once, with its table"
    process.do("remove", unit_of(place, bad_topic), epoch)
    _, ended = process.wait(unit_of(place, bad_topic), epoch, "ended")
    assert ended["error"] is None
    stopped = place.query(f"SELECT stopped FROM rowlock_unit WHERE topic = '{bad_topic.name}'")
    assert "gap" in stopped[0][0]


def test_a_backlog_is_caught_up_without_holding_up_the_others(agents: TwoAgents) -> None:
    place = agents.places["postgres"]
    process = agents.processes[0]
    source, topic = agents.table(place)
    make = changes(source, random.Random(6), count(1))
    topic.write_changes(make(65_000))
    quick_source, quick = agents.table(place)
    give(process, unit_of(place, quick))
    give(process, unit_of(place, topic))
    quick.write_changes([quick_source.put(quick_source.row(1, None, 1))])
    applied(place, quick)
    applied(place, topic)
    rows_are(place, source)
    topic.write_changes(make(10))
    applied(place, topic)
    rows_are(place, source)


@pytest.mark.slow  # tests/faults/test_whole_system.py kills the driver as well
def test_the_end_of_stdin_ends_everything_and_a_dead_process_is_replaced(agents: TwoAgents) -> None:
    place = agents.places["postgres"]
    source, topic = agents.table(place)
    unit = unit_of(place, topic)
    with load(source, topic, 200):
        first = agents.processes[0]
        give(first, unit)
        until(lambda: place.offset(topic.name) > 20, what="applied")
        family = psutil.Process(first.popen.pid).children(recursive=True)
        first.popen.kill()
        second = agents.processes[1]
        epoch = give(second, unit)
        before = place.offset(topic.name)
        until(lambda: place.offset(topic.name) > before, what="applied by the other process")
        psutil.wait_procs(family, timeout=30)
        assert second.end() == 0
        assert any(
            line.get("event") == "ended" and line["assignment"] == epoch for _, line in second.reported
        )
        for number in range(2):
            agents.replace(number)
        give(agents.processes[0], unit)
    applied(place, topic)
    rows_are(place, source)
