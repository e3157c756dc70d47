"""Literals of columns of text, bytes and labels in TDSQL's JSON subscription → wire values. Pure.

See producer/sources/tdsql_json/values.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from producer.binlog_format.charsets import UTF8, find_decoder
from producer.sources.tdsql_json.literals import DoubtError, LiteralForm, MisfitError, parse_hex, unquote_text
from schemas.table.model import ColumnType, Kind, TextOf, Value
from schemas.table.text_types import normalize_text
from schemas.values.converter import encode_wire_int, to_base64

_ASCII = bytes(range(128))
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SPACED_JSON = re.compile(r"(?:[^\s,:]|, |: )*")
_NUMBER = re.compile(r"[0-9]{1,20}")


def make_text_reader(type_: ColumnType, form: LiteralForm) -> Callable[[str], Value]:
    """Return the reader of CHAR, VARCHAR and the TEXT types."""
    if type_.text_of is not None:
        return _make_text_type_reader(type_.text_of, form)
    is_utf8 = type_.charset is None or type_.charset in UTF8
    is_known = is_utf8 or form.is_text_converted
    is_ascii_same = is_utf8 or _has_ascii(type_.charset)
    length, escapes, strips = type_.length, form.escapes, type_.kind is Kind.CHAR

    def read_text(literal: str) -> Value:
        text = _decode_hex_text(literal, is_utf8=is_utf8, is_ascii_same=is_ascii_same)
        if text is None:
            text = unquote_text(literal, escapes)
            if not (is_known or (is_ascii_same and text.isascii())):
                raise DoubtError(
                    f"has characters that may be those of the value or its bytes in {type_.charset}: declare "
                    "`is_text_converted`"
                )
        if strips:
            text = text.rstrip(" ")
        if len(text) > length:
            raise MisfitError(f"is longer than {length} characters")
        return text

    return read_text


def _has_ascii(charset: str | None) -> bool:
    """Return whether the bytes of ASCII are the same characters in `charset`."""
    try:
        decode = find_decoder(charset)
        return decode is None or decode(_ASCII) == _ASCII.decode()
    except (LookupError, UnicodeError):
        return False


def _decode_hex_text(literal: str, *, is_utf8: bool, is_ascii_same: bool) -> str | None:
    """Return the text of a hexadecimal literal; None: it is another literal."""
    if literal[:1] == "'":
        return None
    raw = parse_hex(literal)
    if raw is None:
        return None
    if not is_utf8 and not (is_ascii_same and raw.isascii()):
        raise DoubtError("has bytes that may be those of the column's character set or of UTF-8")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MisfitError("has bytes that are not UTF-8") from None


def _make_text_type_reader(text_of: TextOf, form: LiteralForm) -> Callable[[str], Value]:
    """Return the reader of a type with a canonical text (UUID, INET4, INET6), which must be in it."""

    def read_typed_text(literal: str) -> Value:
        if text_of is TextOf.VECTOR:
            raise DoubtError("is a vector, of which no document shows the form")
        text = unquote_text(literal, form.escapes)
        try:
            is_canonical = normalize_text(text_of, text) == text
        except ValueError:
            is_canonical = False
        if not is_canonical:
            raise MisfitError(f"is not the server's text of the type {text_of.value}")
        return text

    return read_typed_text


def make_bytes_reader(type_: ColumnType, _: LiteralForm) -> Callable[[str], Value]:
    """Return the reader of BINARY, VARBINARY and the BLOB types."""

    def read_bytes(literal: str) -> Value:
        raw = b"" if literal == "''" else parse_hex(literal)
        if raw is None:
            if literal[:1] != "'":
                raise MisfitError("is not a literal of bytes")
            raise DoubtError("may be the bytes themselves, hexadecimal digits or base64")
        if type_.kind is Kind.BINARY:
            raw = raw.ljust(type_.length, b"\0")  # servers omit the zero bytes that pad it
        if len(raw) > type_.length:
            raise MisfitError(f"is longer than {type_.length} bytes")
        return to_base64(raw)

    return read_bytes


def make_json_reader(type_: ColumnType, form: LiteralForm) -> Callable[[str], Value]:
    """Return the reader of JSON documents.

    MySQL's must be as the server prints it, because a copy of the table has them so; MariaDB's, which have
    a character set, are stored as texts.
    """

    def read_json(literal: str) -> Value:
        text = unquote_text(literal, form.escapes)
        try:
            order = _require_server_order if type_.charset is None else None
            json.loads(text, object_pairs_hook=order, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise MisfitError("is not a JSON document as the server prints it") from None
        if type_.charset is None and _SPACED_JSON.fullmatch(_JSON_STRING.sub("", text)) is None:
            raise MisfitError("is not a JSON document as the server prints it")
        return text

    return read_json


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is none of JSON's values")


def _require_server_order(pairs: list[tuple[str, Any]]) -> None:
    """Raise ValueError for an object that does not have its names by length, then by bytes, each once."""
    names = [name.encode() for name, _ in pairs]
    if names != sorted(set(names), key=lambda name: (len(name), name)):
        raise ValueError("another order of names")


def make_enum_reader(type_: ColumnType, form: LiteralForm) -> Callable[[str], Value]:
    """Return the reader of ENUM: its label in quotation marks, or its number."""
    places = {label: place for place, label in enumerate(type_.members, 1)}
    is_number = type_.kind is Kind.ENUM_NUMBER
    if not is_number:
        places.setdefault("", 0)  # the error value

    def read_enum(literal: str) -> Value:
        if _NUMBER.fullmatch(literal):
            place: int | None = int(literal)
        else:
            place = places.get(_read_labels(literal, form, is_number=is_number))
        if place is None or place > len(type_.members):
            raise MisfitError("is not a label of the column")
        return place if is_number else type_.members[place - 1] if place else ""

    return read_enum


def make_set_reader(type_: ColumnType, form: LiteralForm) -> Callable[[str], Value]:
    """Return the reader of SET: its labels, joined by commas, or its number."""
    bits = {label: 1 << place for place, label in enumerate(type_.members)}
    is_number = type_.kind is Kind.SET_NUMBER

    def read_set(literal: str) -> Value:
        if _NUMBER.fullmatch(literal):
            mask = int(literal)
        else:
            labels = _read_labels(literal, form, is_number=is_number)
            chosen = [bits.get(label, 0) for label in labels.split(",")] if labels else []
            if 0 in chosen or chosen != sorted(set(chosen)):
                raise MisfitError("is not a list of the column's labels in their order")
            mask = sum(chosen)
        if mask >> len(type_.members):
            raise MisfitError(f"is not a number of {len(type_.members)} labels")
        if is_number:
            return encode_wire_int(mask)
        return ",".join(label for place, label in enumerate(type_.members) if mask >> place & 1)

    return read_set


def _read_labels(literal: str, form: LiteralForm, *, is_number: bool) -> str:
    """Return the text of labels. `is_number`: a label is empty, so that an empty text has two meanings."""
    text = unquote_text(literal, form.escapes)
    if is_number and (not text or ",," in f",{text},"):
        raise DoubtError("is the empty label or none")
    return text
