"""The SQL expressions by which a table's columns are selected from the table and from its log, and the
conversion of the results. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from producer.sources.oracle.mlog import LogRow
from producer.sources.oracle.sql import quote_names
from producer.sources.oracle.table_checks import LoggedTable
from producer.sources.oracle.types import build_column_form
from schemas.table.model import Key, Row

_BEFORE_IMAGE = 6
"""Columns of `sql.select_log_rows` before the image."""


def list_column_expressions(logged: LoggedTable) -> list[str]:
    """Return the SQL expression of every column; the table has the alias `l`."""
    return [
        build_column_form(column).select.format(f"l.{quote_names(column.name)}") for column in logged.columns
    ]


def list_log_expressions(logged: LoggedTable) -> list[str]:
    """Return the SQL expressions of the columns that the log has."""
    pairs = zip(logged.columns, list_column_expressions(logged), strict=True)
    return [each for column, each in pairs if column.name not in logged.unlogged]


def make_row_converter(logged: LoggedTable) -> Callable[[Sequence[Any]], Row]:
    """Return a function that converts the driver's values for `list_column_expressions` to wire values."""
    converters = [build_column_form(column).convert for column in logged.columns]

    def convert(values: Sequence[Any]) -> Row:
        return tuple(
            None if value is None else each(value) for each, value in zip(converters, values, strict=True)
        )

    return convert


def make_log_row_converter(logged: LoggedTable) -> Callable[[Sequence[Any]], LogRow]:
    """Return a function that converts the driver's values for a row of the log.

    Values that the log does not have are None in the image.
    """
    whole = make_row_converter(logged)
    there = [column.name not in logged.unlogged for column in logged.columns]

    def convert_image(values: Sequence[Any]) -> Row:
        if all(there):
            return whole(values)
        given = iter(values)
        return whole([next(given) if each else None for each in there])

    def convert(row: Sequence[Any]) -> LogRow:
        rowid, sequence, dml, old_new, xid, scn = row[:_BEFORE_IMAGE]
        return LogRow(
            str(rowid), int(sequence), dml, old_new, xid, int(scn or 0), convert_image(row[_BEFORE_IMAGE:])
        )

    return convert


def make_key_extractor(logged: LoggedTable) -> Callable[[Row], Key]:
    columns = logged.table.find_ordinals(logged.table.key.columns)
    return lambda row: tuple(row[i] for i in columns)


def list_key_binds(logged: LoggedTable) -> list[tuple[str, str]]:
    """Return the name of each key column, and the expression of its bind."""
    by_name = {column.name: column for column in logged.columns}
    return [(name, build_column_form(by_name[name]).bind or "{}") for name in logged.table.key.columns]


def bind_key(logged: LoggedTable, key: Key) -> list[object]:
    """Return the bind values of a key."""
    by_name = {column.name: column for column in logged.columns}
    return [
        build_column_form(by_name[name]).bound(value)
        for name, value in zip(logged.table.key.columns, key, strict=True)
    ]
