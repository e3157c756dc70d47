"""The mapping of neutral column types to Oracle's and back, as data and pure functions.

VARCHAR2 and RAW end at 4000 and 2000 bytes (MAX_STRING_SIZE = STANDARD); 1000 characters always fit,
whatever they are. Longer columns become LOBs, which cannot be in a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from schemas.errors import UnsupportedTypeError
from schemas.table.charsets import compute_longest_text
from schemas.table.model import ColumnType, Kind, TextOf

MAX_CHARACTERS, MAX_BYTES, MAX_DIGITS = 1000, 2000, 38
_INT_DIGITS = {8: 3, 16: 5, 24: 8, 32: 10}
#: Kinds for which Oracle stores the empty value as NULL.
EMPTY_IS_NULL = frozenset({
    Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET, Kind.BINARY, Kind.VARBINARY, Kind.BLOB,
})  # fmt: skip

#: Types that Oracle pads with blanks up to their length.
PADDED = frozenset({"CHAR", "NCHAR"})


def render_oracle_type(type_: ColumnType) -> str:
    """Return the DDL type, such as "NUMBER(20)". Raises UnsupportedTypeError."""
    render = None if type_.text_of is TextOf.VECTOR else _RENDER.get(type_.kind)
    if render is None:
        raise UnsupportedTypeError(
            f"Oracle has no type that rowlock writes for {type_.text_of or type_.kind}",
            "leave the column out at the source",
        )
    return render(type_)


def is_lob(rendered: str) -> bool:
    return rendered in ("CLOB", "BLOB")


def _render_int_type(type_: ColumnType) -> str:
    return f"NUMBER({_INT_DIGITS.get(type_.bits) or (20 if type_.unsigned else 19)})"


def _render_decimal_type(type_: ColumnType) -> str:
    if type_.precision > MAX_DIGITS:
        raise UnsupportedTypeError(
            f"Oracle has decimals of up to {MAX_DIGITS} digits, the source's has {type_.precision}",
            "make it narrower, or leave it out",
        )
    return f"NUMBER({type_.precision},{type_.scale})" if type_.precision else "NUMBER"


def _render_character_type(length: int) -> str:
    return f"VARCHAR2({max(1, length)} CHAR)" if length <= MAX_CHARACTERS else "CLOB"


def _render_bytes_type(type_: ColumnType) -> str:
    return f"RAW({max(1, type_.length)})" if type_.length <= MAX_BYTES else "BLOB"


def _render_labels_type(type_: ColumnType) -> str:
    return _render_character_type(compute_longest_text(type_))


_RENDER: dict[Kind, Callable[[ColumnType], str]] = {
    Kind.INT: _render_int_type,
    Kind.DECIMAL: _render_decimal_type,
    Kind.FLOAT: lambda _: "BINARY_FLOAT",
    Kind.DOUBLE: lambda _: "BINARY_DOUBLE",
    # a scale without precision, which distinguishes it from every decimal
    Kind.BIT: lambda _: "NUMBER(*,0)",
    Kind.YEAR: lambda _: "NUMBER(4)",
    Kind.CHAR: lambda type_: _render_character_type(type_.length),
    Kind.VARCHAR: lambda type_: _render_character_type(type_.length),
    Kind.TEXT: lambda _: "CLOB",
    Kind.BINARY: _render_bytes_type,
    Kind.VARBINARY: _render_bytes_type,
    Kind.BLOB: lambda _: "BLOB",
    Kind.DATE: lambda _: "DATE",
    Kind.TIME: lambda type_: f"INTERVAL DAY(2) TO SECOND({type_.fsp})",
    Kind.DATETIME: lambda type_: f"TIMESTAMP({type_.fsp})",
    # an instant that may be in a key, unlike one WITH TIME ZONE (ORA-02329)
    Kind.TIMESTAMP: lambda type_: f"TIMESTAMP({type_.fsp}) WITH LOCAL TIME ZONE",
    Kind.JSON: lambda _: "CLOB",
    Kind.ENUM: _render_labels_type,
    Kind.SET: _render_labels_type,
    Kind.ENUM_NUMBER: _render_labels_type,
    Kind.SET_NUMBER: _render_labels_type,
}


@dataclass(frozen=True, slots=True)
class OracleCatalogType:
    """The type columns of a row of ALL_TAB_COLUMNS. `length`: characters of a text, bytes of a RAW."""

    data_type: str
    length: int = 0
    precision: int | None = None
    scale: int | None = None


_DATED = re.compile(r"TIMESTAMP\((\d)\)(?P<zone> WITH (LOCAL )?TIME ZONE)?")
_INTERVAL = re.compile(r"INTERVAL DAY\(\d\) TO SECOND\((\d)\)")
_PLAIN: dict[str, Callable[[OracleCatalogType], ColumnType]] = {
    "BINARY_FLOAT": lambda _: ColumnType(kind=Kind.FLOAT),
    "BINARY_DOUBLE": lambda _: ColumnType(kind=Kind.DOUBLE),
    "CHAR": lambda real: ColumnType(kind=Kind.CHAR, length=real.length),
    "NCHAR": lambda real: ColumnType(kind=Kind.CHAR, length=real.length),
    "VARCHAR2": lambda real: ColumnType(kind=Kind.VARCHAR, length=real.length),
    "NVARCHAR2": lambda real: ColumnType(kind=Kind.VARCHAR, length=real.length),
    "CLOB": lambda _: ColumnType(kind=Kind.TEXT),
    "NCLOB": lambda _: ColumnType(kind=Kind.TEXT),
    "RAW": lambda real: ColumnType(kind=Kind.VARBINARY, length=real.length),
    "BLOB": lambda _: ColumnType(kind=Kind.BLOB),
    "DATE": lambda _: ColumnType(kind=Kind.DATE),
    "JSON": lambda _: ColumnType(kind=Kind.JSON),
}


def convert_oracle_type(real: OracleCatalogType) -> ColumnType:
    """Return the neutral type of a target's column, for checks and changes.

    NUMBER is a decimal, INTEGER (NUMBER(*,0)) takes bits. Raises UnsupportedTypeError.
    """
    if real.data_type == "NUMBER":
        if real.precision is None and real.scale is None:
            return ColumnType(kind=Kind.DECIMAL)
        if real.precision is None and real.scale == 0:
            return ColumnType(kind=Kind.BIT)
        return ColumnType(kind=Kind.DECIMAL, precision=real.precision or MAX_DIGITS, scale=real.scale or 0)
    if found := _DATED.fullmatch(real.data_type):
        return ColumnType(kind=Kind.TIMESTAMP if found["zone"] else Kind.DATETIME, fsp=int(found[1]))
    if found := _INTERVAL.fullmatch(real.data_type):
        return ColumnType(kind=Kind.TIME, fsp=int(found[1]))
    known = _PLAIN.get(real.data_type)
    if known is None:
        raise UnsupportedTypeError(
            f"Oracle's type {real.data_type} has no neutral type", "leave the column out at the source"
        )
    return known(real)
