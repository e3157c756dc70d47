"""Rows of MySQL and MariaDB ↔ wire values (schemas/table/model.py), through PyMySQL.

Reading: SELECT `select_list(table)` and convert each row with `make_select_row_converter(table)`.
Writing: convert a wire row with `to_mysql(table)` and pass the tuple to PyMySQL. Both need a session of
`connect_mysql` (MYSQL_SESSION_SQL). The values read equal those that capture decodes from the binlog,
so a snapshot and the log agree.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from schemas.errors import ValueRefusedError
from schemas.io.mysql_connection import MYSQL_SESSION_SQL, connect_mysql
from schemas.table.model import Column, Kind, Row, Table, TextOf, Value
from schemas.table.text_types import format_vector, parse_vector
from schemas.table.typemap import WIDEST_DECIMAL
from schemas.values.converter import (
    Convert,
    ConvertRow,
    compile_row,
    encode_wire_int,
    from_base64,
    normalize_decimal,
    to_base64,
)
from schemas.values.packed import PackedSelect, list_json_parts

__all__ = [
    "MYSQL_SESSION_SQL",
    "connect_mysql",
    "decode_wire_geometry",
    "encode_wire_geometry",
    "encode_wire_timestamp",
    "format_timestamp_text",
    "is_geometry",
    "make_select_row_converter",
    "pack_rows",
    "quote_name",
    "select_list",
    "to_mysql",
    "to_mysql_columns",
]  # fmt: skip

_SRID = struct.Struct("<I")


def quote_name(name: str) -> str:
    """Return `name` as a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


#: The expressions of kinds that are not read as bare columns. Dates as text keep zero dates and
#: fractions. PyMySQL would convert decimals to Decimal. FLOAT prints 6 digits unless widened; "* 1e0"
#: widens and keeps the sign of -0, "+ 0" does not.
_EXPRESSIONS: dict[Kind, str] = {
    Kind.BIT: "{0}+0",
    Kind.FLOAT: "{0}*1e0",
    Kind.DOUBLE: "{0}*1e0",
    Kind.YEAR: "{0}+0",
    # "+ 0" converts a SET to a double, which can hold 53 of its 64 bits.
    **dict.fromkeys((Kind.ENUM_NUMBER, Kind.SET_NUMBER), "CAST({0} AS UNSIGNED)"),
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), "CAST({0} AS CHAR)"),
}


def select_list(table: Table) -> list[str]:
    """Return the SQL expression of every column of `table`, in order."""
    return [_choose_expression(column).format(quote_name(column.name)) for column in table.columns]


def pack_rows(table: Table) -> PackedSelect:
    """Return the expressions of packed rows of `table`, for which `can_pack` holds.

    GROUP_CONCAT without ORDER BY appends the rows as they come. The session's group_concat_max_len and
    max_allowed_packet limit the text.
    """
    columns = ", ".join(quote_name(column.name) for column in table.columns)
    values = [_render_as_json(column) for column in table.columns]
    return PackedSelect(columns, f"GROUP_CONCAT({', '.join(list_json_parts(table, values))})")


def _render_as_json(column: Column) -> str:
    value = _choose_expression(column).format(quote_name(column.name))
    if column.type.kind is Kind.VARCHAR:
        return f"JSON_QUOTE({value})"
    return f"{value}+0" if column.type.unsigned else value  # ZEROFILL, always unsigned, shows "0042"


def _choose_expression(column: Column) -> str:
    if column.type.text_of is TextOf.VECTOR:
        return "CAST({0} AS BINARY)"  # PyMySQL does not know the type
    return _EXPRESSIONS.get(column.type.kind, "{0}")


def make_select_row_converter(
    table: Table, otherwise: Callable[[Column], Convert | None] | None = None
) -> Callable[[tuple[Any, ...]], Row]:
    """Return the function from a row of PyMySQL (plain tuple cursor) to wire values.

    `otherwise` returns the converter of a column that is not read as usual, None for any other.
    """
    read = otherwise or _find_no_converter
    return compile_row([read(each) or _choose_reader(each)(each) for each in table.columns])


def _choose_reader(column: Column) -> Callable[[Column], Convert | None]:
    if column.type.text_of is TextOf.VECTOR:
        return _make_constant_chooser(format_vector)
    return _READ.get(column.type.kind, _find_no_converter)


def _choose_writer(column: Column) -> Callable[[Column], Convert | None]:
    if column.type.text_of is TextOf.VECTOR:
        return _make_constant_chooser(parse_vector)
    return _WRITE.get(column.type.kind, _find_no_converter)


def to_mysql(table: Table) -> Callable[[Row], tuple[Any, ...]]:
    """Return the function from wire values to PyMySQL parameters.

    Values that are written and read again are the same wire values. The server itself refuses what its
    types cannot hold.
    """
    return compile_row([_choose_writer(column)(column) for column in table.columns])


def to_mysql_columns(table: Table, columns: tuple[str, ...]) -> ConvertRow:
    """Return the function for tuples of only `columns`, in that order (keys, unique values)."""
    chosen = [table.get_column(name) for name in columns]
    return compile_row([_choose_writer(column)(column) for column in chosen])


def _find_no_converter(_: Column) -> Convert | None:
    return None


def _read_int(column: Column) -> Convert | None:
    return encode_wire_int if column.type.bits == 64 else None


def _read_bit(column: Column) -> Convert | None:
    return encode_wire_int if column.type.length > 53 else None


def _read_decimal(column: Column) -> Convert | None:
    if not column.type.precision and not column.type.scale:  # of any scale
        return normalize_decimal
    return _strip_zerofill if column.type.unsigned else None


def _strip_zerofill(text: str) -> str:
    """Return a decimal without leading zeros: ZEROFILL (always unsigned) shows "0001.50"."""
    if text[0] != "0":
        return text
    stripped = text.lstrip("0")
    return stripped if stripped and stripped[0] != "." else "0" + stripped


def _read_timestamp(_: Column) -> Convert | None:
    return encode_wire_timestamp


def encode_wire_timestamp(text: str) -> str:
    """Return the wire value of "YYYY-MM-DD HH:MM:SS[.f…]" in UTC."""
    return text if text.startswith("0000-00-00") else f"{text[:10]}T{text[11:]}Z"


def format_timestamp_text(wire: str) -> str:
    """Return "YYYY-MM-DD HH:MM:SS[.f…]" in UTC of a wire TIMESTAMP."""
    return f"{wire[:10]} {wire[11:-1]}" if wire.endswith("Z") else wire


def encode_wire_geometry(internal: bytes) -> dict[str, object]:
    """Return the wire value of the servers' own form: SRID (4 bytes, little-endian), then WKB. The log
    has the same form.

    Never raises: of bytes that are no geometry (see `is_geometry`) the WKB is empty.
    """
    return {
        "wkb": to_base64(internal[_SRID.size :]),
        "srid": int.from_bytes(internal[: _SRID.size], "little"),
    }


def is_geometry(internal: bytes) -> bool:
    """Return whether bytes may be a geometry.

    MariaDB gives existing rows an empty value where a statement adds a NOT NULL column.
    """
    return len(internal) > _SRID.size


def decode_wire_geometry(wire: Value) -> bytes:
    """Return the servers' own form of a wire geometry; both accept it as the value of a geometry column."""
    if not isinstance(wire, dict):
        raise TypeError(f"a geometry's wire value is an object, not {type(wire).__name__}")
    return _SRID.pack(wire["srid"]) + from_base64(str(wire["wkb"]))


def _write_float(column: Column) -> Convert:
    def convert(value: float | str) -> float:
        number = float(value)
        if not math.isfinite(number):
            raise ValueRefusedError(column.name, "MySQL has neither NaN nor infinity")
        return number

    return convert


def _write_decimal(column: Column) -> Convert | None:
    """Return a converter that refuses fractions that are too long, for the widest decimal type.

    The server would round them, and report that only in a note. A column with the source's type gets no
    such values.
    """
    if column.type.precision and (column.type.precision, column.type.scale) != WIDEST_DECIMAL:
        return None

    def convert(value: str) -> str:
        if len(value.partition(".")[2]) > WIDEST_DECIMAL[1]:
            raise ValueRefusedError(
                column.name, f"the value has more than {WIDEST_DECIMAL[1]} digits behind the point"
            )
        return value

    return convert


def _make_constant_chooser(convert: Convert) -> Callable[[Column], Convert | None]:
    return lambda _: convert


_READ: dict[Kind, Callable[[Column], Convert | None]] = {
    Kind.INT: _read_int,
    Kind.BIT: _read_bit,
    Kind.YEAR: _make_constant_chooser(int),
    Kind.SET_NUMBER: _make_constant_chooser(encode_wire_int),
    Kind.DECIMAL: _read_decimal,
    Kind.TIMESTAMP: _read_timestamp,
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _make_constant_chooser(to_base64)),
    Kind.GEOMETRY: _make_constant_chooser(encode_wire_geometry),
}
_WRITE: dict[Kind, Callable[[Column], Convert | None]] = {
    Kind.INT: lambda column: int if column.type.bits == 64 else None,
    Kind.BIT: lambda column: int if column.type.length > 53 else None,
    Kind.SET_NUMBER: _make_constant_chooser(int),
    Kind.DECIMAL: _write_decimal,
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _write_float),
    Kind.TIMESTAMP: _make_constant_chooser(format_timestamp_text),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _make_constant_chooser(from_base64)),
    Kind.GEOMETRY: _make_constant_chooser(decode_wire_geometry),
}
