"""Judges whether the tables of a source can be captured, from a catalog that is read in bulk, with a
handful of queries for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from producer.binlog_format.charsets import find_decoder
from schemas.errors import SchemaError, TableNotFoundError
from schemas.findings import add_exclusion
from schemas.io.mysql_catalog import CatalogEntry
from schemas.io.mysql_columns import CatalogColumn
from schemas.problems import Problem
from schemas.table.left_out import explain_needed_column, leave_columns_out
from schemas.table.model import Table

TableName = tuple[str, str]


class ExaminedTable(NamedTuple):
    """The result of examining a table.

    `table`: its definition, if it can be captured. `problem`: why it cannot. Both None: there is no such
    table, or the user may not see it.
    """

    table: Table | None
    problem: Problem | None


MISSING = ExaminedTable(None, None)


def refuse_table(name: TableName, problem: Problem) -> ExaminedTable:
    """Return the result for a table that cannot be captured."""
    return ExaminedTable(None, replace(problem, remedy=add_exclusion(problem.remedy, *name)))


def judge_catalog_table(
    name: TableName,
    entry: CatalogEntry,
    stored_otherwise: Callable[[CatalogColumn], bool],
    *,
    logs_virtual: bool = True,
    left_out: Collection[str] = (),
) -> ExaminedTable:
    """Return whether a table can be captured, judged by its own definition, and the definition without the
    columns `left_out` (in lower case). Pure.

    `stored_otherwise`: returns whether the log stores a column's values in a form that its type does not
    show. `logs_virtual`: whether the log has the values of VIRTUAL columns.
    """
    place = f"table {name[0]}.{name[1]}"
    if isinstance(entry.table, TableNotFoundError):
        return MISSING
    if isinstance(entry.table, SchemaError):
        return refuse_table(name, entry.table.problem)
    if entry.engine is not None:
        return refuse_table(
            name,
            Problem(
                f"{place} has the engine {entry.engine}, without ROLLBACK and without consistent snapshots",
                "ALTER TABLE … ENGINE=InnoDB, or exclude the table",
            ),
        )
    if (needed := explain_needed_column(entry.table, left_out)) is not None:
        return refuse_table(name, needed)
    table = leave_columns_out(entry.table, left_out)
    columns = [column for column in entry.columns if column.name in table.column_names]
    otherwise = [column for column in columns if stored_otherwise(column)]
    if otherwise:
        shown = ", ".join(f"column {column.name} {column.declared}" for column in otherwise)
        return refuse_table(
            name,
            Problem(
                f"{place}: {shown}: these have a form of their own in the binlog, which is not supported",
                "ALTER TABLE … MODIFY them to the plain type, or exclude the table",
            ),
        )
    virtual = [column.name for column in columns if "virtual" in column.extra.lower()]
    if virtual and not logs_virtual:
        return refuse_table(
            name,
            Problem(
                f"{place}: {', '.join(virtual)}: the log of this version of the server has NULL instead of "
                "the values of VIRTUAL columns",
                "make them PERSISTENT, or exclude the table",
            ),
        )
    if (undecodable := explain_undecodable_columns(table)) is not None:
        return refuse_table(name, undecodable.add_place(place))
    return ExaminedTable(table, None)


def explain_undecodable_columns(table: Table) -> Problem | None:
    """Return the columns with text that capture cannot decode, and a remedy; None: there are none. Pure."""
    for column in table.columns:
        try:
            find_decoder(column.type.charset)
        except LookupError as error:
            return Problem(
                f"column {column.name}: {error}",
                "ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4, or exclude the table",
            )
    return None
