"""Each row of docs/explanation/schema-changes.md on real servers: a statement at a source that is captured, then each policy at each target.

Capture runs once for all statements, each on a table of its own; what is in the topics is applied by attempts without Spark. The judge
reads both ends whole, in wire values.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumer.attempt.reports import Report
from consumer.tables.evolution.decisions import (
    AdoptDefinition,
    KeepDefinition,
    NeedsCopy,
    SourceTableDropped,
    StopForPerson,
)
from consumer.tables.router import SchemaChangePolicy, TableRoute, build_target_table
from consumer.tables.stored import decode_stored
from consumer.targets.dialect import open_session
from schemas.config.model import TargetConfig
from schemas.table.model import Row, Table
from schemas.wire.codec import decode_event
from tests.capture_kit import messages
from tests.capturing import Capturing
from tests.integration.test_apply_targets import Real, RealUnit
from tests.targets_kit import KINDS, Target
from tools.docs.schema_changes import NARROW, STATEMENTS, Statement, cell, decided

ROWS = (
    (1, "'one'", 10, "'u1'", "'é1'", "'a'"),
    (2, "'two'", 20, "'u2'", "NULL", "'b'"),
    (3, "'three'", 30, "NULL", "'ü'", "NULL"),
)
Changed = dict[str, Any]


def notified(statement: Statement, server: str) -> bool:
    return "(mariadb)" not in statement.sql or server == "mariadb"


def of_table(text: str, name: str) -> str:
    """A text about `t` and others whose names begin with `t_`, of table `name`."""
    return re.sub(r"\bt(_\w+)?\b", lambda found: name + (found[1] or ""), text)


def on(statement: Statement, name: str) -> str:
    """The statement, of table `name`."""
    return of_table(statement.sql.removesuffix(" (mariadb)"), name).replace("TO gone", f"TO {name}_gone")


class Played:
    """A source where every statement was run on a table of its own, with rows before and behind it, and what capture made of that."""

    def __init__(self, capturing: Capturing, server: str) -> None:
        self.capturing, self.server = capturing, server
        self.names = {f"t{n}": each for n, each in enumerate(STATEMENTS) if notified(each, server)}
        inserts = [
            f"INSERT INTO {name} VALUES ({', '.join(map(str, row))})" for name in self.names for row in ROWS
        ]
        creates = [each.create.format(name=name) for name, each in self.names.items()]
        capturing.change(*creates)
        capturing.run(*inserts)
        changes: list[str] = []
        for name, statement in self.names.items():
            changes += [*(of_table(each, name) for each in statement.first), on(statement, name)]
            changes += behind(statement, name + statement.makes)
        capturing.run(*changes)
        self.raw = {
            name + of.makes: [
                (m.offset(), m.value())
                for m in messages(capturing.kafka.bootstrap, self.topic(name + of.makes))
            ]
            for name, of in self.names.items()
        }

    def topic(self, name: str) -> str:
        return f"{self.capturing.db}.s.{self.capturing.db}.{name}"

    def rows(self, name: str) -> tuple[Table, list[Row]]:
        database = self.capturing.database
        values = {
            "type": self.server, "host": database.host, "port": database.port, "user": database.user, "password": "",
            "database": self.capturing.db,
        }  # fmt: skip
        with contextlib.closing(open_session(TargetConfig.model_validate(values), name="judge")) as session:
            table = session.read_table(self.capturing.db, name)
            assert table is not None
            return table, session.fetch_rows(build_target_table(table, table), None, 1000)


def behind(statement: Statement, name: str) -> list[str]:
    """Changes of rows that are the same under every definition that a statement may leave."""
    if statement.stop is not None:
        return []
    there = {*statement.after.column_names}
    some = next(column for column in ("v", "w", "l") if column in there)
    other = next(column for column in ("l", "v_2", "v") if column in there)
    needed = [
        each.name
        for each in statement.after.columns
        if not each.nullable and each.default is None and each.name != "id"
    ]
    more, values = "".join(f", {column}" for column in needed), ", 50" * len(needed)
    return [
        f"INSERT INTO {name} (id{more}) VALUES (5{values})",
        f"UPDATE {name} SET {other} = 'later' WHERE id = 2",
        f"DELETE FROM {name} WHERE id = 3",
        f"UPDATE {name} SET {some} = {some} WHERE id = 1",
    ]


@pytest.fixture
def played(capturing: Capturing, database: Any) -> Played:
    capturing.options["snapshot"] = "initial"
    return Played(capturing, "mariadb" if type(database).__name__ == "MariaDB" else "mysql")


class TopicUnit(RealUnit):
    """A unit whose topic was captured."""

    def __init__(
        self, real: Real, played: Played, name: str, policy: SchemaChangePolicy, **spec: Any
    ) -> None:
        self.real, self.spec, self.lanes = real, spec, real.lanes
        self.unit = type(self)._unit(played.topic(name), policy)
        self.raw = played.raw[name]
        self.routes = (TableRoute("*.*", f"{real.schema}.{{table}}_{policy}", policy=policy),)
        self.place = (real.schema, f"{name}_{policy}")
        self.source = type("Named", (), {"name": "s"})()  # type: ignore[assignment]
        self.topic = [value for _, value in self.raw]
        assert [offset for offset, _ in self.raw] == list(range(len(self.raw)))
        self.take_over()

    @staticmethod
    def _unit(topic: str, policy: str) -> Any:
        from consumer.ordering.model import ApplyUnit

        return ApplyUnit(f"p_{policy}", topic)

    def map_columns(self, statement: Statement) -> None:
        """Apply what comes before the statement, and make the target what an earlier version left."""
        whole, place = self.topic, ".".join(self.place)
        self.topic = whole[: next(at for at, raw in enumerate(whole) if decode_event(raw).ddl is not None)]
        report = self.apply()
        assert report.state == "ok", report
        for name, there in statement.names.items():
            self.real.execute(f"ALTER TABLE {place} RENAME COLUMN {name} TO {there}")
            self.real.execute(f"ALTER TABLE {place} ADD {name} DATE")
        _, state = self.real.session.read_progress(self.unit)
        assert state is not None
        stored = replace(
            decode_stored(state.definition or ""),
            names=statement.names,
            retained_columns=tuple(statement.names),
        )
        self.real.execute(
            f"UPDATE rowlock_unit SET definition = '{stored.encode()}' "
            f"WHERE topic = '{self.unit.topic}' AND pipeline = '{self.unit.pipeline}'"
        )
        self.topic = whole
        self.take_over()

    def target_rows(self, columns: list[str]) -> list[Row]:
        """Rows by the source's columns, as far as the target has them."""
        session = self.real.session
        real = session.read_table(*self.place)
        assert real is not None
        rows = session.fetch_rows(build_target_table(real, real), None, 1000)
        _, state = session.read_progress(self.unit)
        assert state is not None
        stored = decode_stored(state.definition or "")
        at = [real.column_names.index(stored.get_target_name(column)) for column in columns]
        return [tuple(row[i] for i in at) for row in rows]

    def has(self, column: str) -> bool:
        real = self.real.session.read_table(*self.place)
        return real is not None and column in real.column_names


def test_capture_says_of_each_statement_what_the_page_rests_on(played: Played) -> None:
    for name, statement in played.names.items():
        found = [decode_event(raw) for _, raw in played.raw[name + statement.makes] if raw is not None]
        defined = [event for event in found if event.op == "m" and event.ddl is not None]
        stops = [event.stop.cause for event in found if event.stop is not None]
        if statement.stop is not None:
            assert stops == [statement.stop], statement.sql
            continue
        assert not stops, (statement.sql, stops)
        if statement.truncates:
            assert any(event.op == "t" for event in found)
        elif statement.after.columns or statement.columns:
            for event in defined[-1:]:
                assert set(event.definition.column_names if event.definition else ()) == set(
                    statement.after.column_names
                ), statement.sql
                assert event.columns == statement.columns or event.effect == statement.effect == "kept", (
                    statement.sql,
                    event.columns,
                )


@pytest.fixture(params=KINDS)
def real(request: pytest.FixtureRequest, unique: str) -> Iterator[Real]:
    """A database of its own: the source may be on the same server."""
    service = request.getfixturevalue(request.param)
    service.create_database(f"{unique}_target")
    target = Target(request.param, service, f"{unique}_target")
    with contextlib.closing(Real(target)) as made:
        yield made
    for session in target.sessions:
        session.close()
    service.drop_database(f"{unique}_target")


def test_each_statement_under_each_policy(played: Played, real: Real) -> None:
    """What the page says of a statement happens, and where it promises that the target follows, the ends are equal."""
    wrong = []
    for policy in ("lenient", "evolve", "ignore", "stop"):
        for name, statement in played.names.items():
            made = name + statement.makes
            unit = TopicUnit(real, played, made, policy)  # type: ignore[arg-type]
            if statement.names:
                unit.map_columns(statement)
            report = unit.apply()
            why = outcome(played, unit, made, statement, policy, report)  # type: ignore[arg-type]
            if why is not None:
                wrong.append(f"{statement.sql} under {policy}: {why}")
    assert not wrong, "\n".join(wrong)


def outcome(
    played: Played,
    unit: TopicUnit,
    name: str,
    statement: Statement,
    policy: SchemaChangePolicy,
    report: Report,
) -> str | None:
    """Return what is not as the page says."""
    promised = cell(statement, policy)
    verdict = KeepDefinition() if statement.truncates else decided(statement, policy)
    if isinstance(verdict, NeedsCopy | StopForPerson | SourceTableDropped) or promised.startswith(
        ("stops", "copy")
    ):
        if report.state != "stopped":
            return f"{report.state}, and the page says {promised}"
        copy = "rowlock copy" in report.message or promised.startswith("stops: ")
        return None if copy else report.message
    if report.state == "stopped" and NARROW in promised:
        return None if "cannot store every value" in report.message else report.message
    if report.state != "ok":
        return f"{report.state} {report.message}, and the page says {promised}"
    if report.held:
        return f"{report.held} rows were held"
    table, rows = played.rows(name)
    columns = [each for each in table.column_names if policy != "ignore" or unit.has(each)]
    at = [table.column_names.index(column) for column in columns]
    expected = sorted((tuple(row[i] for i in at) for row in rows), key=str)
    found = sorted(unit.target_rows(columns), key=str)
    if expected != found:
        return f"the source has {expected}, the target {found}"
    missing = (
        "v" not in table.column_names and isinstance(verdict, AdoptDefinition) and not verdict.columns.renamed
    )
    if missing and unit.has(statement.names.get("v", "v")) == (policy == "evolve"):
        return "the dropped column"
    return None


def test_the_page_is_what_the_code_decides() -> None:
    from tools.docs.schema_changes import written

    page = (Path(__file__).parents[2] / "docs" / "explanation" / "schema-changes.md").read_text()
    assert written(page) == page, "run python -m tools.docs.schema_changes docs/explanation/schema-changes.md"
