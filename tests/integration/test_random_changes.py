"""Random histories of rows and of tables at real sources, captured in stretches and with kills, applied under each policy: target = source.

Where a unit needs a copy it is asked for, as the apply process would; capture makes it while statements go on. Under `stop`, and where a unit under
`ignore` says that the target's table must be mended, a person does what the message says: the target's table goes, and a copy makes it anew. Under
`ignore` what the target does not have is not compared, and no row differs that the quarantine does not hold.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.process.operations.copy_desk import send_request
from consumer.tables.router import Policy, target_table
from consumer.targets.dialect import open_session
from deploy.embedded.services import Kafka
from schemas.config.model import KafkaConfig, TargetConfig
from schemas.table.model import Row, Value
from schemas.wire.copies import CopyRequest
from tests.capture_kit import messages, running, size, source, watermarks, write_config
from tests.changed_tables import History, statements
from tests.integration.test_apply_targets import Real
from tests.integration.test_schema_changes import TopicUnit
from tests.targets_kit import fresh
from tests.waiting import until

TABLES = 6
POLICIES: tuple[Policy, ...] = ("ignore", "lenient", "evolve", "stop")
BY_HAND = (
    "so that no column beside it can take its place: set `schema_changes: evolve`, or change its type by hand"
)
"""What `lenient` says of a column of a unique index that gets another type."""
ROUNDS = 8
"""Copies that one unit may need: a history has so many changes at most, with all of them apart."""


class Play:
    """Histories of the tables of one source."""

    def __init__(self, kafka: Kafka, database: Any, db: str, folder: Path, seed: int) -> None:
        self.kafka, self.database, self.db = kafka, database, db
        self.rng = random.Random(seed)
        self.histories = [History(f"h{n}", random.Random(seed * 100 + n)) for n in range(TABLES)]
        self.kind = "mariadb" if type(database).__name__ == "MariaDB" else "mysql"
        self.config = write_config(folder, kafka.bootstrap, db, {"s": source(database, [f"{db}.*"])})
        self.ran: list[str] = []
        with database.connect(db) as connection, connection.cursor() as cursor:
            for history in self.histories:
                cursor.execute(history.create)

    def change(self, count: int, ddl: float) -> None:
        with contextlib.closing(self.database.connect(self.db)) as connection, connection.cursor() as cursor:
            for history, text in statements(self.histories, self.rng, count, ddl):
                try:
                    cursor.execute(text)
                except pymysql.MySQLError as error:
                    self.ran.append(f"-- {text} ({error.args[0]})")
                else:
                    history.done()
                    self.ran.append(text)
            connection.commit()

    @contextlib.contextmanager
    def capture(self) -> Iterator[Any]:
        before = self._gen()
        with running(self.config, "s") as unit:
            until(lambda: self._gen() > before, f"a start; {unit.says()[-3000:]}", 300)
            yield unit

    def _gen(self) -> int:
        found = watermarks(self.kafka.bootstrap, self.db, "s")
        return max((each.gen for each in found), default=0)

    def captured(self, unit: Any) -> None:
        """Await that capture has all that the source did, and no copy is under way."""
        mark = len(self.ran)
        self.database.execute(f"CREATE TABLE IF NOT EXISTS {self.db}.beat (id INT PRIMARY KEY)")
        self.database.execute(f"REPLACE INTO {self.db}.beat VALUES ({mark})")
        topic = f"{self.db}.s.{self.db}.beat"
        wanted = f'"after":{{"id":{mark}}}'.encode()
        until(
            lambda: size(self.kafka.bootstrap, topic) and any(wanted in (m.value() or b"") for m in messages(self.kafka.bootstrap, topic)),
            f"captured; {unit.says()[-3000:]}", 300,
        )  # fmt: skip

        def quiet() -> bool:
            found = watermarks(self.kafka.bootstrap, self.db, "s")
            last = max(found, key=lambda each: (each.gen, each.ts_ms))
            busy = [each for each in last.copies.values() if each.phase in ("waiting", "running")]
            return not busy and not last.snapshot_pending

        until(quiet, f"no copy under way; {unit.says()[-3000:]}", 300)

    def topic(self, name: str) -> str:
        return f"{self.db}.s.{self.db}.{name}"

    def rows(self, name: str) -> tuple[tuple[str, ...], list[Row]]:
        values = {
            "type": self.kind, "host": self.database.host, "port": self.database.port, "user": self.database.user, "password": "",
            "database": self.db,
        }  # fmt: skip
        with contextlib.closing(open_session(TargetConfig.model_validate(values), name="judge")) as session:
            table = session.read_table(self.db, name)
            assert table is not None
            return table.column_names, session.fetch_rows(target_table(table, table), None, 1000)

    def ask(self, name: str, after: int, policy: str) -> None:
        request = CopyRequest(
            id=f"{name} {policy} {after} {self.rng.random()}",
            db=self.db,
            table=name,
            by="operator",
            requested_ms=0,
            after=after,
        )
        kafka = KafkaConfig.model_validate({"bootstrap": self.kafka.bootstrap, "prefix": self.db})
        send_request(kafka, "s", request)


class PlayedUnit(TopicUnit):
    """A unit over a topic that grows."""

    def __init__(self, real: Real, play: Play, name: str, policy: Policy) -> None:
        self.play, self.name = play, name
        shell: Any = type("Raw", (), {"raw": {name: []}, "topic": staticmethod(play.topic)})
        super().__init__(real, shell, name, policy)
        self.policy = policy
        self.said: list[str] = []

    def apply(self, start: int = 0) -> Report:
        self.topic = [m.value() for m in messages(self.play.kafka.bootstrap, self.play.topic(self.name))]
        spec = UnitSpec(
            unit=self.unit, source="s", epoch=self.epoch, topic_id="id", routes=self.routes, lanes=self.lanes, patient=True,
            scratch=str(self.play.config.parent),
        )  # fmt: skip
        return apply_topic(
            spec, self.real.cache, self._slices(start, len(self.topic)), read_missing=self._slices, tables=self.real.tables,
            find_begin=lambda after, hint: find_begin(self._slices, lambda first: self._slices(first, len(self.topic)), after, hint),
        )  # fmt: skip

    def tended(self, report: Report) -> int:
        """Do what a person does for a unit that is stopped; returns behind which offset its copy begins."""
        self.said.append(report.message)
        assert ": " in report.message, "what was seen, and what to do"
        if report.copy is not None:
            assert "rowlock copy" in report.message, (self.unit, report.message)
        if self.policy == "stop" or report.copy is None:
            by_hand = self.policy in ("ignore", "stop") or (
                self.policy == "lenient" and BY_HAND in report.message
            )
            assert by_hand, (self.unit, report.message, history_of(self.play, self.name))
            self.real.execute(f"DROP TABLE IF EXISTS {self.real.schema}.{self.place[1]}")
        return len(self.topic) - 1 if report.copy is None else report.copy.after

    def held(self) -> set[str]:
        """Return the keys of the rows that the quarantine holds."""
        return {str(json.loads(each.key)[0]) for each in self.real.session.held(self.unit)}


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))])
def test_whatever_happens_at_the_source_the_target_ends_equal(
    kafka: Kafka, database: Any, db: str, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    play = Play(kafka, database, db, tmp_path, seed)
    play.change(60, 0.0)
    with contextlib.ExitStack() as stack:
        targets = [
            stack.enter_context(fresh(kind, request))
            for kind in ("postgres", "mysql" if play.kind == "mariadb" else "mariadb")
        ]
        reals = [stack.enter_context(contextlib.closing(Real(target))) for target in targets]
        units = [
            PlayedUnit(real, play, history.name, policy)
            for real in reals
            for policy in POLICIES
            for history in play.histories
        ]  # fmt: skip
        who = random.Random(seed)  # the history is the same whatever units there are
        for stretch in range(4):
            with play.capture() as unit:
                play.change(40, 0.15)
                if play.rng.random() < 0.5:
                    play.captured(unit)
                    for each in who.sample(units, len(units) // 2):
                        each.apply()
                unit.kill() if play.rng.random() < 0.5 else unit.stop()
            if stretch < 3 and play.rng.random() < 0.5:
                play.change(8, 0.3)  # capture is behind: two statements on a table cannot be told apart
        with play.capture() as unit:
            play.captured(unit)
            for _ in range(ROUNDS):
                waiting = []
                for each in units:
                    each.take_over()
                    report = each.apply()
                    if report.state == "stopped":
                        waiting.append((each, each.tended(report)))
                    else:
                        assert report.state == "ok", report.message
                if not waiting:
                    break
                for name in {each.name for each, _ in waiting}:
                    play.ask(name, max(after for each, after in waiting if each.name == name), "any")
                until(
                    lambda waiting=waiting: all(begun(play, each, after) for each, after in waiting),  # type: ignore[misc]
                    f"copies begin; {unit.says()[-3000:]}",
                    300,
                )
                play.captured(unit)
            else:
                raise AssertionError([(each.unit, each.said) for each, _ in waiting])
            wrong = [why for each in units if (why := differs(play, each)) is not None]
            assert not wrong, "\n".join(wrong)
            said = {
                policy: sum(len(each.said) for each in units if each.policy == policy) for policy in POLICIES
            }
            assert said["stop"] >= TABLES, f"under `stop` a unit stops at a statement: {said}"


def begun(play: Play, unit: PlayedUnit, after: int) -> bool:
    found = watermarks(play.kafka.bootstrap, play.db, "s")
    last = max(found, key=lambda each: (each.gen, each.ts_ms))
    state = last.copies.get(f"{play.db}.{unit.name}")
    assert state is None or state.phase != "refused", state
    return state is not None and state.offset is not None and state.offset > after


def in_common(unit: PlayedUnit, columns: Sequence[str]) -> list[str]:
    """Return the columns of the source to compare: under `ignore` those that the target has."""
    return [each for each in columns if unit.policy != "ignore" or unit.has(each)]


def history_of(play: Play, name: str) -> str:
    return "\n".join(text for text in play.ran if f" {name} " in text)


def differs(play: Play, unit: PlayedUnit) -> str | None:
    names, rows = play.rows(unit.name)
    columns = in_common(unit, names)
    at = [names.index(each) for each in columns]
    of_source = [tuple(row[i] for i in at) for row in rows]
    held = unit.held()
    assert not held or unit.policy == "ignore", (unit.unit, held)
    key = columns.index("id")
    wanted, found = (
        sorted((row for row in plain(each, unit.policy) if str(row[key]) not in held), key=str)
        for each in (of_source, unit.target_rows(columns))
    )
    if wanted == found:
        return None
    return f"{unit.real.target.kind} {unit.place}: {columns}\nsource {wanted}\ntarget {found}\n{history_of(play, unit.name)}"


def plain(rows: Sequence[Row], policy: str) -> list[Row]:
    """Under `lenient` a DECIMAL keeps its digits behind the point at the target: zeros at the end say nothing there. Under `ignore` every column
    keeps its type: a number may be text there, and a time has fewer digits."""
    if policy not in ("ignore", "lenient"):
        return list(rows)
    return [
        tuple(_plain(str(value) if policy == "ignore" and value is not None else value) for value in row)
        for row in rows
    ]


def _plain(value: Value) -> Value:
    if isinstance(value, str) and re.fullmatch(r"(-?\d+|[-\d]{10}[ T][:\d]{8})\.\d+", value):
        return value.rstrip("0").removesuffix(".")
    return value


#: Table → statements at the source, of which each is captured and applied before the next one; "…" at the target; and whether a copy is needed.
COMES_BACK: dict[str, tuple[tuple[str, ...], bool]] = {
    "h0": (("ALTER TABLE h0 RENAME COLUMN v TO w", "UPDATE h0 SET w = 'new' WHERE id = 1", "ALTER TABLE h0 RENAME COLUMN w TO v"), True),
    "h1": (("ALTER TABLE h1 DROP COLUMN v", "UPDATE h1 SET n = 5 WHERE id = 1", "ALTER TABLE h1 ADD COLUMN v VARCHAR(10) DEFAULT 'd'"), True),
    "h2": (("ALTER TABLE h2 ADD COLUMN c INT DEFAULT 7", "UPDATE h2 SET c = 8 WHERE id = 1", "… ADD COLUMN c INT"), True),
    "h3": (("ALTER TABLE h3 DROP COLUMN v", "ALTER TABLE h3 ADD COLUMN w VARCHAR(10)", "ALTER TABLE h3 RENAME COLUMN w TO v"), True),
    "h4": (("ALTER TABLE h4 ADD COLUMN c INT", "ALTER TABLE h4 DROP COLUMN c", "ALTER TABLE h4 ADD COLUMN c INT DEFAULT 7"), False),
    "h5": (("ALTER TABLE h5 ADD COLUMN c INT", "ALTER TABLE h5 RENAME COLUMN c TO d", "UPDATE h5 SET d = 3, v = 'w' WHERE id = 2"), False),
}  # fmt: skip


def test_a_column_that_leaves_what_is_written_and_comes_back_has_the_values_of_the_source(
    kafka: Kafka, database: Any, db: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Under `ignore` nothing is altered, and what was left out comes back with old values in rows that have not changed since: they are copied."""
    play = Play(kafka, database, db, tmp_path, 1)
    for name in COMES_BACK:
        values = ", ".join(f"({key}, 'old{key}', {key}, 1)" for key in range(1, 7))
        database.execute(f"INSERT INTO {db}.{name} (id, v, n, version) VALUES {values}")
    with contextlib.ExitStack() as stack:
        real = stack.enter_context(contextlib.closing(Real(stack.enter_context(fresh("postgres", request)))))
        units = {name: PlayedUnit(real, play, name, "ignore") for name in COMES_BACK}
        with play.capture() as unit:
            reports: dict[str, Report] = {}
            for step in range(3):
                for name, (texts, _) in COMES_BACK.items():
                    if texts[step].startswith("…"):
                        real.execute(f"ALTER TABLE {units[name].place[1]} {texts[step][2:]}")
                    else:
                        with (
                            contextlib.closing(database.connect(db)) as connection,
                            connection.cursor() as cursor,
                        ):
                            cursor.execute(texts[step])
                            connection.commit()
                play.ran.append(str(step))
                play.captured(unit)
                for name, each in units.items():
                    each.take_over()
                    reports[name] = report = each.apply()
                    assert report.state == "ok" or step == 2, (name, report.message)
            needed = {name: report for name, report in reports.items() if report.state == "stopped"}
            assert set(needed) == {name for name, (_, copied) in COMES_BACK.items() if copied}
            for name, report in needed.items():
                assert report.copy is not None, (name, report.message)
                play.ask(name, units[name].tended(report), "ignore")
            until(
                lambda: all(begun(play, units[name], report.copy.after) for name, report in needed.items() if report.copy),
                f"copies begin; {unit.says()[-3000:]}", 300,
            )  # fmt: skip
            play.captured(unit)
            for each in units.values():
                each.take_over()
                report = each.apply()
                assert report.state == "ok", (each.name, report.message)
                why = differs(play, each)
                assert why is None, why
            assert in_common(units["h2"], ["c"]) == ["c"]
            assert in_common(units["h4"], ["c"]) == []
