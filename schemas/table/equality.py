"""Equality of two wire values, as `verify` compares them, and digests that stand for values that are compared later.

Exact, but for JSON, which PostgreSQL's jsonb stores as a document, not as text: there the documents are compared,
numbers by their exact decimal value.
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


def same_values(a: Sequence[Value], b: Sequence[Value]) -> bool:
    """Return whether two rows of one table, or two keys of it, have the same wire values. To "==" alone, -0.0 is 0.0."""
    return a == b and list(map(is_negative_zero, a)) == list(map(is_negative_zero, b))


def is_negative_zero(value: Value) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def wire_equal(kind: Kind, a: Value, b: Value) -> bool:
    """Return whether the wire values `a` and `b` of `kind` are the same value."""
    if a is None or b is None:
        return a is b
    if kind in FLOATS:
        return _bits(a) == _bits(b)
    if a == b:
        return True
    return kind is Kind.JSON and isinstance(a, str) and isinstance(b, str) and _same_document(a, b)


DIGEST = 8
"""Bytes of a `wire_digest`: of a billion pairs of values that differ none is likely to look equal."""
_sorted = msgspec.json.Encoder(order="sorted").encode


def wire_digest(kind: Kind, value: Value) -> bytes:
    """Return bytes that two values of `kind` share when they are `wire_equal`, and by all that is likely only then."""
    return hashlib.blake2b(_canonical_bytes(kind, value), digest_size=DIGEST).digest()


def _canonical_bytes(kind: Kind, value: Value) -> bytes:
    if value is None:
        return b""
    if kind in FLOATS:
        return _bits(value).encode()
    if kind is Kind.JSON and isinstance(value, str):
        try:
            return repr(_ordered(_canonical(value))).encode()
        except (ValueError, RecursionError):
            return value.encode()
    return _sorted(value)


def _ordered(node: Any) -> Any:
    """Return a canonical document with one form for each document."""
    if isinstance(node, dict):
        return ("object", sorted((name, _ordered(each)) for name, each in node.items()))
    if isinstance(node, list):
        return [_ordered(each) for each in node]
    return _number(node) if isinstance(node, Decimal) else node


def _number(number: Decimal) -> tuple[str, str, int]:
    """Return a number without zeros at its end: 1, 1.0 and 1e0 are one."""
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short or not isinstance(exponent, int):
        return "number", "0", 0
    return "number", f"-{short}" if sign else short, exponent + len(text) - len(short)


def _bits(number: Value) -> str:
    """Tells -0.0 from 0.0; 1 and 1.0 are the same."""
    return repr(float(number)) if isinstance(number, int | float) else repr(number)


def _same_document(a: str, b: str) -> bool:
    try:
        return bool(_canonical(a) == _canonical(b))
    except (ValueError, RecursionError):
        return False


def _canonical(text: str) -> Any:
    """The document with numbers as Decimal (1 = 1.0) and booleans told apart from numbers (Python: True == 1)."""
    loaded = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_no_constant)
    return _tagged(loaded)


def _tagged(node: Any) -> Any:
    if isinstance(node, bool):
        return ("bool", node)
    if isinstance(node, dict):
        return {key: _tagged(value) for key, value in node.items()}
    return [_tagged(each) for each in node] if isinstance(node, list) else node


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
