"""What definitions record of columns is what the servers did: rows before a statement, altered as recorded,
are the rows after it."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.table.model import Column, Kind
from schemas.wire.event import ColumnChanges, EventEnvelope
from tests.capturing import Capturing

FORM = (
    "(id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET latin1, n INT, `select` "
    "DECIMAL(6,2), version INT, KEY by_v (v))"
)
ROWS = "(1, 'one', 1, 1.5, 1), (2, 'é', NULL, NULL, 1), (3, NULL, -3, 0, 1)"

#: A statement, and what its definition event records: of columns, and whether rows and values are "kept";
#: "stop": the table stops.
Case = tuple[str, ColumnChanges | None, str | None]
CASES: tuple[Case, ...] = (
    ("ALTER TABLE t ADD COLUMN c INT DEFAULT 7, ADD d VARCHAR(9) NOT NULL AFTER id",
     ColumnChanges(added=("d", "c")), None),
    ("ALTER TABLE t ADD COLUMN (e INT, `f g` VARCHAR(5) DEFAULT 'x', INDEX (e))",
     ColumnChanges(added=("e", "f g")), None),
    ("ALTER TABLE t ADD hidden INT INVISIBLE DEFAULT 4", ColumnChanges(added=("hidden",)), None),
    ("ALTER TABLE t DROP COLUMN N", ColumnChanges(dropped=("n",)), None),
    ("ALTER TABLE t CHANGE V w VARCHAR(20) CHARACTER SET latin1 FIRST",
     ColumnChanges(renamed={"v": "w"}, modified=("w",)), None),
    ("ALTER TABLE t CHANGE v V VARCHAR(20) CHARACTER SET latin1",
     ColumnChanges(renamed={"v": "V"}, modified=("V",)), None),
    ("ALTER TABLE t RENAME COLUMN v TO n, RENAME COLUMN n TO v, ADD c INT",
     ColumnChanges(renamed={"v": "n", "n": "v"}, added=("c",)), None),
    ("ALTER TABLE t MODIFY n BIGINT AFTER id, ALTER COLUMN version SET DEFAULT 3",
     ColumnChanges(modified=("n", "version")), None),
    ("ALTER TABLE t MODIFY v VARCHAR(40) CHARACTER SET latin1", ColumnChanges(modified=("v",)), None),
    ("ALTER TABLE t MODIFY v VARCHAR(20) CHARACTER SET latin1 COMMENT 'x'", ColumnChanges(modified=("v",)),
     "kept"),
    ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", ColumnChanges(converted=True), None),
    ("ALTER TABLE t DROP INDEX by_v, ADD UNIQUE (n), COMMENT = 'a, b'", ColumnChanges(), "kept"),
    ("ALTER TABLE t DROP n, ADD n VARCHAR(3) DEFAULT 'n'", ColumnChanges(added=("n",), dropped=("n",)), None),
    ("CREATE UNIQUE INDEX u ON t (n)", ColumnChanges(), "kept"),
    ("ALTER TABLE t ALTER n SET DEFAULT 5", ColumnChanges(modified=("n",)), "kept"),
    ("ALTER TABLE t ADD stamp TIMESTAMP NOT NULL DEFAULT '2001-01-01 00:00:00'", None, None),
    ("ALTER TABLE t ADD number INT AUTO_INCREMENT UNIQUE", None, None),
)  # fmt: skip
#: Only MariaDB has IF [NOT] EXISTS for columns.
MARIADB: tuple[Case, ...] = (
    ("ALTER TABLE t ADD COLUMN IF NOT EXISTS n INT, ADD COLUMN IF NOT EXISTS c INT DEFAULT 1",
     ColumnChanges(added=("c",)), None),
    ("ALTER TABLE t DROP COLUMN IF EXISTS zzz, DROP COLUMN IF EXISTS n", ColumnChanges(dropped=("n",)), None),
    ("ALTER TABLE t MODIFY IF EXISTS zzz INT, CHANGE IF EXISTS n m INT",
     ColumnChanges(renamed={"n": "m"}, modified=("m",)), None),
    ("SET STATEMENT lock_wait_timeout = 9 FOR ALTER ONLINE TABLE t WAIT 9 ADD c INT",
     ColumnChanges(added=("c",)), None),
)  # fmt: skip


def _value(value: Any) -> Any:
    """A value as events have it, where it is none of JSON's own."""
    return value if isinstance(value, int | str | None) else str(value)


def given(column: Column) -> Any:
    """What the server gave to rows that were there."""
    if column.default is None and column.nullable:
        return None
    text = column.default or ""
    return int(text or 0) if column.type.kind is Kind.INT else text


class Bench:
    """Tables `t0`, `t1` … of one form, one for each case."""

    def __init__(self, capturing: Capturing) -> None:
        self.capturing = capturing
        self.cases = CASES + (MARIADB if type(capturing.database).__name__ == "MariaDB" else ())

    def begin(self) -> None:
        for number in range(len(self.cases)):
            self.capturing.change(f"CREATE TABLE t{number} {FORM}", f"INSERT INTO t{number} VALUES {ROWS}")

    def statements(self, number: int) -> str:
        return (
            self.cases[number][0].replace("TABLE t ", f"TABLE t{number} ").replace("ON t ", f"ON t{number} ")
        )

    def rows(self, number: int, columns: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
        names = ", ".join(f"`{name}`" for name in columns) if columns else "*"
        with self.capturing.database.connect(self.capturing.db) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {names} FROM t{number} ORDER BY id")
            shown = [each[0] for each in cursor.description]
            return [dict(zip(shown, map(_value, row), strict=True)) for row in cursor.fetchall()]

    def altered(self, number: int) -> EventEnvelope:
        """Return the one definition event of a statement."""
        (event,) = [
            each
            for each in self.capturing.events(f"t{number}")
            if each.ddl is not None and "CREATE TABLE" not in each.ddl
        ]
        return event

    def judge(self, number: int, before: list[dict[str, Any]]) -> None:
        sql, columns, effect = self.cases[number]
        event = self.altered(number)
        assert (event.columns, event.effect) == (columns, effect), sql
        assert event.definition is not None
        now = self.rows(number, event.definition.column_names)
        assert len(now) == len(before), sql
        if columns is None:
            return
        for old, new in zip(before, now, strict=True):
            notified = {columns.renamed.get(key, key): old[key] for key in old if key not in columns.dropped}
            notified |= {name: given(event.definition.get_column(name)) for name in columns.added}
            assert notified == new, sql


@pytest.fixture
def bench(capturing: Capturing) -> Bench:
    return Bench(capturing)


def test_live(bench: Bench) -> None:
    bench.begin()
    before = [bench.rows(number) for number in range(len(bench.cases))]
    bench.capturing.run(*(bench.statements(number) for number in range(len(bench.cases))))
    for number, rows in enumerate(before):
        bench.judge(number, rows)
    assert bench.capturing.notified() == set()


def test_behind(bench: Bench) -> None:
    """Capture reads each statement when it, and one on the table without a change of its definition, are in
    the log already."""
    bench.begin()
    before = [bench.rows(number) for number in range(len(bench.cases))]
    bench.capturing.run()
    for number in range(len(bench.cases)):
        bench.capturing.change(bench.statements(number), f"ALTER TABLE t{number} FORCE")
    bench.capturing.run()
    for number, rows in enumerate(before):
        events = [each for each in bench.capturing.events(f"t{number}") if each.ddl is not None]
        assert [each.effect for each in events if each.ddl and "FORCE" in each.ddl] == ["kept"]
        assert all(each.columns == ColumnChanges() for each in events if each.ddl and "FORCE" in each.ddl)
        (first,) = [each for each in events if each.ddl and "FORCE" not in each.ddl]
        assert (first.columns, first.effect) == bench.cases[number][1:]
        assert len(bench.rows(number)) == len(rows)
    assert bench.capturing.notified() == set()
    bench.capturing.run()  # a repeated definition has neither
    repeated = [each for each in bench.capturing.events("t0") if each.definition is not None][-1]
    assert (repeated.ddl, repeated.columns, repeated.effect) == (None, None, None)


def test_two_statements_that_change_the_definition_stop_the_table(bench: Bench) -> None:
    bench.begin()
    bench.capturing.run()
    bench.capturing.change("ALTER TABLE t0 ADD c INT", "ALTER TABLE t0 ADD d INT")
    bench.capturing.run()
    bench.capturing.stopped("t0", "definition")
    (stop,) = {each.stop.remedy for each in bench.capturing.events("t0") if each.stop is not None}
    assert stop == f"rowlock copy {bench.capturing.db}.t0"
