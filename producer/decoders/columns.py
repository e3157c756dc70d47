"""Decoders of column types: fragments of Python source that convert the binary form to JSON.

A `FixedFormat` column has a constant size; its parts are read together with those of its neighbours by
one `struct.unpack_from`. A `VariableFormat` column is a length of 1 to 4 bytes and that many bytes.
Binary forms: MySQL's `log_event_print_value` and strings/decimal.cc, my_time.cc; the wire forms are
those of schemas/table/model.py.

In the fragments `data` is the body of the event and `text` the same as a latin-1 string.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from producer.binlog_format import types as t
from producer.binlog_format.charsets import encode_utf8_in_latin1, find_code_check, find_decoder
from producer.binlog_format.column_sizes import DECIMAL_BYTES, count_length_bytes
from producer.binlog_format.errors import DefinitionMismatch, UndecodableRow
from producer.binlog_format.row_events import ColumnMap
from producer.decoders import scalars, times
from producer.decoders.compressed import unpack_value
from producer.decoders.fragments import (
    ColumnFormat,
    FixedFormat,
    StructPart,
    VariableFormat,
    build_big_endian,
    render_digits,
    render_json_string,
)
from producer.decoders.jsonb import render_json_latin1
from schemas.table.model import ColumnType, Kind, TextOf
from schemas.table.text_types import FLOAT_BYTES, SIZES, TEXT_FORMATTERS


def build_column_format(i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat:
    """Return the format of column number `i`, which makes its globals unique.

    Raises DefinitionMismatch when the logged form cannot belong to this definition, and UndecodableRow
    for a charset or type that cannot be read.
    """
    rule = _RULES.get(column.kind)
    found = rule(i, logged, column) if rule else None
    if found is None:
        raise DefinitionMismatch(
            f"the log has binlog column type {logged.type} (metadata {logged.metadata}) where the table "
            f"definition has {column.kind.value}"
        )
    return found


def require_single_codes(i: int, form: ColumnFormat, column: ColumnType) -> ColumnFormat:
    """Return the format of column number `i` for a key or unique index: codes of characters that have another
    code cannot be decoded, since values that differ only there would become one.
    """
    check = find_code_check(column.charset)
    if check is None or not isinstance(form, VariableFormat):
        return form
    return VariableFormat(
        length_bytes=form.length_bytes,
        render=lambda a, b, v: [f"check{i}(data[{a}:{b}])", *form.render(a, b, v)],
        names={**form.names, f"check{i}": check},
    )


# --- numbers


def _build_int_format(_i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    if t.INT_BITS.get(logged.type) != column.bits:
        return None
    if column.bits == 24:
        high = "B" if column.unsigned else "b"
        return FixedFormat(
            parts=(("<", "H"), ("", high)), render=lambda n, v: [f"{v} = {n[1]} << 16 | {n[0]}"]
        )
    code = {8: "b", 16: "h", 32: "i", 64: "q"}[column.bits]
    code = code.upper() if column.unsigned else code
    order = "" if column.bits == 8 else "<"
    if column.bits == 64:
        return FixedFormat(parts=((order, code),), render=_render_big_int)
    return FixedFormat(parts=((order, code),), render=lambda n, v: [f"{v} = {n[0]}"])


def _render_big_int(names: list[str], out: str) -> list[str]:
    n, limit = names[0], scalars.MAX_SAFE
    return [f"{out} = {n} if -{limit} <= {n} <= {limit} else '\"%d\"' % {n}"]


def _build_year_format(_i: int, logged: ColumnMap, _column: ColumnType) -> ColumnFormat | None:
    if logged.type != t.YEAR:
        return None
    return FixedFormat(parts=(("", "B"),), render=lambda n, v: [f"{v} = {n[0]} and 1900 + {n[0]}"])


def _build_float_format(_i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    kind, code = (t.FLOAT, "f") if column.kind is Kind.FLOAT else (t.DOUBLE, "d")
    if logged.type != kind:
        return None
    return FixedFormat(parts=(("<", code),), render=lambda n, v: [f"{v} = repr({n[0]})"])


def _build_bit_format(_i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    if logged.type != t.BIT or logged.metadata != column.length:
        return None
    parts, join = build_big_endian((column.length + 7) // 8)
    if column.length <= 53:
        return FixedFormat(parts=parts, render=lambda n, v: [f"{v} = {join(n)}"])
    return FixedFormat(
        parts=parts, render=lambda n, v: [f"{v} = big({join(n)})"], names={"big": scalars.render_big_int}
    )


def _build_decimal_format(_i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    if logged.type != t.NEWDECIMAL or logged.metadata != column.precision << 8 | column.scale:
        return None
    head, full = (column.precision - column.scale) % 9, (column.precision - column.scale) // 9
    whole_sizes = [head] * bool(head) + [9] * full
    fraction = [9] * (column.scale // 9) + [column.scale % 9] * bool(column.scale % 9)
    groups = [(d, *build_big_endian(DECIMAL_BYTES[d])) for d in whole_sizes + fraction]
    parts = tuple(part for _, codes, _ in groups for part in codes)

    def render(names: list[str], out: str) -> list[str]:
        return [
            f"if {names[0]} & {_get_top_bit(parts[0])}:",
            f"    {out} = {number(names, False)}",
            "else:",
            f"    {out} = {number(names, True)}",
        ]

    def number(names: list[str], negative: bool) -> str:
        left = [
            _render_flipped(name, part, n == 0, negative)
            for n, (name, part) in enumerate(zip(names, parts, strict=True))
        ]
        whole, pieces = "", []
        for n, (count, codes, join) in enumerate(groups):
            value = join(left[: len(codes)])
            left = left[len(codes) :]
            if n < len(whole_sizes):
                whole = f"({whole} * {10**count} + {value})" if whole else value
            else:
                pieces.append(render_digits(value, count))
        point = "." + "".join(pieces) if pieces else ""
        return render_json_string(f"{'-' * negative}{{{whole or '0'}}}{point}")

    names = {"D1": scalars.D1, "D2": scalars.D2, "D3": scalars.D3}
    return FixedFormat(parts=parts, render=render, names=names)


_MASKS = {"B": 0xFF, "H": 0xFFFF, "I": 0xFFFFFFFF}


def _get_top_bit(part: StructPart) -> int:
    return _MASKS[part[1]] // 2 + 1


def _render_flipped(name: str, part: StructPart, first: bool, negative: bool) -> str:
    """Undo DECIMAL's order-preserving form: the sign bit is inverted, and all others of a negative
    number.
    """
    mask = (_MASKS[part[1]] if negative else 0) ^ (_get_top_bit(part) if first else 0)
    return f"({name} ^ {mask})" if mask else name


# --- text and bytes


def _build_text_type_format(logged: ColumnMap, text_of: TextOf) -> ColumnFormat | None:
    """Return the format of MariaDB's UUID, INET4 or INET6, which the log describes as BINARY(n)."""
    size, show = SIZES[text_of], TEXT_FORMATTERS[text_of]
    if logged.type != t.STRING or logged.metadata != size:
        return None
    return VariableFormat(
        length_bytes=1,
        # The log omits the zero bytes at the end.
        render=lambda a, b, v: [f"{v} = '\"' + {text_of.value}(data[{a}:{b}].ljust({size}, b'\\0')) + '\"'"],
        names={text_of.value: show},
    )


def _build_vector_format(logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    """Return the format of VECTOR, which MariaDB's log describes as VARBINARY(n)."""
    as_bytes = logged.type == t.VARCHAR and logged.metadata == column.precision * FLOAT_BYTES
    if logged.type != t.VECTOR and not as_bytes:
        return None
    return VariableFormat(
        length_bytes=count_length_bytes(logged),
        render=lambda a, b, v: [f"{v} = '\"' + vector(data[{a}:{b}]) + '\"'"],
        names={"vector": TEXT_FORMATTERS[TextOf.VECTOR]},
    )


def _build_string_format(i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    if column.text_of is TextOf.VECTOR:
        return _build_vector_format(logged, column)
    if column.text_of is not None:
        return _build_text_type_format(logged, column.text_of)
    if logged.type not in (t.STRINGS if column.kind is not Kind.TEXT else t.BLOBS):
        return None
    size = count_length_bytes(logged)
    strip = ".rstrip(' ')" if column.kind is Kind.CHAR else ""
    decode = _find_column_decoder(column)
    unpack = unpack_value if logged.type in t.PACKED else None
    if unpack is not None:
        decode = _make_unpacking_decoder(decode)
    if decode is None:
        render = lambda a, b, v: [f"{v} = quote(text[{a}:{b}]{strip})"]  # noqa: E731 - proven with the record
        return VariableFormat(length_bytes=size, render=render, names={"quote": scalars.quote_json_text})
    return VariableFormat(
        length_bytes=size,
        render=lambda a, b, v: [f"{v} = quote(decode{i}(data[{a}:{b}]){strip})"],
        names={f"decode{i}": decode, "quote": scalars.quote_json_text},
        unpack=unpack,
    )


def _make_unpacking_decoder(decode: Callable[[bytes], str] | None) -> Callable[[bytes], str]:
    if decode is None:
        return lambda data: unpack_value(data).decode("latin-1")
    return lambda data: decode(unpack_value(data))


def _find_column_decoder(column: ColumnType) -> Callable[[bytes], str] | None:
    try:
        return find_decoder(column.charset)
    except LookupError as error:
        raise UndecodableRow(str(error), "convert the column to utf8mb4 (or exclude the table)") from error


def _build_bytes_format(_i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    if logged.type not in (t.STRINGS if column.kind is not Kind.BLOB else t.BLOBS):
        return None
    value = "unpack_value(data[{}:{}])" if logged.type in t.PACKED else "data[{}:{}]"
    # The log omits the zero bytes that pad BINARY(n).
    pad = f".ljust({column.length}, b'\\0')" if column.kind is Kind.BINARY else ""
    return VariableFormat(
        length_bytes=count_length_bytes(logged),
        render=lambda a, b, v: [f"{v} = '\"' + base64_text({value.format(a, b)}{pad}) + '\"'"],
        names={"base64_text": scalars.encode_base64_text, "unpack_value": unpack_value},
    )


def _build_json_format(i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    if logged.type != t.JSON:
        # MariaDB's JSON is LONGTEXT with a check.
        return _build_string_format(i, logged, msgspec.structs.replace(column, kind=Kind.TEXT))
    return VariableFormat(
        length_bytes=logged.metadata,
        render=lambda a, b, v: [f"{v} = quote(json_latin1(data[{a}:{b}]))"],
        names={"json_latin1": render_json_latin1, "quote": scalars.quote_json_text},
    )


def _build_geometry_format(_i: int, logged: ColumnMap, _column: ColumnType) -> ColumnFormat | None:
    if logged.type != t.GEOMETRY:
        return None
    return VariableFormat(
        length_bytes=logged.metadata,
        render=lambda a, b, v: [f"{v} = geometry(data[{a}:{b}])"],
        names={"geometry": scalars.encode_geometry},
    )


def _get_labels(column: ColumnType) -> tuple[str, ...]:
    return tuple(encode_utf8_in_latin1(member) for member in column.members)


def _build_enum_format(i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    return _build_enum_index_format(
        i, logged, tuple(scalars.quote_json_text(label) for label in ("", *_get_labels(column)))
    )


def _build_enum_index_format(i: int, logged: ColumnMap, json_of: tuple[str, ...]) -> ColumnFormat | None:
    """Return the format of an ENUM. `json_of`: ordinal of the label → JSON.

    A higher ordinal is an IndexError.
    """
    if logged.type != t.ENUM:
        return None
    code: StructPart = ("", "B") if logged.metadata == 1 else ("<", "H")
    return FixedFormat(
        parts=(code,), render=lambda n, v: [f"{v} = labels{i}[{n[0]}]"], names={f"labels{i}": json_of}
    )


def _build_enum_number_format(i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    return _build_enum_index_format(i, logged, tuple(str(place) for place in range(len(column.members) + 1)))


_SET_PARTS: dict[int, tuple[StructPart, ...]] = {
    1: (("", "B"),), 2: (("<", "H"),), 3: (("<", "H"), ("", "B")), 4: (("<", "I"),), 8: (("<", "Q"),),
}  # fmt: skip


def _build_set_format(i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    return _build_bit_mask_format(i, logged, scalars.SetLabels(_get_labels(column)))


def _decode_set_number(i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    return _build_bit_mask_format(i, logged, scalars.SetNumbers(len(column.members)))


def _build_bit_mask_format(i: int, logged: ColumnMap, json_of: dict[int, str]) -> ColumnFormat | None:
    """Return the format of a SET. `json_of`: its bit mask → JSON."""
    if logged.type != t.SET:
        return None
    high = " | {1} << 16" if logged.metadata == 3 else ""
    return FixedFormat(
        parts=_SET_PARTS[logged.metadata],
        render=lambda n, v: [f"{v} = labels{i}[{('{0}' + high).format(*n)}]"],
        names={f"labels{i}": json_of},
    )


_RULES: dict[Kind, Callable[[int, ColumnMap, ColumnType], ColumnFormat | None]] = {
    Kind.INT: _build_int_format,
    Kind.YEAR: _build_year_format,
    Kind.FLOAT: _build_float_format,
    Kind.DOUBLE: _build_float_format,
    Kind.BIT: _build_bit_format,
    Kind.DECIMAL: _build_decimal_format,
    Kind.DATE: times.build_date_format,
    Kind.TIME: times.build_time_format,
    Kind.DATETIME: times.build_datetime_format,
    Kind.TIMESTAMP: times.build_timestamp_format,
    Kind.CHAR: _build_string_format,
    Kind.VARCHAR: _build_string_format,
    Kind.TEXT: _build_string_format,
    Kind.BINARY: _build_bytes_format,
    Kind.VARBINARY: _build_bytes_format,
    Kind.BLOB: _build_bytes_format,
    Kind.JSON: _build_json_format,
    Kind.GEOMETRY: _build_geometry_format,
    Kind.ENUM: _build_enum_format,
    Kind.SET: _build_set_format,
    Kind.ENUM_NUMBER: _build_enum_number_format,
    Kind.SET_NUMBER: _decode_set_number,
}
