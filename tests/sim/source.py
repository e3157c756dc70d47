"""The model's source databases: tables, a log of transactions, and sessions that read with a consistent view.

A table has rows (key, u1, u2, version) with case-insensitive key and unique values. With semi-synchronous
replication a transaction is in the log before a SELECT sees it: `visible` lags. What the log records of
each table is its history, by which the topics are judged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import pymysql

from schemas.table.model import Table
from schemas.wire.position import LogPoint
from tests.sim import statements, xa
from tests.sim.binlog import UUID, Binlog, Change, Group, SourceRow, file_name
from tests.sim.truth import Rows, TableHistory, carry_out
from tests.sim.wire import LOOSE, TABLES

T = TypeVar("T")

if TYPE_CHECKING:
    from tests.sim.world import PipelineSimulation

START_MS = 1_700_000_000_000
"""The time of the servers when a history begins."""
RowChange = tuple[str, Change]
"""(table, change)."""


@dataclass(frozen=True)
class Logged:
    """A transaction: where it starts and ends in the log, its changes; `left`: tables that a statement left
    with these rows, and `defined` so (None: they no longer exist)."""

    start: LogPoint
    end: LogPoint
    gtid: str
    changes: tuple[RowChange, ...] = ()
    left: dict[str, Rows | None] = field(default_factory=dict)
    defined: dict[str, Table | None] = field(default_factory=dict)
    committed_ms: int = 0
    """When it was committed, by the server's clock."""


class Source:
    def __init__(self, name: str, world: PipelineSimulation, *, mysql: bool) -> None:
        self.name, self.world, self.mysql = name, world, mysql
        self.binlog = Binlog(mysql)
        self.log: list[Logged] = []
        self.tables: dict[str, Rows] = {"t": {}, "x": {}}
        self.defined = {table: self.form_of(table) for table in self.tables}
        self.seen_defined = dict(self.defined)
        self.histories = {table: TableHistory() for table in TABLES}
        self.inside: list[tuple[LogPoint, LogPoint]] = []
        self.seen: dict[str, Rows] = {
            table: {} for table in self.tables
        }  # what a SELECT sees: as of `visible`
        self.visible = 0  # transactions that a SELECT sees
        self.prepared: dict[str, xa.PreparedChanges] = {}
        """XA transactions without an end, by XID."""
        self._set_clock()

    def form_of(self, table: str) -> Table:
        """Return the definition with which a table is created."""
        return LOOSE if table == "t" and self.world.loose else TABLES[table]

    @property
    def rows(self) -> Rows:
        return self.tables.get("t", {})

    def start_with(self, table: str, row: SourceRow) -> None:
        """Have a row from before the log begins."""
        for rows in (self.tables[table], self.seen[table], self.histories[table].begun):
            rows[row[0].lower()] = row

    @property
    def now_ms(self) -> int:
        """The server's clock."""
        return START_MS + int(self.world.target.now_s * 1000) + 2 * len(self.log)

    def _set_clock(self) -> None:
        self.binlog.set_clock(self.now_ms)

    # --- what happens

    def step(self, rng: random.Random) -> None:
        """Commit a transaction; SELECTs see it later."""
        self._set_clock()
        if rng.random() < self.world.rotations:
            self.rotate()
        if rng.random() < self.world.crashes:
            self._crash(rng)
        if self.world.removing.random() < self.world.removes:
            statements.remove_rows(self, self.world.removing)
        if rng.random() < self.world.xa:
            xa.carry_one_out(self, rng)
        elif rng.random() < self.world.statements:
            statements.carry_one_out(self, rng)
        elif rng.random() < self.world.truncates:
            free = [table for table in self.tables if not self.locked(table)]
            if free:
                self._truncate(rng.choice(free))
        else:
            self._transact(rng)

    def go_on(self) -> None:
        """Have the log go on by a transaction that is nobody's business."""
        group = self.binlog.group(standalone=True)
        group.sql("FLUSH TABLES")
        self.logged(group)

    def rotate(self) -> None:
        """Begin another file of the log. MySQL waits until the engine has committed all that is in the one
        before."""
        while self.mysql and self.visible < len(self.log):
            self.show()
        self.binlog.rotate()

    def locked(self, table: str) -> list[SourceRow]:
        """Return the rows, old and new, that XA transactions without an end hold."""
        held = [change for xid in self.prepared.values() for name, change in xid.changes if name == table]
        return [row for change in held for row in change if row is not None]

    def _crash(self, rng: random.Random) -> None:
        """The server dies and starts again; MariaDB leaves the transaction in its log that it was writing."""
        while self.visible < len(self.log):
            self.show()
        change = self.world.random_change(self, "x", rng)
        if self.mysql or change is None:
            self.binlog.rotate(crashed=True)
            return
        self.write(self.binlog.group(), [("x", change)], published=False)
        self.binlog.cut_off()

    def _truncate(self, table: str) -> None:
        group = self.binlog.group(standalone=True)
        at = group.sql(f"TRUNCATE TABLE {table}")
        for row in self.tables[table].values():
            self.happened(table, (row, None))
        self.tables[table] = {}
        history = self.histories[table]
        history.replaced(at, {})
        history.emptied[group.start] = self.world.version
        self.logged(group, left={table: {}})

    def _transact(self, rng: random.Random) -> None:
        """A transaction of a few random row changes."""
        undone = rng.random() < self.world.undone
        changes: list[RowChange] = []
        for _ in range(rng.randint(1, 3)):
            others = [table for table in self.tables if table != "t"]
            table = rng.choice(others) if others and rng.random() < self.world.others else "t"
            if table not in self.tables:
                continue
            change = self.world.random_change(self, table, rng)
            if change is None:
                continue
            changes.append((table, change))
            if undone:
                break
            carry_out(self.tables[table], change)
        if not changes:
            return
        group = self.binlog.group()
        if rng.random() < 0.2:
            group.others()
        at = rng.randrange(len(changes)) if not undone and rng.random() < self.world.savepoints else None
        self.write(group, changes[:at], published=not undone)
        if at is not None:
            self._undo_a_part(group, rng)
            self.write(group, changes[at:])
        if undone:
            group.sql("ROLLBACK")
        else:
            group.commit()
        self.logged(group, () if undone else changes)

    def _undo_a_part(self, group: Group, rng: random.Random) -> None:
        group.sql("SAVEPOINT `One`")
        tables = [table for table in self.tables for _ in range(2)]
        for table in tables[: rng.randint(1, 4)]:
            if (change := self.world.random_change(self, table, rng)) is not None:
                self.write(group, [(table, change)], published=False)
        group.sql("ROLLBACK TO `one`")

    def write(self, group: Group, changes: Sequence[RowChange], *, published: bool = True) -> None:
        """Write the row events of changes, and note where they stand if they come to be."""
        for table, each in groupby(changes, lambda change: change[0]):
            own = [change for _, change in each]
            for place, change in zip(group.rows(self.defined[table], own), own, strict=True):
                if published:
                    self.histories[table].changed((*group.start, place.row), place.at, change)
                    self.happened(table, change)

    def happened(self, table: str, change: Change) -> None:
        """Tell the target's judge of a state of a row."""
        if table == "t":
            self.world.happened(self, *change)

    def logged(
        self,
        group: Group,
        changes: Sequence[RowChange] = (),
        left: dict[str, Rows | None] | None = None,
        defined: dict[str, Table | None] | None = None,
    ) -> None:
        """Note a transaction that is written to its end."""
        self.inside.append((group.start, group.end))
        what = tuple(changes), left or {}, defined or {}
        self.log.append(Logged(group.start, group.end, group.gtid, *what, committed_ms=self.now_ms))
        self._set_clock()

    def show(self) -> None:
        """Let SELECTs see the next transaction."""
        if self.visible < len(self.log):
            logged = self.log[self.visible]
            for table, change in logged.changes:
                carry_out(self.seen[table], change)
            for table, rows in logged.left.items():
                _set(self.seen, table, None if rows is None else dict(rows))
            for table, defined in logged.defined.items():
                _set(self.seen_defined, table, defined)
            self.visible += 1

    # --- what the server says

    def shown_until(self) -> LogPoint:
        """Return the place in the log up to which a SELECT sees it."""
        return self.log[self.visible].start if self.visible < len(self.log) else self.binlog.end

    def executed(self, count: int) -> str:
        """Return the GTIDs of the first `count` transactions."""
        return f"{UUID}:1-{count}" if count else ""

    def first_outside(self, executed: str) -> LogPoint | None:
        """Return where the first transaction starts that is not in `executed`."""
        count = gtids_in(executed)
        return self.log[count].start if count < len(self.log) else None


def _set(there: dict[str, T], table: str, now: T | None) -> None:
    if now is None:
        there.pop(table, None)
    else:
        there[table] = now


def gtids_in(executed: str | None) -> int:
    """Return how many transactions "uuid:1-n" are."""
    return int((executed or "").rpartition(":")[2].rpartition("-")[2] or 0)


class Session:
    """A connection to the source, and its cursor; others commit between its statements."""

    open = True

    def __init__(self, source: Source, rng: random.Random) -> None:
        self.source, self.rng = source, rng
        self._view: tuple[LogPoint, dict[str, Rows]] | None = None
        self._found: list[tuple[Any, ...]] = []

    @contextmanager
    def cursor(self, *_: object) -> Iterator[Session]:
        yield self

    def close(self) -> None: ...

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._found

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._found[0] if self._found else None

    def execute(self, sql: str, arguments: tuple[Any, ...] | None = None) -> None:
        while self.rng.random() < 0.3:
            self.source.world.source_step(self.source)
        self._found = self._answer(sql, arguments or ())

    def _answer(self, sql: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        source = self.source
        if sql.startswith("START TRANSACTION"):
            self._view = self._snapshot() if "CONSISTENT SNAPSHOT" in sql else None
        elif sql.startswith("SHOW STATUS"):
            assert self._view is not None
            number, pos = self._view[0]
            return [("Binlog_snapshot_file", file_name(number)), ("Binlog_snapshot_position", str(pos))]
        elif "gtid_executed" in sql:
            return [(source.executed(source.visible),)]
        elif sql.startswith("SHOW"):
            number, pos = source.binlog.end
            return [(file_name(number), pos)]
        elif sql.startswith("SELECT"):
            self._view = self._view or self._snapshot()
            return self._select(self._view[1], sql, arguments)
        return []

    def _snapshot(self) -> tuple[LogPoint, dict[str, Rows]]:
        return self.source.shown_until(), {table: dict(rows) for table, rows in self.source.seen.items()}

    def _select(self, view: dict[str, Rows], sql: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        listed = re.search(r"^SELECT (.*) FROM `d`\.`(\w+)`.* LIMIT (\d+)", sql)
        assert listed is not None, sql
        if listed[2] not in view or listed[2] not in self.source.tables:
            raise pymysql.err.ProgrammingError(1146, f"Table 'd.{listed[2]}' doesn't exist")
        seen, names = view[listed[2]], re.findall(r"`(\w+)`", listed[1])
        after = str(arguments[0]).lower() if arguments else ""
        rows = [seen[key] for key in sorted(seen) if key > after][: int(listed[3])]
        return [tuple(_stored(row, name) for name in names) for row in rows]


def _stored(row: SourceRow, name: str) -> bytes | int | None:
    value = row[("k", "u1", "u2", "v").index(name)]
    return value.encode() if isinstance(value, str) else value
