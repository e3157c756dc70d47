"""Generates the table of docs/explanation/schema-changes.md from the code: `python -m
tools.docs.schema_changes FILE` writes it.

Every cell is the code's decision on the statement under the policy.
tests/integration/test_schema_changes.py runs each statement on real servers under each policy, and
compares the outcome with the same decision.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.tables.evolution.decisions import (
    AdoptDefinition,
    DefinitionVerdict,
    KeepDefinition,
    NeedsCopy,
    SourceTableDropped,
    StopForPerson,
    judge_table_event,
)
from consumer.tables.evolution.plans import TableChange, plan_change
from consumer.tables.router import (
    ResolvedRoute,
    SchemaChangePolicy,
    TableRoute,
    build_desired_table,
    name_columns,
)
from consumer.tables.stored import StoredDefinition
from consumer.tables.target_checks import find_table_misfit, judge_target_table
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropUnique,
    RenameColumn,
)
from consumer.targets.checks.table_facts import TableFacts
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.names import EXACT
from schemas.wire.event import ENVELOPE_VERSION, ColumnChanges, EventEnvelope, Source
from schemas.wire.records import TableStop

POLICIES: tuple[SchemaChangePolicy, ...] = ("ignore", "lenient", "evolve", "stop")
_TEXT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_INT = ColumnType(kind=Kind.INT, bits=32)
#: The table of the statements, as a source creates it.
CREATE = (
    "CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20), n INT NOT NULL, u VARCHAR(20), l VARCHAR(20) "
    "CHARACTER SET latin1, e ENUM('a', 'b'), UNIQUE KEY uq (u)) CHARACTER SET utf8mb4"
)


def _text(length: int, kind: Kind = Kind.VARCHAR) -> ColumnType:
    return ColumnType(kind=kind, length=length, **_TEXT)  # type: ignore[arg-type]


def _unique(name: str, *columns: str) -> UniqueIndex:
    return UniqueIndex(name=name, parts=tuple(IndexPart(column=column) for column in columns))


TABLE = Table(
    db="d",
    name="t",
    columns=(
        Column(name="id", type=_INT, nullable=False),
        Column(name="v", type=_text(20)),
        Column(name="n", type=_INT, nullable=False),
        Column(name="u", type=_text(20)),
        Column(
            name="l", type=ColumnType(kind=Kind.VARCHAR, length=20, charset="latin1", collation="latin1_bin")
        ),
        Column(name="e", type=ColumnType(kind=Kind.ENUM, members=("a", "b"), **_TEXT)),  # type: ignore[arg-type]
    ),
    key=_unique("PRIMARY", "id"),
    unique=(_unique("uq", "u"),),
)

NARROW = "a row that it cannot take stops the table"
"""The note on a target with a column narrower than the source's."""

# --- what a statement changes


def added(table: Table, name: str = "w", type_: ColumnType = _INT, **more: Any) -> Table:
    return replace(table, columns=(*table.columns, Column(name=name, type=type_, **more)))


def without(table: Table, *names: str) -> Table:
    return replace(
        table,
        columns=tuple(each for each in table.columns if each.name not in names),
        unique=tuple(each for each in table.unique if not set(names).intersection(each.columns)),
    )


def changed(table: Table, column: str, **more: Any) -> Table:
    return replace(table, columns=tuple(replace(c, **more) if c.name == column else c for c in table.columns))


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and its effect by the code."""

    sql: str
    """As a user writes it."""
    after: Table = TABLE
    """The definition after it."""
    columns: ColumnChanges | None = None
    """What capture reports about the columns."""
    effect: str | None = None
    """What capture reports about the rows."""
    stop: str | None = None
    """The cause with which capture stops the table instead."""
    truncates: bool = False
    """Whether it empties the table, which capture publishes as data."""
    removes: bool = False
    """Whether it removes rows, which capture publishes as a debt."""
    create: str = CREATE
    """The CREATE TABLE of another table than the usual one."""
    before: Table = TABLE
    """The definition of that table."""
    of: str = ""
    """A description of that table."""
    first: tuple[str, ...] = ()
    """Statements that run before, and create other tables."""
    makes: str = ""
    """What follows `t` in the name of the table that it creates, which is the subject of the row."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The names that an earlier version gave to columns in the target: source name → target name. The
    target keeps a column of the source name, too."""

    renames: Mapping[str, str] = field(default_factory=dict)
    """The names that the route's `rename` gives: column → its name in the target."""

    @property
    def stored(self) -> StoredDefinition:
        """The stored definition before it."""
        renames = self.build_route("lenient").select_renames(self.before)
        return StoredDefinition(
            self.before, {**self.names, **renames}, tuple(self.names), route_names=renames
        )

    def build_route(self, policy: SchemaChangePolicy) -> ResolvedRoute:
        """Return the route of its table."""
        return ResolvedRoute("d", "t", policy=policy, renames=tuple(self.renames.items()))

    @property
    def target(self) -> Table:
        """The target table before it."""
        there = build_desired_table(self.before, ResolvedRoute("d", "t"), self.stored.names)
        return replace(there, columns=(*there.columns, *(Column(name=name, type=OLD) for name in self.names)))


_adds = ColumnChanges(added=("w",))
_of = ColumnChanges
_modified: Callable[..., ColumnChanges] = lambda *names: ColumnChanges(modified=names)  # noqa: E731
_kept = partial(Statement, effect="kept", columns=ColumnChanges())
#: A partitioned table: each of its unique indexes would need the partitioning column.
PARTITIONED = (
    "CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20), n INT NOT NULL, u VARCHAR(20), l VARCHAR(20) "
    "CHARACTER SET latin1, e ENUM('a', 'b')) CHARACTER SET utf8mb4 PARTITION BY RANGE (id) (PARTITION p0 "
    "VALUES LESS THAN (2), PARTITION p1 VALUES LESS THAN (1000))"
)
_PLAIN = replace(TABLE, unique=())
_parted = partial(
    Statement, create=PARTITIONED, before=_PLAIN, after=_PLAIN, of="of a table that is partitioned by RANGE"
)


def _parted_by(kind: str, clause: str) -> Callable[..., Statement]:
    """Return a function that makes a statement on a table with this partitioning, which removes rows."""
    create = f"{PARTITIONED.partition(' PARTITION BY')[0]} PARTITION BY {clause}"
    return partial(
        Statement, create=create, before=_PLAIN, after=_PLAIN, removes=True, of=f"of a table by {kind}"
    )


_list = _parted_by("LIST", "LIST (id) (PARTITION p0 VALUES IN (1), PARTITION p1 VALUES IN (2, 3, 4, 5))")
_hash = _parted_by("HASH", "HASH (id) PARTITIONS 2")
_by_key = _parted_by("KEY", "KEY (id) PARTITIONS 2")
_sub = _parted_by(
    "RANGE with subpartitions by HASH",
    "RANGE (id) SUBPARTITION BY HASH (id) (PARTITION p0 VALUES LESS THAN (3) (SUBPARTITION p0s0, "
    "SUBPARTITION p0s1), PARTITION p1 VALUES LESS THAN (1000) (SUBPARTITION p1s0, SUBPARTITION p1s1))",
)
_OTHER = ("CREATE TABLE t_x LIKE t", "INSERT INTO t_x SELECT * FROM t WHERE id < 2")


OLD = ColumnType(kind=Kind.DATE)
"""The type of a target column that no longer takes the source's values."""
_mapped = partial(
    Statement,
    names={"v": "v_2"},
    of="with a second column `v_2`",
)


_renamed = partial(Statement, renames={"v": "v_"}, of="with `rename: {columns: {v: v_}}`")
_renamed_later = partial(Statement, renames={"w": "w_"}, of="with `rename: {columns: {w: w_}}`")


def moved(column: str, at: int) -> Table:
    """Return the table with a column at another place."""
    rest = [each for each in TABLE.columns if each.name != column]
    return replace(TABLE, columns=(*rest[:at], TABLE.get_column(column), *rest[at:]))


STATEMENTS: tuple[Statement, ...] = (
    Statement("ALTER TABLE t ADD w INT", added(TABLE), _adds),
    Statement("ALTER TABLE t ADD w INT DEFAULT 7", added(TABLE, default="7"), _adds),
    Statement("ALTER TABLE t ADD w INT NOT NULL DEFAULT 7 FIRST", added(TABLE, default="7", nullable=False),
     _adds),
    Statement("ALTER TABLE t ADD w VARCHAR(10) NOT NULL AFTER id",
     added(TABLE, type_=_text(10), nullable=False), _adds),
    Statement(
        "ALTER TABLE t ADD w DATETIME DEFAULT CURRENT_TIMESTAMP",
        added(TABLE, type_=ColumnType(kind=Kind.DATETIME), default_expression="CURRENT_TIMESTAMP"), _adds,
    ),
    Statement("ALTER TABLE t ADD w INT AS (n + 1) STORED", added(TABLE, generated=True, expression="n + 1"),
     _adds),
    Statement("ALTER TABLE t DROP COLUMN v", without(TABLE, "v"), _of(dropped=("v",))),
    Statement("ALTER TABLE t DROP COLUMN n", without(TABLE, "n"), _of(dropped=("n",))),
    Statement("ALTER TABLE t DROP COLUMN u", without(TABLE, "u"), _of(dropped=("u",))),
    Statement("ALTER TABLE t DROP COLUMN v, ADD COLUMN v VARCHAR(20)", TABLE,
     _of(dropped=("v",), added=("v",))),
    Statement("ALTER TABLE t RENAME COLUMN v TO w", changed(TABLE, "v", name="w"), _of(renamed={"v": "w"})),
    Statement(
        "ALTER TABLE t CHANGE v w VARCHAR(40)", changed(TABLE, "v", name="w", type=_text(40)),
        _of(renamed={"v": "w"}, modified=("w",)),
    ),
    Statement("ALTER TABLE t RENAME COLUMN v TO u, RENAME COLUMN u TO v", TABLE,
     _of(renamed={"v": "u", "u": "v"})),
    Statement("ALTER TABLE t MODIFY v VARCHAR(40)", changed(TABLE, "v", type=_text(40)), _modified("v")),
    Statement("ALTER TABLE t MODIFY v TEXT", changed(TABLE, "v", type=_text(65535, Kind.TEXT)),
     _modified("v")),
    Statement("ALTER TABLE t MODIFY n BIGINT NOT NULL",
     changed(TABLE, "n", type=ColumnType(kind=Kind.INT, bits=64)), _modified("n")),
    Statement("ALTER TABLE t MODIFY n INT NULL", changed(TABLE, "n", nullable=True), _modified("n")),
    Statement("ALTER TABLE t MODIFY v VARCHAR(10)", changed(TABLE, "v", type=_text(10)), _modified("v")),
    Statement("ALTER TABLE t MODIFY n VARCHAR(10) NOT NULL", changed(TABLE, "n", type=_text(10)),
     _modified("n")),
    Statement("ALTER TABLE t MODIFY v VARCHAR(20) NOT NULL", changed(TABLE, "v", nullable=False),
     _modified("v")),
    Statement(
        "ALTER TABLE t MODIFY e ENUM('a', 'b', 'c')",
        changed(TABLE, "e", type=replace(TABLE.get_column("e").type, members=("a", "b", "c"))),
        _modified("e"),
    ),
    Statement(
        "ALTER TABLE t MODIFY e ENUM('b', 'a')",
        changed(TABLE, "e", type=replace(TABLE.get_column("e").type, members=("b", "a"))),
        _modified("e"),
    ),
    Statement(
        "ALTER TABLE t MODIFY e ENUM('a', 'b', '')",
        changed(TABLE, "e", type=replace(TABLE.get_column("e").type, kind=Kind.ENUM_NUMBER,
         members=("a", "b", ""))), _modified("e"),
    ),
    Statement("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", changed(TABLE, "l", type=_text(20)),
     _of(converted=True)),
    _kept("ALTER TABLE t ADD UNIQUE u2 (n)", replace(TABLE, unique=(*TABLE.unique, _unique("u2", "n")))),
    _kept("ALTER TABLE t DROP INDEX uq", replace(TABLE, unique=())),
    _kept("ALTER TABLE t ADD INDEX i (v)"),
    _kept("ALTER TABLE t ALTER COLUMN v SET DEFAULT 'x'", changed(TABLE, "v", default="x")),
    _kept("ALTER TABLE t COMMENT = 'x'"),
    _kept("ALTER TABLE t FORCE"),
    Statement("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",
     replace(TABLE, key=_unique("PRIMARY", "id", "n")), _of()),
    Statement("ALTER TABLE t MODIFY n INT NOT NULL FIRST", moved("n", 0), _modified("n")),
    Statement("ALTER TABLE t MODIFY u VARCHAR(20) AFTER id", moved("u", 1), _modified("u")),
    Statement("ALTER TABLE t ADD w INT INVISIBLE", added(TABLE), _adds),
    Statement("ALTER TABLE t MODIFY v VARCHAR(20) INVISIBLE", TABLE, _modified("v")),
    Statement("TRUNCATE TABLE t", truncates=True),
    _parted("ALTER TABLE t ADD PARTITION (PARTITION p2 VALUES LESS THAN (2000))", effect="kept",
     columns=_of()),
    _parted(
        "ALTER TABLE t REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (50), "
        "PARTITION p2 VALUES LESS THAN (1000))",
        removes=True,
    ),
    _parted("ALTER TABLE t REMOVE PARTITIONING", effect="kept", columns=_of()),
    _parted("ALTER TABLE t TRUNCATE PARTITION p0", removes=True),
    _parted("ALTER TABLE t DROP PARTITION p0", removes=True),
    _parted("ALTER TABLE t TRUNCATE PARTITION ALL", removes=True),
    _parted("ALTER TABLE t CONVERT PARTITION p0 TO TABLE t_x (mariadb)", removes=True),
    _list("ALTER TABLE t DROP PARTITION p0"),
    _list("ALTER TABLE t TRUNCATE PARTITION p1"),
    _hash("ALTER TABLE t TRUNCATE PARTITION p0"),
    _by_key("ALTER TABLE t TRUNCATE PARTITION p0"),
    _sub("ALTER TABLE t DROP PARTITION p0"),
    _sub("ALTER TABLE t TRUNCATE PARTITION p0"),
    _parted(
        "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE t_x", stop="rows-replaced",
        first=("CREATE TABLE t_x LIKE t", "ALTER TABLE t_x REMOVE PARTITIONING"),
    ),
    _kept("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)"),
    Statement("CREATE OR REPLACE TABLE t LIKE t_x (mariadb)", stop="rows-replaced", first=_OTHER),
    Statement("CREATE TABLE t_2 LIKE t", makes="_2"),
    Statement("CREATE TABLE t_2 (PRIMARY KEY (id)) SELECT * FROM t", _PLAIN, makes="_2"),
    Statement("RENAME TABLE t TO t_old, t_x TO t", stop="rows-replaced", first=_OTHER),
    Statement("RENAME TABLE t TO t_tmp, t_x TO t, t_tmp TO t_x", stop="rows-replaced", first=_OTHER),
    Statement("DROP TABLE t", stop="dropped"),
    Statement("RENAME TABLE t TO gone", stop="dropped"),
    Statement("ALTER IGNORE TABLE t ADD UNIQUE (v) (mariadb)", stop="rows-replaced"),
    _mapped("ALTER TABLE t MODIFY v VARCHAR(40)", changed(TABLE, "v", type=_text(40)), _modified("v")),
    _mapped(
        "ALTER TABLE t MODIFY v VARBINARY(20)",
        changed(TABLE, "v", type=ColumnType(kind=Kind.VARBINARY, length=20)), _modified("v"),
    ),
    _mapped("ALTER TABLE t RENAME COLUMN v TO w", changed(TABLE, "v", name="w"), _of(renamed={"v": "w"})),
    _mapped(
        "ALTER TABLE t RENAME COLUMN v TO v_2", changed(TABLE, "v", name="v_2"), _of(renamed={"v": "v_2"})
    ),
    _mapped(
        "ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN l TO v",
        changed(changed(TABLE, "v", name="w"), "l", name="v"), _of(renamed={"v": "w", "l": "v"}),
    ),
    _mapped("ALTER TABLE t ADD v_2 INT", added(TABLE, "v_2"), _of(added=("v_2",))),
    _mapped(
        "ALTER TABLE t RENAME COLUMN l TO v_2", changed(TABLE, "l", name="v_2"), _of(renamed={"l": "v_2"})
    ),
    _mapped(
        "ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN l TO v_2",
        changed(changed(TABLE, "v", name="w"), "l", name="v_2"), _of(renamed={"v": "w", "l": "v_2"}),
    ),
    _mapped("ALTER TABLE t DROP COLUMN v", without(TABLE, "v"), _of(dropped=("v",))),
    _mapped(
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN v VARCHAR(20)", TABLE, _of(dropped=("v",), added=("v",))
    ),
    _renamed("ALTER TABLE t ADD v_ INT", added(TABLE, "v_"), _of(added=("v_",))),
    _renamed("ALTER TABLE t RENAME COLUMN l TO v_", changed(TABLE, "l", name="v_"), _of(renamed={"l": "v_"})),
    _renamed("ALTER TABLE t RENAME COLUMN v TO w", changed(TABLE, "v", name="w"), _of(renamed={"v": "w"})),
    _renamed("ALTER TABLE t RENAME COLUMN v TO v_", changed(TABLE, "v", name="v_"), _of(renamed={"v": "v_"})),
    _renamed(
        "ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN l TO v",
        changed(changed(TABLE, "v", name="w"), "l", name="v"), _of(renamed={"v": "w", "l": "v"}),
    ),
    _renamed("ALTER TABLE t MODIFY v VARCHAR(40)", changed(TABLE, "v", type=_text(40)), _modified("v")),
    _renamed("ALTER TABLE t DROP COLUMN v", without(TABLE, "v"), _of(dropped=("v",))),
    _renamed(
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN v VARCHAR(20)", TABLE, _of(dropped=("v",), added=("v",))
    ),
    _renamed(
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN v_ VARCHAR(20)", changed(TABLE, "v", name="v_"),
        _of(dropped=("v",), added=("v_",)),
    ),
    _renamed_later("ALTER TABLE t RENAME COLUMN v TO w", changed(TABLE, "v", name="w"),
     _of(renamed={"v": "w"})),
    _renamed_later("ALTER TABLE t ADD w INT", added(TABLE), _adds),
)  # fmt: skip


def event_of(statement: Statement) -> EventEnvelope:
    """Return the event that capture sends for a statement."""
    source = Source(
        version=ENVELOPE_VERSION, connector="mysql", name="s", ts_ms=1, snapshot="false", db="d", table="t",
        server_id=1, gtid=None, file="f", pos=1, row=0, position=(0, 1, 1, 0), prev=None, gen=1,
    )  # fmt: skip
    stop = None
    if statement.stop is not None:
        stop = TableStop(
            cause=statement.stop,
            at=(0, 1, 1, 0),
            file="f",
            pos=1,
            reason=statement.sql,
            remedy="rowlock copy",
            since_ms=1,
        )
    return EventEnvelope(
        op="m", source=source, ts_ms=1, stop=stop, definition=None if stop else statement.after,
        ddl=None if stop else statement.sql, effect=statement.effect, columns=statement.columns,
    )  # fmt: skip


def decided(statement: Statement, policy: SchemaChangePolicy) -> DefinitionVerdict:
    """Return the code's decision on a statement."""
    return judge_table_event(None if statement.makes else statement.before, event_of(statement), policy)


def steps(statement: Statement, policy: SchemaChangePolicy, verdict: AdoptDefinition) -> Sequence[Alteration]:
    """Return the change of the target table. Raises UnitStoppedError and CopyNeededError."""
    routed = statement.build_route(policy)
    change = TableChange(statement.stored, statement.after, policy, verdict.columns, verdict.rewrite)
    found = plan_change(change, statement.target, routed, (), EXACT).alter
    return () if found is None else found.steps


# --- words


def _said(step: Alteration) -> str:
    match step:
        case AddColumn():
            rows = "NULL" if step.fill is None else f"`{step.fill}`" if step.fill != "" else "the empty text"
            return f"adds `{step.column.name}`; rows that are there get {rows}"
        case DropColumn():
            return f"drops `{step.name}`"
        case RenameColumn():
            return f"renames `{step.old}` to `{step.new}`"
        case ChangeColumn():
            if step.now.type == step.desired.type:
                return f"`{step.desired.name}` may be NULL"
            return (
                f"widens `{step.desired.name}`"
                if step.lossless
                else f"changes the type of `{step.desired.name}`"
            )
        case AddUnique():
            return f"adds the unique index over {', '.join(step.index.columns)}"
        case DropUnique():
            return f"drops the unique index over {', '.join(step.index.columns)}"
        case ChangeKey():
            return f"makes the key ({', '.join(step.desired.columns)})"


def cell(statement: Statement, policy: SchemaChangePolicy) -> str:
    """Return what happens at the target, for people."""
    if statement.truncates:
        return "rows deleted"
    if statement.removes:
        return "rows deleted, by a key sweep"
    if statement.makes:
        return "makes the table; its rows follow"
    verdict = decided(statement, policy)
    match verdict:
        case KeepDefinition():
            return "–"
        case SourceTableDropped():
            return "`on_drop`"
        case StopForPerson():
            return "stops"
        case NeedsCopy():
            return _copied(statement, policy)
        case AdoptDefinition():
            try:
                found = "; ".join(map(_said, steps(statement, policy, verdict)))
            except CopyNeededError:
                return _copied(statement, policy)
            except UnitStoppedError as error:
                return f"stops: {error.problem.what.partition(': ')[2]}"
            return found or _left_alone(statement, policy)


def _copied(statement: Statement, policy: SchemaChangePolicy) -> str:
    """Return what a copy does after a statement.

    One for which capture stops the table changes no definition.
    """
    if statement.stop is None and policy in ("lenient", "evolve"):
        try:
            steps(statement, policy, AdoptDefinition(rewrite=True))
        except UnitStoppedError as error:
            return f"copy, which stops: {error.problem.what.partition(': ')[2]}"
    return "copy"


def _left_alone(statement: Statement, policy: SchemaChangePolicy) -> str:
    """Return what happens to a target table that is not altered: it may not accept rows any more."""
    routed = statement.build_route(policy)
    route = TableRoute("*.*", "{db}.{table}", policy=policy, renames=routed.renames)
    required = tuple(column.name for column in statement.before.columns if not column.nullable)
    real: Any = SimpleNamespace(
        column_names=EXACT,
        read_table=lambda *_: statement.target,
        read_table_facts=lambda *_: TableFacts(required=required),
    )
    names = {name: there for name, there in statement.names.items() if name in statement.after.column_names}
    after = name_columns(StoredDefinition(statement.after, names), routed)
    names = dict(after.names)
    unfit = find_table_misfit(real, after, "s", (route,))
    if unfit is not None:
        return f"stops: {unfit.what.partition(': ')[2]}"
    if policy != "ignore":
        return "–"
    lost = [
        name
        for name in statement.after.column_names
        if names.get(name, name) not in statement.target.column_names
    ]
    found = judge_target_table(real, after, routed)
    narrow = any(each.level == "warning" for each in found)
    notes = [f"`{name}` is left out" for name in lost] + [NARROW] * narrow
    return f"– ({'; '.join(notes)})" if notes else "–"


def why(statement: Statement) -> str:
    """Return why a copy is needed; empty: none is needed under `evolve`."""
    verdict = None if statement.truncates or statement.removes else decided(statement, "evolve")
    return (
        verdict.why.removeprefix(f"{statement.sql}: ")
        if isinstance(verdict, NeedsCopy) and not statement.stop
        else ""
    )


def table() -> str:
    """Return the generated table."""
    lines = [
        f"| statement | {' | '.join(f'`{policy}`' for policy in POLICIES)} |",
        "|---|" + "---|" * len(POLICIES),
    ]
    for statement in STATEMENTS:
        cells = [cell(statement, policy) for policy in POLICIES]
        reason = why(statement)
        shown = "<br>".join(each for each in (f"`{statement.sql}`", statement.of, reason) if each)
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- Generated by `python -m tools.docs.schema_changes`. -->", "<!-- Until here. -->"


def written(page: str) -> str:
    """Return the page with the present table."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n\n{table()}\n{END}", page)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(written(file.read_text()))
