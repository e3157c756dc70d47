"""Statements that a model's source executes: those that stop a table, those that change its form, and those
that do nothing to it.

What each does to the rows is written here by hand; what capture makes of its text is the product's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from schemas.table.model import Table
from tests.sim.binlog import Change, Group, SourceRow
from tests.sim.truth import Cause, Rows, carry_out
from tests.sim.wire import DB, TABLES

if TYPE_CHECKING:
    from tests.sim.source import Source

_COLUMNS = (
    "(k VARCHAR(10) NOT NULL PRIMARY KEY, u1 VARCHAR(10) UNIQUE, u2 VARCHAR(10) UNIQUE, v BIGINT NOT NULL)"
)
_QUIET = (
    "ALTER TABLE {table} FORCE",
    "ALTER TABLE {table} ADD INDEX i (v)",
    "ALTER TABLE {table} MODIFY u2 VARCHAR(10)",
    "ALTER TABLE {table} ANALYZE PARTITION p0",
    "ANALYZE TABLE {table}",
    "GRANT SELECT ON d.* TO u",
    "INSERT INTO bank.log SELECT 1 FROM {table}",
    "UPDATE bank.log SET n = 1",
)
"""They leave every row, and the definition."""


def carry_one_out(source: Source, rng: random.Random) -> None:
    """Execute a statement on a table that is there, or make the one that is not."""
    missing = [table for table in TABLES if table not in source.tables]
    if missing and rng.random() < 0.5:
        _create(source, missing[0])
        return
    others = [table for table in source.tables if table != "t"]
    table = rng.choice(others) if others and rng.random() < 0.85 else "t"
    if table not in source.tables or source.locked(table):
        return
    if rng.random() < source.world.stops:
        _STOPPING[rng.choice(list(_STOPPING))](source, table, rng)
    elif table != "t" and rng.random() < 0.5:
        _swap_columns(source, table)
    else:
        text = rng.choice(_QUIET).format(table=table)
        group = source.binlog.group(standalone=True)
        if text.startswith("ALTER"):
            source.histories[table].altered.append(group.sql(text))
        else:
            group.sql(text)
        source.logged(group)


def remove_rows(source: Source, rng: random.Random) -> None:
    """Remove some rows of a table by a statement that the log has as text alone."""
    free = [table for table in source.tables if not source.locked(table)]
    if not free:
        return
    table = "t" if "t" in free and rng.random() < 0.8 else rng.choice(free)
    group = source.binlog.group(standalone=True)
    at = group.sql(f"ALTER TABLE {table} {rng.choice(('DROP', 'TRUNCATE'))} PARTITION p0")
    rows = {key: row for key, row in source.tables[table].items() if rng.random() < 0.5}
    for key, row in source.tables[table].items():
        if key not in rows:
            source.happened(table, (row, None))
    source.histories[table].removed_but(group.start, at, rows)
    source.tables[table] = rows
    source.logged(group, left={table: dict(rows)})


def _create(source: Source, table: str) -> None:
    group = source.binlog.group(standalone=True)
    at = group.sql(f"CREATE TABLE {table} {_COLUMNS}")
    source.histories[table].replaced(at, {})
    source.histories[table].altered.append(at)
    _left(source, group, table, {}, source.form_of(table))


def _swap_columns(source: Source, table: str) -> None:
    """u1 and u2 change places: a row that is read by the other definition has each one's value in the
    other."""
    old = source.defined[table]
    k, one, other, v = old.columns
    group = source.binlog.group(standalone=True)
    at = group.sql(f"ALTER TABLE {table} MODIFY {other.name} VARCHAR(10) AFTER k")
    source.histories[table].altered.append(at)
    source.defined[table] = table_now = replace(old, columns=(k, other, one, v))
    source.logged(group, defined={table: table_now})


def _drop(source: Source, table: str, _rng: random.Random) -> None:
    group = source.binlog.group(standalone=True)
    at = group.sql(f"DROP TABLE {table}")
    _stops(source, group, table, at)
    source.histories[table].replaced(at, {})
    _left(source, group, table, None, None)


def _rename(source: Source, table: str, _rng: random.Random) -> None:
    """Another table takes its name, with the same form and other rows."""
    group = source.binlog.group(standalone=True)
    at = group.sql(f"RENAME TABLE {table} TO bank.old, bank.new TO {table}")
    _stops(source, group, table, at)
    source.world.version += 1
    rows: Rows = {"q": ("q", None, None, source.world.version)}
    source.histories[table].replaced(at, rows)
    _left(source, group, table, rows, source.defined[table])


def _empty_column(source: Source, table: str, _rng: random.Random) -> None:
    """A column is dropped and made again: the definition comes out as it was, and every value is gone."""
    last = source.defined[table].columns[2].name
    before = source.defined[table].columns[1].name
    group = source.binlog.group(standalone=True)
    at = group.sql(
        f"ALTER TABLE {table} DROP COLUMN {last}, ADD COLUMN {last} VARCHAR(10) UNIQUE AFTER {before}"
    )
    _stops(source, group, table, at)
    rows = {key: _without(row, last) for key, row in source.tables[table].items()}
    source.histories[table].replaced(at, rows)
    _left(source, group, table, rows, source.defined[table])


def _without(row: SourceRow, column: str) -> SourceRow:
    key, one, other, version = row
    return (key, None, other, version) if column == "u1" else (key, one, None, version)


def _as_statement(source: Source, table: str, rng: random.Random) -> None:
    """Between rows, a change that the log has as a statement: nobody can tell from it which rows changed."""
    world, changes = source.world, []
    group = source.binlog.group()
    if (first := world.random_change(source, table, rng)) is not None:
        carry_out(source.tables[table], first)
        source.write(group, [(table, first)])
        changes.append((table, first))
    at = group.sql(f"UPDATE {table} SET u1 = NULL")
    _stops(source, group, table, at)
    hidden: list[Change] = [
        (row, (row[0], None, *row[2:])) for row in source.tables[table].values() if row[1]
    ]
    for change in hidden:
        carry_out(source.tables[table], change)
        changes.append((table, change))
        source.happened(table, change)
    source.histories[table].replaced(at, source.tables[table])
    for other in ("x", table):
        if other in source.tables and (more := world.random_change(source, other, rng)) is not None:
            carry_out(source.tables[other], more)
            source.write(group, [(other, more)])
            changes.append((other, more))
    group.commit()
    source.logged(group, changes)


def _unheard_of(source: Source, _table: str, _rng: random.Random) -> None:
    """A statement that nobody knows: it may concern every table."""
    group = source.binlog.group(standalone=True)
    at = group.sql("SOMETHING NEW")
    for table in source.tables:
        _stops(source, group, table, at)
    source.logged(group)


_STOPPING: dict[str, Callable[[Source, str, random.Random], None]] = {
    "drop": _drop,
    "drop again": _drop,
    "rename": _rename,
    "empty column": _empty_column,
    "as statement": _as_statement,
    "unheard of": _unheard_of,
}


def _stops(source: Source, group: Group, table: str, at: tuple[int, int]) -> None:
    source.histories[table].altered.append(at)
    source.histories[table].causes.append(Cause(group.start, at, group.row))


def _left(source: Source, group: Group, table: str, rows: Rows | None, defined: Table | None) -> None:
    """Note what a statement left of a table; one that is taken up behind it shows these rows."""
    for row in source.tables.get(table, {}).values():
        source.happened(table, (row, None))
    for row in (rows or {}).values():
        source.happened(table, (None, row))
    if rows is None or defined is None:
        source.tables.pop(table, None)
        source.defined.pop(table, None)
    else:
        source.tables[table], source.defined[table] = dict(rows), defined
    source.logged(group, left={table: rows}, defined={table: defined})


assert DB == "d"
