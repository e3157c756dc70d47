"""The neutral table model: the content of a definition event, shared by capture and apply.

Column types are those of the source, made neutral; values of each kind have exactly one wire form, the
same from the log and from a snapshot (the table below is the contract; `None` is NULL everywhere):

| kind | wire value (a JSON value) |
|---|---|
| int (bits 8..64, unsigned), year | integer; beyond ±2^53 its decimal string |
| bit(length) | integer; beyond 2^53 its decimal string |
| decimal(precision, scale) | string with exactly `scale` fraction digits, "-0.50"; precision 0: any scale |
| float (32 bits), double | JSON number; a float is widened exactly to a double |
| char, varchar, text | string (CHAR without trailing spaces, as the server returns it) |
| binary, varbinary, blob | base64; BINARY(n) padded with zero bytes to n |
| date | "YYYY-MM-DD"; zero dates as they are ("0000-00-00") |
| time(fsp) | "[-]HH:MM:SS[.f…]" with exactly `fsp` digits; hours up to 838 |
| datetime(fsp) | "YYYY-MM-DD HH:MM:SS[.f…]": wall text, never converted |
| timestamp(fsp) | "YYYY-MM-DDTHH:MM:SS[.f…]Z": UTC; the zero timestamp as "0000-00-00 00:00:00[.f…]" |
| json | JSON text as the server prints it |
| enum, set | label; labels joined by ","; the error value is "" |
| enum_number | integer, the label's place from 1; 0 is the error value |
| set_number | integer, a bit for each label, the first label's is 1; beyond 2^53 its decimal string |
| geometry | {"wkb": base64, "srid": integer} |

A char or varchar with `text_of` is a type of MariaDB: a UUID in lower case with hyphens, an INET4 or INET6
as the server spells it. A text with `text_of` is a VECTOR: "[0.5,-1.0]", each number widened exactly to a
double (schemas/table/text_types.py).

A decimal never has an exponent or leading zeros. With precision 0 it has as many digits as it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from schemas.table.collations import own_name

Value = None | bool | int | float | str | dict[str, object]
"""A wire value."""
Row = tuple[Value, ...]
"""Wire values in the order of `Table.columns`."""
Key = tuple[Value, ...]
"""Wire values of the key columns, in the order of `Table.key.parts`."""


class Kind(StrEnum):
    INT = "int"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    BIT = "bit"
    YEAR = "year"
    CHAR = "char"
    VARCHAR = "varchar"
    TEXT = "text"
    BINARY = "binary"
    VARBINARY = "varbinary"
    BLOB = "blob"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    JSON = "json"
    ENUM = "enum"
    SET = "set"
    #: ENUM and SET with an empty label: as text a value would be ambiguous ("" is the label or the
    #: error value), so it is a number.
    ENUM_NUMBER = "enum_number"
    SET_NUMBER = "set_number"
    GEOMETRY = "geometry"


NUMBERED: Mapping[Kind, Kind] = {Kind.ENUM: Kind.ENUM_NUMBER, Kind.SET: Kind.SET_NUMBER}
"""Kind of a column with labels → its kind if one of the labels is empty."""


class TextOf(StrEnum):
    """A type with values that have a canonical text and another binary form."""

    UUID = "uuid"
    INET4 = "inet4"
    INET6 = "inet6"
    INET = "inet"
    """PostgreSQL's type for both; only real columns of targets have it."""
    VECTOR = "vector"
    """MySQL's and MariaDB's VECTOR, PostgreSQL's real[]; `precision` is the most numbers, 0: any."""


class ColumnType(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A neutral column type; only the fields that its kind needs are set."""

    kind: Kind = msgspec.field(name="kind")
    bits: int = msgspec.field(name="bits", default=0)  # int: 8, 16, 24, 32 or 64
    unsigned: bool = msgspec.field(name="unsigned", default=False)  # int, decimal, float, double
    precision: int = msgspec.field(name="precision", default=0)  # decimal; 0: any, with any scale
    scale: int = msgspec.field(name="scale", default=0)  # decimal
    #: char/varchar: characters; binary/varbinary: bytes; text/blob: maximal bytes; bit: bits
    length: int = msgspec.field(name="length", default=0)
    fsp: int = msgspec.field(name="fsp", default=0)  # time, datetime, timestamp: digits of the fraction
    members: tuple[str, ...] = msgspec.field(name="members", default=())  # enum, set, enum_number, set_number
    charset: str | None = msgspec.field(name="charset", default=None)  # text kinds, enum, set
    collation: str | None = msgspec.field(name="collation", default=None)
    srid: int | None = msgspec.field(name="srid", default=None)  # geometry
    #: char, varchar, text: the type of which the values are the text. Readers that do not know it have texts.
    text_of: TextOf | None = msgspec.field(name="text_of", default=None)


def convert_labels_to_numbers(type_: ColumnType) -> ColumnType:
    """Return the type, with values as numbers if one of its labels is empty."""
    kind = NUMBERED.get(type_.kind)
    return type_ if kind is None or "" not in type_.members else replace(type_, kind=kind)


def list_ambiguous_columns(table: Table) -> list[str]:
    """Return the columns that have labels as text although one is empty, as versions before 0.1.0
    defined them.
    """
    return [column.name for column in table.columns if convert_labels_to_numbers(column.type) != column.type]


class Column(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str = msgspec.field(name="name")
    type: ColumnType = msgspec.field(name="type")
    nullable: bool = msgspec.field(name="nullable", default=True)
    default: str | None = msgspec.field(name="default", default=None)  # a literal, as text; None: no default
    auto_increment: bool = msgspec.field(name="auto_increment", default=False)
    generated: bool = msgspec.field(name="generated", default=False)
    #: of a generated column, as its server writes it; None also in older topics
    expression: str | None = msgspec.field(name="expression", default=None)
    #: A default that is not a literal, as its server writes it: UUID(), CURRENT_TIMESTAMP, (a + b), and
    #: any of a binary kind. None also in older topics.
    default_expression: str | None = msgspec.field(name="default_expression", default=None)


class IndexPart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    column: str = msgspec.field(name="column")
    #: characters (bytes for binary kinds); None: the whole value
    prefix: int | None = msgspec.field(name="prefix", default=None)
    collation: str | None = msgspec.field(name="collation", default=None)  # None: the column's


class UniqueIndex(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str = msgspec.field(name="name")
    parts: tuple[IndexPart, ...] = msgspec.field(name="parts")
    nulls_distinct: bool = msgspec.field(name="nulls_distinct", default=True)  # False: NULLS NOT DISTINCT

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(part.column for part in self.parts)

    def with_renamed_columns(self, names: Mapping[str, str]) -> UniqueIndex:
        """Return the index with columns renamed by `names` (old name → new name)."""
        parts = (replace(part, column=names.get(part.column, part.column)) for part in self.parts)
        return replace(self, parts=tuple(parts))


class LeftOutColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a source's table that capture does not publish (`columns:` of the source).

    `place`: its ordinal in the rows of the log, from 0.
    """

    name: str = msgspec.field(name="name")
    place: int = msgspec.field(name="place")


class Table(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A table of a source, or, after routing, of a target (`db` is then its schema or database).

    `key` is the identity of a row: the primary key, or without one the first NOT NULL unique index (by
    columns, then name). `unique` contains all *other* unique indexes. `columns` are those that capture
    publishes; `left_out` has the others, in the order of the log, and only capture knows them.
    """

    db: str = msgspec.field(name="db")
    name: str = msgspec.field(name="name")
    columns: tuple[Column, ...] = msgspec.field(name="columns")
    key: UniqueIndex = msgspec.field(name="key")
    unique: tuple[UniqueIndex, ...] = msgspec.field(name="unique", default=())
    charset: str | None = msgspec.field(name="charset", default=None)
    collation: str | None = msgspec.field(name="collation", default=None)
    left_out: tuple[LeftOutColumn, ...] = msgspec.field(name="left_out", default=())

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def places(self) -> tuple[int, ...]:
        """The ordinals of `columns` in the rows of the log."""
        left_out = {each.place for each in self.left_out}
        return tuple(i for i in range(len(self.columns) + len(left_out)) if i not in left_out)

    @property
    def logged_names(self) -> tuple[str, ...]:
        """The names of all columns, in the order of the rows of the log."""
        names = {each.place: each.name for each in self.left_out}
        names.update(zip(self.places, self.column_names, strict=True))
        return tuple(names[i] for i in range(len(names)))

    def get_column(self, name: str) -> Column:
        """Return the column `name`. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def find_ordinals(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the ordinals of the columns `names`, in that order."""
        order = {column.name: i for i, column in enumerate(self.columns)}
        return tuple(order[name] for name in names)

    def with_renamed_columns(self, names: Mapping[str, str]) -> Table:
        """Return the table with columns renamed by `names` (old name → new name)."""
        columns = tuple(replace(column, name=names.get(column.name, column.name)) for column in self.columns)
        unique = tuple(index.with_renamed_columns(names) for index in self.unique)
        return replace(self, columns=columns, key=self.key.with_renamed_columns(names), unique=unique)


def is_same_definition(known: Table, now: Table) -> bool:
    """Return whether `now` is the definition `known`, as far as `known` goes. Columns that are not published
    do not count.

    Definitions of older topics lack the expressions of generated columns and of defaults, which may
    then be any. Their collations have whichever name MariaDB showed.
    """
    if known == now:
        return True
    learnt = tuple(_as_known(old, column) for old, column in zip(known.columns, now.columns, strict=False))
    collation = _normalize_shown_default(known.collation, now.collation)
    whole = replace(now, columns=learnt, collation=collation, left_out=known.left_out)
    return len(known.columns) == len(now.columns) and known == whole


def _as_known(old: Column, column: Column) -> Column:
    expression = None if old.generated and old.expression is None else column.expression
    default = None if old.default_expression is None else column.default_expression
    type_ = replace(
        column.type, collation=_normalize_shown_default(old.type.collation, column.type.collation)
    )
    return replace(column, expression=expression, default_expression=default, type=type_)


def _normalize_shown_default(old: str | None, now: str | None) -> str | None:
    return old if old is not None and own_name(old) == now else now
