"""The forms in which a table's columns are selected, from itself and from its log, and read: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from producer.sources.oracle.catalogue import Logged
from producer.sources.oracle.mlog import LogRow
from producer.sources.oracle.sql import quoted
from producer.sources.oracle.types import form_of
from schemas.table.model import Key, Row

_BEFORE_IMAGE = 6
"""Columns of `sql.log_rows` before the image."""


def expressions(logged: Logged) -> list[str]:
    """Return the SQL expression of every column, of a table called `l`."""
    return [form_of(column).select.format(f"l.{quoted(column.name)}") for column in logged.columns]


def log_expressions(logged: Logged) -> list[str]:
    """Return those of the columns that the log has."""
    pairs = zip(logged.columns, expressions(logged), strict=True)
    return [each for column, each in pairs if column.name not in logged.unlogged]


def row_of(logged: Logged) -> Callable[[Sequence[Any]], Row]:
    """Return the function from what the driver gives for `expressions` to wire values."""
    converters = [form_of(column).convert for column in logged.columns]

    def convert(values: Sequence[Any]) -> Row:
        return tuple(
            None if value is None else each(value) for each, value in zip(converters, values, strict=True)
        )

    return convert


def log_row_of(logged: Logged) -> Callable[[Sequence[Any]], LogRow]:
    """Return the function from what the driver gives for a row of the log; what the log does not have is None in the image."""
    whole = row_of(logged)
    there = [column.name not in logged.unlogged for column in logged.columns]

    def image(values: Sequence[Any]) -> Row:
        if all(there):
            return whole(values)
        given = iter(values)
        return whole([next(given) if each else None for each in there])

    def convert(row: Sequence[Any]) -> LogRow:
        rowid, sequence, dml, old_new, xid, scn = row[:_BEFORE_IMAGE]
        return LogRow(str(rowid), int(sequence), dml, old_new, xid, int(scn or 0), image(row[_BEFORE_IMAGE:]))

    return convert


def key_of(logged: Logged) -> Callable[[Row], Key]:
    columns = logged.table.indexes_of(logged.table.key.columns)
    return lambda row: tuple(row[i] for i in columns)


def key_binds(logged: Logged) -> list[tuple[str, str]]:
    """Return the name of each key column, and how a bind becomes its value."""
    by_name = {column.name: column for column in logged.columns}
    return [(name, form_of(by_name[name]).bind or "{}") for name in logged.table.key.columns]


def bound_key(logged: Logged, key: Key) -> list[object]:
    """Return the binds that hold a key."""
    by_name = {column.name: column for column in logged.columns}
    return [
        form_of(by_name[name]).bound(value) for name, value in zip(logged.table.key.columns, key, strict=True)
    ]
