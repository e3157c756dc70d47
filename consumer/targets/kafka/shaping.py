"""The shaping of rows by a route on their way to a topic: filtered rows, chosen columns, masked values.
Pure.

A filter selects rows, not changes: the topic contains what the filter accepts now. So an update by
which a row leaves the filter becomes a delete, and one by which it enters becomes a create. `verify`
shapes the source's rows in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from msgspec import structs

from consumer.errors import TargetConfigError
from consumer.ordering.model import TopicOptions
from schemas.table.filters import compile_row_filter, format_wire_value
from schemas.table.model import NUMBERED, Column, ColumnType, Kind, Row, Table, Value

SHA256 = "sha256"
_HEX_DIGITS = 64


class RowShaper:
    """Shapes rows of `table`, which is in target terms and whole. `salt`: prefix of each hashed value."""

    def __init__(self, table: Table, options: TopicOptions, salt: str = "") -> None:
        """Create a shaper.

        Raises TargetConfigError for a missing column, or for a mask or choice of columns that would
        lose the identity of rows.
        """
        _check_options(table, options)
        masks = dict(options.masks)
        chosen = [column for column in table.columns if not options.columns or column.name in options.columns]
        names = {column.name for column in chosen}
        self.table = structs.replace(
            table,
            columns=tuple(_build_shown_column(column, masks.get(column.name)) for column in chosen),
            unique=tuple(
                index
                for index in table.unique
                if names.issuperset(index.columns) and masks.keys().isdisjoint(index.columns)
            ),
        )
        at = table.find_ordinals(tuple(column.name for column in chosen))
        self._taken = [
            (i, _make_mask(masks.get(column.name), salt)) for i, column in zip(at, chosen, strict=True)
        ]
        self._masks = {name: _make_mask(mask, salt) for name, mask in masks.items()}
        self._inside = compile_row_filter(table, options.where)
        self._same = not masks and not options.where and len(chosen) == len(table.columns)

    def reshape_change(self, before: Row | None, after: Row | None) -> tuple[Row | None, Row | None] | None:
        """Return the change as it is written; None: both images are outside the filter."""
        if self._same:
            return before, after
        old = None if before is None else self.reshape_row(before)
        new = None if after is None else self.reshape_row(after)
        return None if old is None and new is None else (old, new)

    def reshape_row(self, row: Row) -> Row | None:
        """Return a row as it is written; None: it is outside the filter."""
        return self.mask_row(row) if self._inside(row) else None

    def mask_value(self, name: str, value: Value) -> Value:
        mask = self._masks.get(name)
        return value if mask is None else mask(value)

    def mask_row(self, row: Row) -> Row:
        """Return a row as it would be written, whether the filter accepts it or not."""
        return tuple(row[i] if mask is None else mask(row[i]) for i, mask in self._taken)


def digest_shape_options(options: TopicOptions, salt: str) -> tuple[tuple[str, str], ...]:
    """Return (option, digest) of a route's options about rows.

    A changed option leaves existing rows of the topic unchanged. A digest reveals no text of an option.
    """
    hashed = salt if any(mask == SHA256 for _, mask in options.masks) else ""
    where = sorted((name, sorted(map(repr, values))) for name, values in options.where)
    tracked = (
        ("columns", sorted(options.columns)),
        ("where", where),
        ("masks", (sorted(options.masks), hashed)),
    )
    return tuple((name, hashlib.sha256(repr(each).encode()).hexdigest()[:16]) for name, each in tracked)


def _check_options(table: Table, options: TopicOptions) -> None:
    there = set(table.column_names)
    place = f"{table.db}.{table.name}"
    for word, names in (
        ("columns", options.columns),
        ("where", [name for name, _ in options.where]),
        ("masks", [name for name, _ in options.masks]),
        ("key", options.key),
    ):
        if lacks := sorted(set(names) - there):
            raise TargetConfigError(
                f"{place} has no column {', '.join(lacks)}, which `{word}` of its route names",
                "correct the route",
            )
    for name, values in options.where:
        type_ = table.get_column(name).type
        if type_.kind in NUMBERED.values() and not all(
            value is None or value.isdecimal() for value in values
        ):
            raise TargetConfigError(
                f"{place}: `where` of its route compares column {name} with labels, but rowlock has their "
                "numbers, because one label is empty",
                f"write the numbers (SELECT {name}+0)",
            )
    routing = set(options.key)
    if options.columns and (lacks := sorted((routing | set(table.key.columns)) - set(options.columns))):
        raise TargetConfigError(
            f"{place}: `columns` of its route omits key columns ({', '.join(lacks)}), without "
            "which rows cannot be identified",
            "add them",
        )
    for name, mask in options.masks:
        if mask != SHA256 and name in routing.union(table.key.columns):
            raise TargetConfigError(
                f"{place}: column {name} is of the key, and one text for all its "
                "values would make one row of many",
                f"mask it by {SHA256}",
            )


def _build_shown_column(column: Column, mask: str | None) -> Column:
    """Return a column as the topic has it; a masked column is text."""
    if mask is None:
        return column
    length = _HEX_DIGITS if mask == SHA256 else len(mask)
    type_ = ColumnType(kind=Kind.VARCHAR, length=length, charset="utf8mb4", collation="utf8mb4_bin")
    return Column(name=column.name, type=type_, nullable=column.nullable)


def _make_mask(mask: str | None, salt: str) -> Callable[[Value], Value] | None:
    if mask is None:
        return None
    if mask != SHA256:
        return lambda value: None if value is None else mask
    salted = hashlib.sha256(salt.encode())

    def hash_value(value: Value) -> Value:
        text = format_wire_value(value)
        if text is None:
            return None
        found = salted.copy()
        found.update(text.encode())
        return found.hexdigest()

    return hash_value
