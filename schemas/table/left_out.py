"""Columns of a source's tables that capture does not publish: `columns:` of the source. Pure.

A name counts in any case, as the servers compare names of columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from schemas.problems import Problem
from schemas.table.model import LeftOutColumn, Table
from schemas.table.names import NameRules, TableName
from schemas.table.patterns import is_pattern_match

ColumnsOption = Mapping[str, Sequence[str]]
"""Pattern of tables → the columns to leave out. The last pattern that matches a table decides."""


class LeftOutColumns:
    """The columns that the option leaves out of each table of one server."""

    def __init__(self, option: ColumnsOption, names: NameRules) -> None:
        self._option = {names.fold_name(pattern): tuple(columns) for pattern, columns in option.items()}

    def find_pattern(self, name: TableName) -> str | None:
        """Return the pattern that decides about a table; None: none matches it."""
        found = [pattern for pattern in self._option if is_pattern_match(pattern, *name)]
        return found[-1] if found else None

    def list_columns(self, name: TableName) -> frozenset[str]:
        """Return the names, in lower case, of the columns to leave out of a table, whether it has them or
        not.
        """
        pattern = self.find_pattern(name)
        return frozenset() if pattern is None else frozenset(map(str.lower, self._option[pattern]))

    def apply_to(self, table: Table) -> Table:
        """Return a table as capture publishes it."""
        return leave_columns_out(table, self.list_columns((table.db, table.name)))

    def find_differences(self, table: Table) -> list[str]:
        """Return the columns of a topic's definition that the option now treats otherwise than the topic,
        sorted.
        """
        names = self.list_columns((table.db, table.name))
        unpublished = {each.name for each in table.left_out}
        asked = {name for name in table.logged_names if name.lower() in names}
        return sorted(unpublished ^ asked)

    def yield_unknown(
        self, tables: Iterable[Table], unread: Iterable[TableName] = ()
    ) -> Iterator[tuple[str, str]]:
        """Yield (pattern, column) for each column of the option that no table has for which the pattern
        decides; the column is "" if the pattern decides about none of the tables. A pattern that decides
        about one of the tables `unread`, whose columns are not known, is not judged.
        """
        known: dict[str, set[str]] = {}
        unjudged = {self.find_pattern(name) for name in unread}
        for table in tables:
            pattern = self.find_pattern((table.db, table.name))
            if pattern is not None:
                known.setdefault(pattern, set()).update(map(str.lower, table.logged_names))
        for pattern, columns in self._option.items():
            if pattern in unjudged:
                continue
            if pattern not in known:
                yield pattern, ""
                continue
            yield from ((pattern, column) for column in columns if column.lower() not in known[pattern])


NOTHING_LEFT_OUT = LeftOutColumns({}, NameRules())


def leave_columns_out(table: Table, names: Collection[str]) -> Table:
    """Return the table without the columns `names` (in lower case), which become its `left_out`."""
    left_out = tuple(
        LeftOutColumn(name=column.name, place=i)
        for i, column in enumerate(table.columns)
        if column.name.lower() in names
    )
    if not left_out:
        return table
    columns = tuple(column for column in table.columns if column.name.lower() not in names)
    return replace(table, columns=columns, left_out=left_out)


def explain_needed_column(table: Table, names: Collection[str]) -> Problem | None:
    """Return the problem of a whole table of which the columns `names` (in lower case) cannot all be left
    out: rows are told apart and put in order by the values of keys and unique indexes. None: they can.
    """
    for index in (table.key, *table.unique):
        for name in index.columns:
            if name.lower() in names:
                what = "its key" if index is table.key else f"its unique index {index.name}"
                return Problem(
                    f"table {table.db}.{table.name}: column {name} belongs to {what}, and `columns:` leaves "
                    "it out",
                    f"take {name} out of `leave_out`, or exclude the table",
                )
    return None
