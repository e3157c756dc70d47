"""An index of the statements in one range of a source's log: table → where definitions may have changed.

Pure.

A range is extended at either end and never read twice. A statement on unknown tables counts for every
table, DROP DATABASE for every table of the database.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from producer.binlog_format.log_event import AlterPart, LoggedStatement
from producer.statements import ddl
from producer.statements.judgement import judge_statement
from producer.statements.statement import parse_statement
from schemas.wire.position import LogPoint

TableName = tuple[str, str]

EVERY_TABLE: TableName = ("", "")
"""The name for a statement on unknown tables."""
OBJECTS: TableName = ("", "views, triggers, routines")
"""The name for a statement that changes the effect of other statements, and no table."""


class TouchedTable(NamedTuple):
    """A table that a statement names. `changed`: its definition may be different after the statement.

    `name`: (database, "") means all tables of a database, EVERY_TABLE all tables.
    """

    name: TableName
    changed: bool = True


def yield_touched_tables(query: LoggedStatement, part: AlterPart | None = None) -> Iterator[TouchedTable]:
    """Yield the tables that a statement touches; none if it leaves every table as it is.

    CREATE TABLE IF NOT EXISTS leaves the definition of an existing table as it is. A table that it
    created had no rows before, so no definition of it can be wrong there either.
    """
    if part in ("start", "rollback"):
        return
    statement = parse_statement(query)
    match statement.kind:
        case ddl.TableDdl():
            for verdict in judge_statement(statement):
                yield TouchedTable(verdict.table, changed=not verdict.keeps_definition)
        case ddl.SchemaDrop(db):
            yield TouchedTable((db, ""))
            yield TouchedTable(OBJECTS)
        case ddl.UnknownStatement():
            yield TouchedTable(EVERY_TABLE)
        case ddl.HarmlessStatement(objects=True):
            yield TouchedTable(OBJECTS, changed=False)


class StatementIndex:
    """The statements in the range [begin, end) that is `covered`.

    `same`: returns a name in the form in which the server compares it (schemas.table.names).
    """

    def __init__(self, same: Callable[[TableName], TableName] = lambda name: name) -> None:
        self._same = same
        self._touched: dict[TableName, list[LogPoint]] = defaultdict(list)
        self._changed: dict[TableName, list[LogPoint]] = defaultdict(list)
        self.covered: tuple[LogPoint, LogPoint] | None = None

    def set_name_comparison(self, same: Callable[[TableName], TableName]) -> None:
        """Set the form in which the server compares names, before anything is added."""
        self._same = same

    def clear_index(self) -> None:
        """Forget everything: another log begins."""
        self._touched.clear()
        self._changed.clear()
        self.covered = None

    def add_statement(self, at: LogPoint, tables: Iterable[TouchedTable]) -> None:
        """Add a statement that starts at `at`."""
        for table in tables:
            name = self._same(table.name)
            insort(self._touched[name], at)
            if table.changed:
                insort(self._changed[name], at)

    def list_missing_ranges(self, begin: LogPoint, end: LogPoint) -> list[tuple[LogPoint, LogPoint]]:
        """Return the ranges to read for [begin, end); `mark_covered` must be called for each of them.

        A known range that does not touch [begin, end) is forgotten.
        """
        if self.covered is None or begin > self.covered[1] or end < self.covered[0]:
            self.clear_index()
            return [(begin, end)] if begin < end else []
        gaps = [(begin, self.covered[0]), (self.covered[1], end)]
        return [(low, high) for low, high in gaps if low < high]

    def mark_covered(self, begin: LogPoint, end: LogPoint) -> None:
        """Record that all statements in [begin, end) have been added.

        A range that does not touch the known one is not part of it yet.
        """
        if self.covered is None:
            self.covered = begin, end
        elif begin <= self.covered[1] and end >= self.covered[0]:
            self.covered = min(self.covered[0], begin), max(self.covered[1], end)

    def find_last_statement(
        self, name: TableName, after: LogPoint, before: LogPoint | None = None, *, unchanged: bool = False
    ) -> LogPoint | None:
        """Return the start of the last known statement on the table after `after` (and before `before`).

        None: there is none.

        `unchanged`: include statements that certainly keep the definition.
        """
        points = self._touched if unchanged else self._changed
        keys = (self._same(name), self._same((name[0], "")), EVERY_TABLE)
        found = [
            at for key in keys if (at := _find_last_point(points.get(key, []), after, before)) is not None
        ]
        return max(found, default=None)


def _find_last_point(points: list[LogPoint], after: LogPoint, before: LogPoint | None) -> LogPoint | None:
    at = len(points) if before is None else bisect_left(points, before)
    return points[at - 1] if at and points[at - 1] > after else None
