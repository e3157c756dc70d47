"""Decoders of column types: fragments of Python source that turn the binary form into a piece of JSON.

A `Fixed` column has a constant size; its parts are read together with those of its neighbours by one
`struct.unpack_from`. A `Variable` column is a length of 1 to 4 bytes and that many bytes. Binary forms: MySQL's
`log_event_print_value` and strings/decimal.cc, my_time.cc; the wire forms are those of schemas/table/model.py.

In the fragments `data` is the body of the event and `text` the same as a latin-1 string.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from producer.binlog_format import types as t
from producer.binlog_format.charsets import decoder_of, utf8_in_latin1
from producer.binlog_format.errors import DefinitionMismatch, UndecodableRow
from producer.binlog_format.table_map import ColumnMap
from producer.decoders import scalars, times
from producer.decoders.fragments import Fixed, Format, Part, Variable, big_endian, digits, text
from producer.decoders.jsonb import json_latin1
from schemas.table.model import ColumnType, Kind


def format_of(i: int, logged: ColumnMap, column: ColumnType) -> Format:
    """Return the format of column number `i` (makes its globals unique).

    Raises DefinitionMismatch when the logged form cannot be of this definition, UndecodableRow for a charset or
    type that cannot be read.
    """
    rule = _RULES.get(column.kind)
    found = rule(i, logged, column) if rule else None
    if found is None:
        raise DefinitionMismatch(
            f"the log has binlog column type {logged.type} (metadata {logged.metadata}) where the table definition "
            f"has {column.kind.value}"
        )
    return found


# --- numbers


def _int(_i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if t.INT_BITS.get(logged.type) != column.bits:
        return None
    if column.bits == 24:
        high = "B" if column.unsigned else "b"
        return Fixed(parts=(("<", "H"), ("", high)), render=lambda n, v: [f"{v} = {n[1]} << 16 | {n[0]}"])
    code = {8: "b", 16: "h", 32: "i", 64: "q"}[column.bits]
    code = code.upper() if column.unsigned else code
    order = "" if column.bits == 8 else "<"
    if column.bits == 64:
        return Fixed(parts=((order, code),), render=_big_line)
    return Fixed(parts=((order, code),), render=lambda n, v: [f"{v} = {n[0]}"])


def _big_line(names: list[str], out: str) -> list[str]:
    n, limit = names[0], scalars.MAX_SAFE
    return [f"{out} = {n} if -{limit} <= {n} <= {limit} else '\"%d\"' % {n}"]


def _year(_i: int, logged: ColumnMap, _column: ColumnType) -> Format | None:
    if logged.type != t.YEAR:
        return None
    return Fixed(parts=(("", "B"),), render=lambda n, v: [f"{v} = {n[0]} and 1900 + {n[0]}"])


def _float(_i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    kind, code = (t.FLOAT, "f") if column.kind is Kind.FLOAT else (t.DOUBLE, "d")
    if logged.type != kind:
        return None
    return Fixed(parts=(("<", code),), render=lambda n, v: [f"{v} = repr({n[0]})"])


def _bit(_i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if logged.type != t.BIT or logged.metadata != column.length:
        return None
    parts, join = big_endian((column.length + 7) // 8)
    if column.length <= 53:
        return Fixed(parts=parts, render=lambda n, v: [f"{v} = {join(n)}"])
    return Fixed(parts=parts, render=lambda n, v: [f"{v} = big({join(n)})"], names={"big": scalars.big})


DECIMAL_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def _decimal(_i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if logged.type != t.NEWDECIMAL or logged.metadata != column.precision << 8 | column.scale:
        return None
    head, full = (column.precision - column.scale) % 9, (column.precision - column.scale) // 9
    whole_sizes = [head] * bool(head) + [9] * full
    fraction = [9] * (column.scale // 9) + [column.scale % 9] * bool(column.scale % 9)
    groups = [(d, *big_endian(DECIMAL_BYTES[d])) for d in whole_sizes + fraction]
    parts = tuple(part for _, codes, _ in groups for part in codes)

    def render(names: list[str], out: str) -> list[str]:
        return [
            f"if {names[0]} & {_top(parts[0])}:",
            f"    {out} = {number(names, False)}",
            "else:",
            f"    {out} = {number(names, True)}",
        ]

    def number(names: list[str], negative: bool) -> str:
        left = [
            _flipped(name, part, n == 0, negative)
            for n, (name, part) in enumerate(zip(names, parts, strict=True))
        ]
        whole, pieces = "", []
        for n, (count, codes, join) in enumerate(groups):
            value = join(left[: len(codes)])
            left = left[len(codes) :]
            if n < len(whole_sizes):
                whole = f"({whole} * {10**count} + {value})" if whole else value
            else:
                pieces.append(digits(value, count))
        point = "." + "".join(pieces) if pieces else ""
        return text(f"{'-' * negative}{{{whole or '0'}}}{point}")

    names = {"D1": scalars.D1, "D2": scalars.D2, "D3": scalars.D3}
    return Fixed(parts=parts, render=render, names=names)


_MASKS = {"B": 0xFF, "H": 0xFFFF, "I": 0xFFFFFFFF}


def _top(part: Part) -> int:
    return _MASKS[part[1]] // 2 + 1


def _flipped(name: str, part: Part, first: bool, negative: bool) -> str:
    """Undo DECIMAL's order-preserving form: the sign bit is inverted, and all the others of a negative number."""
    mask = (_MASKS[part[1]] if negative else 0) ^ (_top(part) if first else 0)
    return f"({name} ^ {mask})" if mask else name


# --- text and bytes


def _string(i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if logged.type not in (t.STRINGS if column.kind is not Kind.TEXT else t.BLOBS):
        return None
    size = _length_bytes(logged)
    strip = ".rstrip(' ')" if column.kind is Kind.CHAR else ""
    decode = _decoder(column)
    if decode is None:
        render = lambda a, b, v: [f"{v} = quote(text[{a}:{b}]{strip})"]  # noqa: E731 - proven with the record
        return Variable(length_bytes=size, render=render, names={"quote": scalars.quote})
    return Variable(
        length_bytes=size,
        render=lambda a, b, v: [f"{v} = quote(decode{i}(data[{a}:{b}]){strip})"],
        names={f"decode{i}": decode, "quote": scalars.quote},
    )


def _length_bytes(logged: ColumnMap) -> int:
    if logged.type in t.STRINGS:
        return 2 if logged.metadata > 255 else 1
    return logged.metadata


def _decoder(column: ColumnType) -> Callable[[bytes], str] | None:
    try:
        return decoder_of(column.charset)
    except LookupError as error:
        raise UndecodableRow(
            f"{error}: convert the column to utf8mb4, or leave the table out of `tables`"
        ) from error


def _bytes(_i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if logged.type not in (t.STRINGS if column.kind is not Kind.BLOB else t.BLOBS):
        return None
    # The log drops the zero bytes that pad BINARY(n).
    pad = f".ljust({column.length}, b'\\0')" if column.kind is Kind.BINARY else ""
    return Variable(
        length_bytes=_length_bytes(logged),
        render=lambda a, b, v: [f"{v} = '\"' + base64_text(data[{a}:{b}]{pad}) + '\"'"],
        names={"base64_text": scalars.base64_text},
    )


def _json(i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if logged.type != t.JSON:
        # MariaDB's JSON is LONGTEXT with a check.
        return _string(i, logged, msgspec.structs.replace(column, kind=Kind.TEXT))
    return Variable(
        length_bytes=logged.metadata,
        render=lambda a, b, v: [f"{v} = quote(json_latin1(data[{a}:{b}]))"],
        names={"json_latin1": json_latin1, "quote": scalars.quote},
    )


def _geometry(_i: int, logged: ColumnMap, _column: ColumnType) -> Format | None:
    if logged.type != t.GEOMETRY:
        return None
    return Variable(
        length_bytes=logged.metadata,
        render=lambda a, b, v: [
            f"""{v} = '{{"wkb":"%s","srid":%d}}' % (base64_text(data[{a} + 4:{b}]), from_bytes(data[{a}:{a} + 4], 'little'))"""
        ],
        names={"base64_text": scalars.base64_text, "from_bytes": int.from_bytes},
    )


def _labels(column: ColumnType) -> tuple[str, ...]:
    return tuple(utf8_in_latin1(member) for member in column.members)


def _enum(i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    return _enum_place(i, logged, tuple(scalars.quote(label) for label in ("", *_labels(column))))


def _enum_place(i: int, logged: ColumnMap, json_of: tuple[str, ...]) -> Format | None:
    """Return the format of an ENUM; `json_of`: its label's place → JSON. A place beyond them is an IndexError."""
    if logged.type != t.ENUM:
        return None
    code: Part = ("", "B") if logged.metadata == 1 else ("<", "H")
    return Fixed(
        parts=(code,), render=lambda n, v: [f"{v} = labels{i}[{n[0]}]"], names={f"labels{i}": json_of}
    )


def _enum_number(i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    return _enum_place(i, logged, tuple(str(place) for place in range(len(column.members) + 1)))


_SET_PARTS: dict[int, tuple[Part, ...]] = {
    1: (("", "B"),), 2: (("<", "H"),), 3: (("<", "H"), ("", "B")), 4: (("<", "I"),), 8: (("<", "Q"),),
}  # fmt: skip


def _set(i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    return _bit_mask(i, logged, scalars.SetLabels(_labels(column)))


def _set_number(i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    return _bit_mask(i, logged, scalars.SetNumbers(len(column.members)))


def _bit_mask(i: int, logged: ColumnMap, json_of: dict[int, str]) -> Format | None:
    """Return the format of a SET; `json_of`: its bit mask → JSON."""
    if logged.type != t.SET:
        return None
    high = " | {1} << 16" if logged.metadata == 3 else ""
    return Fixed(
        parts=_SET_PARTS[logged.metadata],
        render=lambda n, v: [f"{v} = labels{i}[{('{0}' + high).format(*n)}]"],
        names={f"labels{i}": json_of},
    )


_RULES: dict[Kind, Callable[[int, ColumnMap, ColumnType], Format | None]] = {
    Kind.INT: _int,
    Kind.YEAR: _year,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _float,
    Kind.BIT: _bit,
    Kind.DECIMAL: _decimal,
    Kind.DATE: times.date_format,
    Kind.TIME: times.time_format,
    Kind.DATETIME: times.datetime_format,
    Kind.TIMESTAMP: times.timestamp_format,
    Kind.CHAR: _string,
    Kind.VARCHAR: _string,
    Kind.TEXT: _string,
    Kind.BINARY: _bytes,
    Kind.VARBINARY: _bytes,
    Kind.BLOB: _bytes,
    Kind.JSON: _json,
    Kind.GEOMETRY: _geometry,
    Kind.ENUM: _enum,
    Kind.SET: _set,
    Kind.ENUM_NUMBER: _enum_number,
    Kind.SET_NUMBER: _set_number,
}
