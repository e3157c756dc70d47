"""The limits of a table of MySQL and MariaDB, computed from its definition. Pure.

The servers refuse a table beyond a limit without its column, and without the length that it would need
(errors 1069, 1070, 1071, 1117, 1118, 1170). What is computed here is never more than the server counts, so
no table is refused that it would accept. One limit is left to the server: how much of a row InnoDB must keep
within a page (1118), which depends on the row format. Its refusal is completed with the columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from consumer.errors import FEWER_COLUMNS, TableTooLargeError, TargetConfigError
from schemas.problems import Problem
from schemas.table.model import ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.typemap import WIDEST_DECIMAL

#: Of InnoDB; the key's with its usual page of 16 KiB.
MAX_COLUMNS, MAX_KEYS, MAX_KEY_BYTES, MAX_ROW_BYTES = 1017, 64, 3072, 65_535
SHORTEN_KEY = (
    "give the target table shorter columns in its key by hand (rows with longer values are then "
    "quarantined), or leave the table out of the route"
)
SHORTEN_ROW = (
    "make the longest columns of the target table TEXT or BLOB by hand, or leave the table out of the route"
)
MAX_NAME = 64
"""Characters of a name."""
INNODB_COLUMNS = frozenset({"DB_ROW_ID", "DB_TRX_ID", "DB_ROLL_PTR"})
DEFAULT_CHARSET = "utf8mb4"
"""That of the tables that rowlock creates."""
_NAMED_COLUMNS = 3
_ROW_LIMIT = re.compile(r"\(> (\d+)\)|not counting BLOBs, is (\d+)")
"""The limit in the server's message of error 1118."""
_LONG = frozenset({Kind.TEXT, Kind.BLOB, Kind.JSON, Kind.GEOMETRY})
_OF_BYTES = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BLOB, Kind.GEOMETRY})
"""Types whose lengths and prefixes are counted in bytes, not in characters."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The differences between servers in what a table may be."""

    character_bytes: Mapping[str, int]
    """Character set → the most bytes of a character."""
    key_parts: int
    """The most columns of an index."""
    whole_texts: bool
    """Whether a unique index may be over values of any length. (MariaDB compares hashes of long ones.)"""
    page_value_bytes: int
    """Values of a variable length that may be longer than this may be stored outside of the row's page."""
    page_reference_bytes: int
    """Bytes that such a value takes in the page all the same (row format DYNAMIC)."""

    def count_character_bytes(self, type_: ColumnType) -> int:
        if type_.kind in _OF_BYTES:
            return 1
        return self.character_bytes.get(type_.charset or DEFAULT_CHARSET, 1)


def refuse_table_limit(table: Table, limits: ServerLimits) -> None:
    """Raise TargetConfigError if the server cannot have `table`, whose columns have their collations on this
    server. Its other unique indexes than the key are not judged.
    """
    problem = next(_yield_table_limits(table, limits), None)
    if problem is not None:
        raise TargetConfigError.from_problem(problem)


def _yield_table_limits(table: Table, limits: ServerLimits) -> Iterator[Problem]:
    place = f"target table {table.db}.{table.name}"
    if (count := len(table.columns)) > MAX_COLUMNS:
        yield Problem(f"{place}: it has {count} columns, and the limit is {MAX_COLUMNS}", FEWER_COLUMNS)
    if (reason := _explain_index_limit(table, table.key, limits, unlimited=False)) is not None:
        yield Problem(f"{place}: its key {reason}", SHORTEN_KEY)
    sizes = {each.name: _measure_in_row(each.type, limits) for each in table.columns}
    size = sum(sizes.values()) + (sum(each.nullable for each in table.columns) + 7) // 8
    if size > MAX_ROW_BYTES:
        longest = max(sizes, key=sizes.__getitem__)
        yield Problem(
            f"{place}: its columns may take {size} bytes in a row ({longest} {sizes[longest]}, the longest), "
            f"and the limit is {MAX_ROW_BYTES}",
            SHORTEN_ROW,
        )


def name_large_columns(error: TableTooLargeError, table: Table, limits: ServerLimits) -> TableTooLargeError:
    """Return the server's refusal of `table` (1118) with its limit, and with the columns that take the most
    bytes. A limit below that of a row is one of InnoDB's page.
    """
    found = _ROW_LIMIT.search(error.problem.what)
    if found is None:
        return error
    limit = int(found[1] or found[2])
    place = "a row" if limit >= MAX_ROW_BYTES else "a page"
    measure = _measure_in_row if limit >= MAX_ROW_BYTES else _measure_in_page
    sizes = {each.name: measure(each.type, limits) for each in table.columns}
    longest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:_NAMED_COLUMNS]
    named = ", ".join(f"{name} {sizes[name]}" for name in longest)
    return TableTooLargeError(
        f"target table {table.db}.{table.name}: its {len(sizes)} columns may take {sum(sizes.values())} "
        f"bytes in {place} (the longest: {named}), and the limit is {limit}",
        SHORTEN_ROW if sizes[longest[0]] > limits.page_reference_bytes else FEWER_COLUMNS,
    )


def explain_name(name: str) -> str:
    """Return why MySQL and MariaDB cannot have a name; "": they can."""
    if len(name) > MAX_NAME:
        return f"the server has names of at most {MAX_NAME} characters, and {name!r} has {len(name)}"
    if name.endswith(" ") or any(char > "\uffff" or char == "\0" for char in name):
        return f"the server has no names that end with a space, or with characters beyond U+FFFF: {name!r}"
    return ""


def explain_column_name(name: str) -> str:
    """Return why MySQL and MariaDB cannot have a column of this name; "": they can."""
    if name.upper() in INNODB_COLUMNS:
        return f"every table of InnoDB has a hidden column {name.upper()}"
    return explain_name(name)


def list_impossible_indexes(table: Table, limits: ServerLimits) -> list[tuple[UniqueIndex, str]]:
    """Return the unique indexes of `table` that the server cannot have, each with its limit."""
    found: list[tuple[UniqueIndex, str]] = []
    kept = 1  # with the key
    for index in table.unique:
        reason = _explain_index_limit(table, index, limits, unlimited=limits.whole_texts)
        if reason is None and (kept := kept + 1) > MAX_KEYS:
            reason = f"is beyond the limit of {MAX_KEYS} indexes"
        if reason is not None:
            found.append((index, reason))
    return found


def refuse_index_limit(table: Table, before: Table, limits: ServerLimits) -> None:
    """Raise TargetConfigError if the server cannot have a unique index of `table` that is new, or has a
    column of another type than in `before`. The server has the others already.
    """
    for index, reason in list_impossible_indexes(table, limits):
        if index in before.unique and all(
            before.get_column(name).type == table.get_column(name).type for name in index.columns
        ):
            continue
        raise TargetConfigError(
            f"target table {table.db}.{table.name}: unique index {index.name} ({', '.join(index.columns)}) "
            f"{reason}",
            "drop the index in the target, for the source keeps its rows unique",
        )


def _explain_index_limit(
    table: Table, index: UniqueIndex, limits: ServerLimits, *, unlimited: bool
) -> str | None:
    """Return which limit an index exceeds. `unlimited`: its values may have any length."""
    if (count := len(index.parts)) > limits.key_parts:
        return f"has {count} columns, and the limit is {limits.key_parts}"
    if unlimited or not {*index.columns} <= {*table.column_names}:  # a dropped column of the key
        return None
    sizes: dict[str, int] = {}
    for part in index.parts:
        type_ = table.get_column(part.column).type
        if part.prefix is None and type_.kind in _LONG:
            return f"is over the whole {type_.kind} {part.column}, which has no limited length"
        sizes[part.column] = _measure_in_key(type_, part, limits)
    size = sum(sizes.values())
    if size <= MAX_KEY_BYTES:
        return None
    parts = ", ".join(f"{name} {bytes_}" for name, bytes_ in sizes.items())
    return f"may take {size} bytes ({parts}), and the limit is {MAX_KEY_BYTES}"


def _measure_in_key(type_: ColumnType, part: IndexPart, limits: ServerLimits) -> int:
    if part.prefix is not None:
        return part.prefix * limits.count_character_bytes(type_)
    return _measure_value(type_, limits)


def _measure_in_row(type_: ColumnType, limits: ServerLimits) -> int:
    """Return the bytes of a column in a row; a TEXT or BLOB has only its length and place there."""
    if type_.kind in _LONG:
        return 12 if not type_.length else 8 + (type_.length.bit_length() + 7) // 8
    size = _measure_value(type_, limits)
    if type_.kind in (Kind.VARCHAR, Kind.VARBINARY):
        return size + (1 if size < 256 else 2)
    return size


def _measure_in_page(type_: ColumnType, limits: ServerLimits) -> int:
    """Return the bytes of a column that InnoDB keeps in the row's page at least, if its values are long."""
    size = _measure_in_row(type_, limits)
    is_long = type_.kind in _LONG
    if type_.kind in (Kind.CHAR, Kind.VARCHAR, Kind.VARBINARY):
        is_long = size > limits.page_value_bytes
    if type_.kind is Kind.CHAR and limits.count_character_bytes(type_) == 1:  # of a fixed length
        is_long = False
    return limits.page_reference_bytes if is_long else size


def _measure_value(type_: ColumnType, limits: ServerLimits) -> int:
    """Return the most bytes of a value, as the servers count them."""
    return _MEASURES[type_.kind](type_, limits)


def _measure_decimal(type_: ColumnType) -> int:
    precision, scale = (type_.precision, type_.scale) if type_.precision else WIDEST_DECIMAL
    return sum(digits // 9 * 4 + (digits % 9 + 1) // 2 for digits in (precision - scale, scale))


def _measure_set(type_: ColumnType) -> int:
    size = (len(type_.members) + 7) // 8
    return size if size <= 4 else 8


Measure = Callable[[ColumnType, ServerLimits], int]


def _measure_with_fraction(whole: int) -> Measure:
    return lambda type_, _: whole + (type_.fsp + 1) // 2


def _measure_fixed(size: int) -> Measure:
    return lambda _, __: size


_MEASURES: dict[Kind, Measure] = {
    Kind.INT: lambda type_, _: type_.bits // 8,
    Kind.DECIMAL: lambda type_, _: _measure_decimal(type_),
    Kind.FLOAT: _measure_fixed(4),
    Kind.DOUBLE: _measure_fixed(8),
    Kind.BIT: lambda type_, _: type_.length // 8,
    Kind.YEAR: _measure_fixed(1),
    **dict.fromkeys(
        (Kind.CHAR, Kind.VARCHAR), lambda type_, limits: type_.length * limits.count_character_bytes(type_)
    ),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY), lambda type_, _: type_.length),
    Kind.DATE: _measure_fixed(3),
    Kind.TIME: _measure_with_fraction(3),
    Kind.DATETIME: _measure_with_fraction(5),
    Kind.TIMESTAMP: _measure_with_fraction(4),
    **dict.fromkeys((Kind.ENUM, Kind.ENUM_NUMBER), lambda type_, _: 1 if len(type_.members) < 256 else 2),
    **dict.fromkeys((Kind.SET, Kind.SET_NUMBER), lambda type_, _: _measure_set(type_)),
}
