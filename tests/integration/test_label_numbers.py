"""ENUM and SET with an empty label on real servers: every number arrives in each target, from a snapshot,
from the log, and after a copy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit
from consumer.tables.router import SchemaChangePolicy, TableRoute
from schemas.wire.codec import decode_event
from tests.capturing import Capturing
from tests.kits.attempts import Real, RealUnit, reals_apart
from tests.kits.capture import messages
from tests.kits.copying import Copying, copying
from tests.kits.targets import KINDS
from tests.kits.waiting import until

__all__ = ["copying"]
pytestmark = pytest.mark.timeout(1800)

EVERY = range(16)
POLICIES: tuple[SchemaChangePolicy, ...] = ("lenient", "evolve", "ignore", "stop")
SET = "SET('', 'a', 'b', 'c')"
#: Table → its columns.
TABLES = {
    "plain": f"id INT PRIMARY KEY, s {SET}, e ENUM('', 'x')",
    "inner": "id INT PRIMARY KEY, s SET('a', '', 'b', 'c'), e ENUM('x', '')",
    "keyed": f"s {SET}, e ENUM('x', ''), v INT, PRIMARY KEY (s, e)",
    "single": f"id INT PRIMARY KEY, s {SET} UNIQUE",
    "errors": "id INT PRIMARY KEY, e ENUM('', 'x')",
}
BEFORE = (
    *(f"INSERT INTO {name} VALUES ({n}, {n}, {n % 2 + 1})" for name in ("plain", "inner") for n in EVERY),
    *(f"INSERT INTO keyed VALUES ({n}, {place}, {n})" for n in EVERY for place in (1, 2)),
    *(f"INSERT INTO single VALUES ({n}, {n})" for n in EVERY),
    "INSERT INTO plain VALUES (50, NULL, NULL)",
    "INSERT INTO errors VALUES (1, 0), (2, 1), (3, 2)",
)
AFTER = (
    *(
        f"INSERT INTO {name} VALUES ({100 + n}, {n}, {n % 2 + 1})"
        for name in ("plain", "inner")
        for n in EVERY
    ),
    *(f"UPDATE plain SET s = {15 - n} WHERE id = {n}" for n in EVERY),
    "DELETE FROM inner WHERE id IN (3, 5)",
    "UPDATE keyed SET v = 99 WHERE s = 14",
    "DELETE FROM keyed WHERE s = 15 AND e = 1",
    "UPDATE keyed SET s = 15 WHERE s = 14 AND e = 1",
    "DELETE FROM keyed WHERE s = 0 AND e = 2",
    "UPDATE keyed SET s = 0 WHERE s = 1 AND e = 2",
    "DELETE FROM single WHERE id = 14",
    "UPDATE single SET s = 14 WHERE id = 15",
    "UPDATE single SET s = 15 WHERE id = 1",
    "INSERT INTO single VALUES (14, 1)",
    "INSERT INTO errors VALUES (11, 0), (12, 1)",
    "UPDATE errors SET e = 2 WHERE id = 1",
)
LENIENT = "SET SESSION sql_mode = ''"
"""An ENUM takes its error value."""


class TopicUnit(RealUnit):
    """A unit whose topic was captured; its target table has the policy's name at its end."""

    def __init__(
        self, real: Real, bootstrap: str, topic: str, policy: SchemaChangePolicy = "lenient"
    ) -> None:
        self.real, self.spec, self.lanes = real, {}, real.lanes
        self.unit = ApplyUnit(f"p_{policy}", topic)
        self.routes = (TableRoute("*.*", f"{real.schema}.{{table}}_{policy}", policy=policy),)
        self.source = type("Named", (), {"name": "s"})()  # type: ignore[assignment]
        self.topic = [message.value() for message in messages(bootstrap, topic)]
        found = [decode_event(value) for value in self.topic]
        begun = [
            at for at, event in enumerate(found) if event.copy is not None and event.definition is not None
        ]
        self.spec = {"copy_at": begun[-1]} if begun else {}
        self.take_over()

    def finish(self) -> tuple[str, int]:
        """Apply all that the topic has, across stops that a copy in it ends. Returns the last message and the
        held rows."""
        report = self.apply()
        for _ in range(3):
            if report.state == "ok":
                break
            report = self.apply()
        return (report.message if report.state != "ok" else ""), report.held


real = reals_apart(*KINDS)


def numbers(rows: Any) -> list[tuple[int | None, ...]]:
    return sorted((tuple(None if value is None else int(value) for value in row) for row in rows), key=str)


def columns_of(table: str, labels: str) -> str:
    """Return the columns of a table, its labels as numbers: `labels` is the form of that."""
    names = [
        part.split()[0] for part in TABLES[table].split(", ") if part.split()[0] in ("id", "s", "e", "v")
    ]
    return ", ".join(labels.format(name) if name in ("s", "e") else name for name in names)


def at_target(real: Real, table: str, columns: str, policy: str = "lenient") -> list[tuple[int | None, ...]]:
    return numbers(real.execute(f"SELECT {columns} FROM {real.schema}.{table}_{policy}"))


def test_every_number_arrives_from_a_snapshot_and_from_the_log(capturing: Capturing, real: Real) -> None:
    capturing.options["snapshot"] = "initial"
    capturing.change(
        LENIENT, *(f"CREATE TABLE `{name}` ({form})" for name, form in TABLES.items()), *map(quoted, BEFORE)
    )
    capturing.run(LENIENT, *map(quoted, AFTER))
    labels = "{0}" if real.target.kind == "postgres" else "{0}+0"
    for name in TABLES:
        unit = TopicUnit(real, capturing.kafka.bootstrap, f"{capturing.db}.s.{capturing.db}.{name}")
        unit.spec |= {
            "small_batch": 0,
            "limits": LaneLimits(max_gather=1),
        }  # no event nets another: rows change in place
        message, held = unit.finish()
        assert message == "", name
        rows = capturing.database.execute(
            f"SELECT {columns_of(name, '{0}+0')} FROM `{name}`", database=capturing.db
        )
        expected = numbers(rows)
        refused = name == "errors" and real.target.kind != "postgres"  # strict servers refuse the error value
        _, _, entries = real.session.begin_attempt(unit.unit, unit.epoch)
        keys = {json.loads(entry.key)[0] for entry in entries}
        # A change of a refused row queues in the quarantine, unless one batch has both.
        assert at_target(real, name, columns_of(name, labels)) == [
            row for row in expected if row[0] not in keys
        ], name
        assert {row[0] for row in expected if refused and not row[1]} <= keys, name
        assert bool(held) == bool(keys) == refused, name


def quoted(statement: str) -> str:
    return statement.replace(" inner ", " `inner` ")


# --- tables that earlier versions captured, and labels that come and go

ROW = "REPLACE INTO {table} VALUES ({id}, {number})"


def until_copied(copying: Copying, table: str) -> None:
    """Await the copy of a table and a row behind it."""
    until(
        lambda: (state := copying.states().get(table)) is not None and state.phase == "done",
        f"a copy of {table}", 200,
    )  # fmt: skip
    copying.change(ROW.format(table=table, id=500, number=3))
    until(
        lambda: any((e.after or {}).get("id") == 500 for e in copying.events(table)), f"a row of {table}", 200
    )


def judge(
    copying: Copying,
    real: Real,
    table: str,
    policies: tuple[SchemaChangePolicy, ...] = POLICIES,
    *,
    numbered: bool = True,
) -> dict[str, str]:
    """Compare all rows under each policy; returns the message of each with which the unit stopped instead.

    `numbered`: the column has an empty label in the end, so PostgreSQL has numbers.
    """
    stopped = {}
    labels = "{0}" if real.target.kind == "postgres" else "{0}+0"
    for policy in policies:
        unit = TopicUnit(real, copying.kafka.bootstrap, f"{copying.db}.s.{copying.db}.{table}", policy)
        message, held = unit.finish()
        if message:
            stopped[policy] = message
            continue
        if real.target.kind == "postgres" and not numbered:
            texts = copying.database.execute(f"SELECT id, s FROM {table}", database=copying.db)
            assert sorted(real.execute(f"SELECT id, s FROM {real.schema}.{table}_{policy}")) == sorted(
                texts
            ), policy
        else:
            rows = numbers(copying.database.execute(f"SELECT id, s+0 FROM {table}", database=copying.db))
            assert at_target(real, table, f"id, {labels.format('s')}", policy) == rows, policy
        assert held == 0
    return stopped


def test_a_table_of_an_earlier_version_is_right_behind_its_copy(copying: Copying, real: Real) -> None:
    rows = ", ".join(f"({n}, {n})" for n in EVERY)
    copying.change(f"CREATE TABLE old (id INT PRIMARY KEY, s {SET})", f"INSERT INTO old VALUES {rows}")
    with copying.running("labels") as unit:
        until(lambda: len(copying.events("old")) > len(EVERY), f"a snapshot; {unit.output()[-2000:]}", 200)
        copying.change(ROW.format(table="old", id=100, number=14))
        until(lambda: any((e.after or {}).get("id") == 100 for e in copying.events("old")), "a row", 200)
        assert unit.stop() == 0
    assert {type(e.after["s"]) for e in copying.events("old") if e.after} == {str}
    copying.change(ROW.format(table="old", id=101, number=15))
    with copying.running() as unit:
        until(lambda: copying.stops().get("old") == "definition", f"a stop; {unit.output()[-2000:]}", 200)
        copying.request_copy("old")
        until_copied(copying, "old")
        assert unit.stop() == 0
    found = copying.events("old")
    begun = next(at for at, event in enumerate(found) if event.copy is not None)
    assert {type(e.after["s"]) for e in found[:begun] if e.after} == {str}
    assert {type(e.after["s"]) for e in found[begun:] if e.after} == {int}
    assert {e.source.version for e in found[:begun]} == {"1.0"}
    assert found[begun].source.version == "2.0"
    assert judge(copying, real, "old") == {}


def test_rows_are_right_behind_a_copy_where_an_empty_label_comes_and_goes(
    copying: Copying, real: Real
) -> None:
    few = "SET('a', 'b', 'c')"
    rows = ", ".join(f"({n}, {n})" for n in range(8))
    for name in ("comes", "goes"):
        copying.change(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, s {few})", f"INSERT INTO {name} VALUES {rows}"
        )
    copying.change("ALTER TABLE goes MODIFY s SET('a', 'b', 'c', '')", "INSERT INTO goes VALUES (9, 9)")
    with copying.running() as unit:
        for name in ("comes", "goes"):
            until(
                lambda name=name: len(copying.events(name)) > 8, f"a snapshot; {unit.output()[-2000:]}", 200
            )  # type: ignore[misc]
        copying.change("ALTER TABLE comes MODIFY s SET('a', 'b', 'c', '')", "INSERT INTO comes VALUES (9, 9)")
        copying.change(
            "DELETE FROM goes WHERE id = 9",
            f"ALTER TABLE goes MODIFY s {few}",
            "INSERT INTO goes VALUES (10, 6)",
        )
        for name in ("comes", "goes"):
            copying.request_copy(name)
            until_copied(copying, name)
        assert unit.stop() == 0
    assert {type(e.after["s"]) for e in copying.events("comes") if e.after} == {int, str}
    for name in ("comes", "goes"):
        stopped = judge(copying, real, name, ("lenient", "evolve", "ignore"), numbered=name == "comes")
        if (
            name == "comes" and real.target.kind != "postgres"
        ):  # the target's column lacks the label, and is not to be changed
            assert "column s is set in the target and set_number at the source" in stopped.pop("ignore")
        assert stopped == {}


def test_a_key_of_64_labels_is_read_whole_in_chunks(copying: Copying) -> None:
    """The servers compare such a SET as a signed number, in which the 64th label comes first."""
    labels = ", ".join(f"'m{n}'" for n in range(64))
    masks = [1, 2, 2**53, 2**53 + 1, 2**53 + 2, 2**62, 2**63, 2**63 + 1, 2**63 + 2, 2**64 - 2, 2**64 - 1]
    rows = ", ".join(f"({mask})" for mask in masks)
    copying.change(f"CREATE TABLE many (s SET({labels}) PRIMARY KEY)", f"INSERT INTO many VALUES {rows}")
    with copying.running() as unit:
        until(
            lambda: any(e.chunk and e.chunk.last for e in copying.events("many")),
            f"a snapshot; {unit.output()[-2000:]}",
            200,
        )
        assert unit.stop() == 0
    found = [e.after["s"] for e in copying.events("many") if e.after]
    expected = copying.database.execute("SELECT s FROM many ORDER BY s", database=copying.db)
    assert found == [str(row[0]) for row in expected]
