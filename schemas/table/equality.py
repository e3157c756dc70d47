"""Equality of two wire values, as `verify` compares them.

Exact, but for JSON, which PostgreSQL's jsonb stores as a document, not as text: there the documents are compared,
numbers by their exact decimal value.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from schemas.table.model import Kind, Value


def wire_equal(kind: Kind, a: Value, b: Value) -> bool:
    """Return whether the wire values `a` and `b` of `kind` are the same value."""
    if a is None or b is None:
        return a is b
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return _bits(a) == _bits(b)
    if a == b:
        return True
    return kind is Kind.JSON and isinstance(a, str) and isinstance(b, str) and _same_document(a, b)


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
