"""Values of Canal's flat messages, decoded by the types that each message contains (`mysqlType`). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any

from schemas.values.converter import MAX_EXACT, to_base64

_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_COMMENT = re.compile(r"/\* rowlock (?P<said>\[.*\]) \*/$", re.DOTALL)
_WORD = re.compile(r"[a-z]+")
_TEXT = frozenset(
    [
        "char",
        "varchar",
        "tinytext",
        "text",
        "mediumtext",
        "longtext",
        "decimal",
        "date",
        "time",
        "datetime",
        "json",
    ]
)
_BYTES = frozenset(["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"])
_INTEGERS = frozenset(["tinyint", "smallint", "mediumint", "int", "bigint", "bit"])


def decode_canal_values(message: dict[str, Any], names: Collection[str]) -> dict[str, object]:
    """Return column → wire value of a message's row for the `names` columns it has.

    Raises KeyError, TypeError, ValueError.
    """
    (row,) = message["data"]
    types = message["mysqlType"]
    return {
        name: None if text is None else _choose_text_reader(types[name])(text)
        for name, text in row.items()
        if name in names
    }


def parse_deleted_origin(sql: str) -> tuple[str, str, str] | None:
    """Return the (source, db, table) of a DELETE of all rows of a source, from the comment after it;
    None: there is none.
    """
    found = _COMMENT.search(sql)
    if found is None:
        return None
    source, db, table = json.loads(found["said"])
    return source, db, table


@lru_cache(maxsize=1000)
def _choose_text_reader(type_: str) -> Callable[[str], object]:
    """Return the reader for values of a type in MySQL's notation."""
    found = _WORD.match(type_)
    word = found[0] if found else ""
    if word in _TEXT:
        return str
    if word in _INTEGERS:
        return _read_integer
    if word in _BYTES:
        return lambda text: to_base64(text.encode("latin-1"))
    if word in ("float", "double"):
        return lambda text: text if text in ("NaN", "Infinity", "-Infinity") else float(text)
    if word == "timestamp":
        return lambda text: text if text.startswith("0000-00-00") else text.replace(" ", "T") + "Z"
    if word == "year":
        return int
    if word in ("enum", "set"):
        labels = [_unquote_label(each) for each in _LABEL.findall(type_)]
        if "" in labels:  # labels would be ambiguous as text: the source's values are numbers, too
            return _read_integer
        return _make_enum_reader(labels) if word == "enum" else _make_set_reader(labels)
    if word == "geometry":
        return _read_geometry
    raise ValueError(f"type {type_!r}")


def _read_integer(text: str) -> object:
    number = int(text)
    return number if abs(number) <= MAX_EXACT else text


def _unquote_label(label: str) -> str:
    """Return the text of a label: quotes and backslashes are doubled in the type."""
    return re.sub(r"''|\\(.)", lambda found: found[1] or "'", label, flags=re.DOTALL)


def _make_enum_reader(labels: list[str]) -> Callable[[str], object]:
    """Return the reader of an ENUM. 0 is not a label, but the error value."""
    return lambda text: labels[int(text) - 1] if int(text) else ""


def _make_set_reader(labels: list[str]) -> Callable[[str], object]:
    return lambda text: ",".join(label for i, label in enumerate(labels) if int(text) >> i & 1)


def _read_geometry(text: str) -> object:
    raw = text.encode("latin-1")
    return {"srid": int.from_bytes(raw[:4], "little"), "wkb": to_base64(raw[4:])}
