"""The equality of wire values as `verify` compares them, and digests in place of values that are
compared later.

It is exact, except for JSON, which PostgreSQL's jsonb stores as a document, not as text: there the
documents are compared, and numbers by their exact decimal value.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from schemas.table.model import Kind, Value

FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})


def are_same_values(a: Sequence[Value], b: Sequence[Value]) -> bool:
    """Return whether two rows of one table, or two keys of it, have the same wire values.

    Python's "==" does not distinguish -0.0 from 0.0; this function does.
    """
    return a == b and list(map(is_negative_zero, a)) == list(map(is_negative_zero, b))


def is_negative_zero(value: Value) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def are_wire_equal(kind: Kind, a: Value, b: Value) -> bool:
    """Return whether the wire values `a` and `b` of `kind` are the same value."""
    if a is None or b is None:
        return a is b
    if kind in FLOATS:
        return _encode_float_bits(a) == _encode_float_bits(b)
    if a == b:
        return True
    return kind is Kind.JSON and isinstance(a, str) and isinstance(b, str) and _are_same_documents(a, b)


DIGEST = 8
"""Bytes of a `compute_wire_digest`: among a billion pairs of different values, probably none has equal
digests.
"""
_sorted = msgspec.json.Encoder(order="sorted").encode


def compute_wire_digest(kind: Kind, value: Value) -> bytes:
    """Return bytes that are equal for two values of `kind` if these are `are_wire_equal`, and very
    likely only then.
    """
    return hashlib.blake2b(_encode_canonical(kind, value), digest_size=DIGEST).digest()


def _encode_canonical(kind: Kind, value: Value) -> bytes:
    if value is None:
        return b""
    if kind in FLOATS:
        return _encode_float_bits(value).encode()
    if kind is Kind.JSON and isinstance(value, str):
        try:
            return repr(_sort_document(_parse_canonical(value))).encode()
        except (ValueError, RecursionError):
            return value.encode()
    return _sorted(value)


def _sort_document(node: Any) -> Any:
    """Return a canonical document in a form that is the same for equal documents."""
    if isinstance(node, dict):
        return ("object", sorted((name, _sort_document(each)) for name, each in node.items()))
    if isinstance(node, list):
        return [_sort_document(each) for each in node]
    return _normalize_number(node) if isinstance(node, Decimal) else node


def _normalize_number(number: Decimal) -> tuple[str, str, int]:
    """Return a number without trailing zeros: 1, 1.0 and 1e0 are the same."""
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short or not isinstance(exponent, int):
        return "number", "0", 0
    return "number", f"-{short}" if sign else short, exponent + len(text) - len(short)


def _encode_float_bits(number: Value) -> str:
    """Return a text that differs for -0.0 and 0.0, and is the same for 1 and 1.0."""
    return repr(float(number)) if isinstance(number, int | float) else repr(number)


def _are_same_documents(a: str, b: str) -> bool:
    try:
        return bool(_parse_canonical(a) == _parse_canonical(b))
    except (ValueError, RecursionError):
        return False


def _parse_canonical(text: str) -> Any:
    """Return the document with numbers as Decimal (1 = 1.0), and booleans distinct from numbers
    (Python: True == 1).
    """
    loaded = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_reject_constant)
    return _tag_booleans(loaded)


def _tag_booleans(node: Any) -> Any:
    if isinstance(node, bool):
        return ("bool", node)
    if isinstance(node, dict):
        return {key: _tag_booleans(value) for key, value in node.items()}
    return [_tag_booleans(each) for each in node] if isinstance(node, list) else node


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
