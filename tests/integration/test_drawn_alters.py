"""Random statements on a table at a real source, told as capture tells them and applied under each policy: target = source behind each.

There is no log and no Kafka: rows are compared around each statement. What capture decides by is the product's; so are the attempts.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.tables.router import Policy, target_table
from consumer.targets.dialect import open_session
from producer.statements.columns import changes, said
from producer.statements.judgement import judge
from schemas.config.model import TargetConfig
from schemas.io.mysql_catalog import read_table
from schemas.io.mysql_connection import connect_mysql
from schemas.table.model import Table, Value, same_definition
from schemas.wire.codec import encode_event
from schemas.wire.copies import CopyMark
from schemas.wire.event import Chunk
from tests.apply_kit import FakeSource
from tests.drawn_alters import History
from tests.integration.test_apply_targets import Real
from tests.integration.test_schema_changes import TopicUnit
from tests.played_changes import BY_HAND, plain
from tests.targets_kit import Target, fresh

FORM = "(id INT PRIMARY KEY, v VARCHAR(10), n INT, version INT NOT NULL) CHARACTER SET utf8mb4"
POLICIES: tuple[Policy, ...] = ("lenient", "evolve", "ignore", "stop")
SEEDS = int(os.environ.get("ROWLOCK_DRAWN_ALTERS", "3"))
STEPS = int(os.environ.get("ROWLOCK_DRAWN_STEPS", "40"))
FROM = int(os.environ.get("ROWLOCK_DRAWN_FROM", "0"))


class DrawnSource:
    """A table `h` with its topic. `ran`: statements that the server took."""

    def __init__(self, database: Any, db: str, seed: int) -> None:
        self.database, self.db = database, db
        self.kind = "mariadb" if type(database).__name__ == "MariaDB" else "mysql"
        self.history = History("h", random.Random(seed))
        self.ran: list[str] = []
        self.refused: list[str] = []
        self.topic: list[bytes] = []
        self.link = database.connect(db)
        self.catalog = connect_mysql(database.host, database.port, "root", "", db)
        values = {
            "type": self.kind,
            "host": database.host,
            "port": database.port,
            "user": database.user,
            "password": "",
            "database": db,
        }
        self.session = open_session(TargetConfig.model_validate(values), name="judge")
        self._run(f"CREATE TABLE h {FORM}")
        self.table = self.defined()
        self.fake = FakeSource(table=self.table, name="s")
        self.rows: dict[Any, dict[str, Value]] = {}
        self._write("m", definition=self.table)

    def close(self) -> None:
        for each in (self.link, self.catalog, self.session):
            each.close()

    def _run(self, text: str) -> bool:
        try:
            with self.link.cursor() as cursor:
                cursor.execute(text)
            self.link.commit()
        except pymysql.MySQLError as error:
            self.refused.append(f"{text} -- {error.args}")
            return False
        self.ran.append(text)
        return True

    def defined(self) -> Table:
        return read_table(self.catalog, self.db, "h")

    def read(self) -> dict[Any, dict[str, Value]]:
        names = self.table.column_names
        real = self.session.read_table(self.db, "h")
        assert real is not None
        found = self.session.fetch_rows(target_table(self.table, real), None, 1000)
        at = self.table.indexes_of(self.table.key.columns)
        return {tuple(row[i] for i in at): dict(zip(names, row, strict=True)) for row in found}

    def _write(self, op: Any, before: Any = None, after: Any = None, **more: Any) -> None:
        self.topic.append(encode_event(self.fake.event(op, before, after, **more)))

    def step(self, ddl: float) -> bool:
        text = self.history.statement(ddl)
        if not self._run(text):
            return False
        self.history.done()
        if text.startswith("TRUNCATE"):
            self._write("t", ddl=text)
            self.rows = {}
        elif text.startswith("ALTER"):
            self._altered(text)
        else:
            self._changed()
        return True

    def _changed(self) -> None:
        now = self.read()
        for key in sorted(self.rows.keys() - now.keys(), key=str):
            self._write("d", self.rows[key], None)
        for key, row in now.items():
            before = self.rows.get(key)
            if before != row:
                self._write("c" if before is None else "u", before, row)
        self.rows = now

    def _altered(self, text: str) -> None:
        """As producer.barriers does it."""
        (verdict,) = judge(text, self.db)
        before, self.table = self.table, self.defined()
        same = same_definition(before, self.table)
        assert not verdict.stops(same_definition=same), text
        actions = said(text, self.db)
        columns = None if actions is None else changes([actions], before, self.table)
        effect = verdict.effect(same_definition=same)
        self.fake.table = self.table
        self._write("m", definition=self.table, ddl=text, columns=columns, effect=effect)
        self.rows = self.read()

    def copied(self) -> int:
        """Write a copy; keys that are gone are said to be, as no marker ends it."""
        self._write("m", definition=self.table, copy=CopyMark(id=str(len(self.topic))))
        begin = len(self.topic) - 1
        for row in self.rows.values():
            self._write("r", None, row)
        chunk = Chunk(
            number=1, after=None, upto=None, first_row=-1, rows=len(self.rows), last=True, repeated=True
        )
        self._write("m", chunk=chunk, copy=CopyMark(id=str(begin), begins=begin, since=begin))
        return begin


class DrawnUnit(TopicUnit):
    def __init__(self, real: Real, source: DrawnSource, policy: Policy) -> None:
        shell: Any = type(
            "Raw", (), {"raw": {"h": []}, "topic": staticmethod(lambda name: f"p.s.{source.db}.{name}")}
        )
        super().__init__(real, shell, "h", policy)
        self.of, self.policy, self.said = source, policy, list[str]()
        self.start = 0

    def apply(self, start: int = 0) -> Report:
        self.topic = self.of.topic
        spec = UnitSpec(
            unit=self.unit, source="s", epoch=self.epoch, topic_id="id", routes=self.routes, lanes=self.lanes, patient=True, scratch="/tmp",
        )  # fmt: skip
        return apply_topic(
            spec, self.real.cache, self._slices(self.start, len(self.topic)), read_missing=self._slices, tables=self.real.tables,
            find_begin=lambda after, hint: find_begin(self._slices, lambda first: self._slices(first, len(self.topic)), after, hint),
        )  # fmt: skip


@contextlib.contextmanager
def beside(source: DrawnSource) -> Iterator[Target]:
    """Another database of the source's server: a second server takes longer to start than the statements."""
    name = f"{source.db}_target"
    source.database.create_database(name)
    target = Target(source.kind, source.database, name)
    yield target
    for session in target.sessions:
        session.close()
    source.database.drop_database(name)


@pytest.mark.parametrize("seed", range(FROM, FROM + SEEDS))
def test_a_statement_leaves_the_target_as_its_source(
    database: Any, db: str, seed: int, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(DrawnSource(database, db, seed)))
        targets = [stack.enter_context(fresh("postgres", request)), stack.enter_context(beside(source))]
        reals = [stack.enter_context(contextlib.closing(Real(each))) for each in targets]
        units = [DrawnUnit(real, source, policy) for real in reals for policy in POLICIES]
        for _ in range(STEPS):
            for _ in range(4):
                source.step(0.0)
            if not source.step(1.0):
                continue
            source.step(0.0)
            for unit in units:
                brought(source, unit)


def brought(source: DrawnSource, unit: DrawnUnit) -> None:
    report = unit.apply()
    for _ in range(3):
        if report.state != "stopped":
            break
        unit.said.append(report.message)
        assert ": " in report.message
        if report.copy is None or report.copy.cause == "policy":
            assert unit.policy in ("ignore", "stop") or (
                unit.policy == "lenient" and BY_HAND in report.message
            ), why(source, unit, report.message)
            unit.real.execute(f"DROP TABLE IF EXISTS {unit.real.schema}.{unit.place[1]}")
        unit.real.session.commit() if hasattr(unit.real.session, "commit") else None
        source.copied()
        unit.take_over()
        report = unit.apply()
    assert report.state == "ok", why(source, unit, f"{report.state} {report.message}")
    held = unit.real.session.held(unit.unit)
    assert not held or unit.policy in ("ignore", "stop"), why(source, unit, f"held {held}")
    names = [each for each in source.table.column_names if unit.policy != "ignore" or unit.has(each)]
    wanted = [tuple(row[name] for name in names) for row in source.rows.values()]
    if held:
        return
    found = unit.target_rows(names)
    a, b = (sorted(plain(each, unit.policy), key=str) for each in (wanted, found))
    assert a == b, why(source, unit, f"{names}\nsource {a}\ntarget {b}")


def why(source: DrawnSource, unit: DrawnUnit, what: str) -> str:
    return (
        f"{source.kind} → {unit.real.target.kind} {unit.policy}: {what}\n"
        + "\n".join(source.ran[-12:])
        + "\nsaid "
        + "\n".join(unit.said[-3:])
    )
