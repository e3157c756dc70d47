"""The filter of a route, which selects rows by the values of columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from schemas.table.model import Row, Table, Value

RowCondition = Sequence[tuple[str, Sequence[str | None]]]
"""(column, the texts of accepted values) of each filtered column; None among them: NULL."""


def format_wire_value(value: Value) -> str | None:
    """Return the text of a wire value, which filters compare and masks hash: 5 is "5"."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def compile_row_filter(table: Table, where: RowCondition) -> Callable[[Row], bool]:
    """Return a function that returns whether the filter accepts a row of `table`.

    Raises KeyError if a column does not exist.
    """
    conditions = [(table.find_ordinals((name,))[0], frozenset(values)) for name, values in where]
    return lambda row: all(format_wire_value(row[i]) in values for i, values in conditions)
