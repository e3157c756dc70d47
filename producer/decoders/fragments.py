"""The parts of column formats: members of a struct, and fragments of source that convert them to JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

StructPart = tuple[str, str]
"""(byte order "<", ">" or "" for single bytes, struct code)."""


class FixedFormat(msgspec.Struct):
    """A column of constant size.

    `render(names, out)`: takes the variables of the parts and returns source lines that set `out`.
    """

    parts: tuple[StructPart, ...]
    render: Callable[[list[str], str], list[str]]
    names: Mapping[str, Any] = {}  # globals that the lines use


class VariableFormat(msgspec.Struct):
    """A column of variable size. `render(start, end, out)`: takes expressions of the value's bounds.

    `unpack`: from the bytes in the log to those that the column stores.
    """

    length_bytes: int
    render: Callable[[str, str, str], list[str]]
    names: Mapping[str, Any] = {}
    unpack: Callable[[bytes], bytes] | None = None


ColumnFormat = FixedFormat | VariableFormat


def render_json_string(fields: str) -> str:
    """Return the source of an f-string that is a JSON string of `fields`."""
    return f"""f'"{fields}"'"""


def build_big_endian(size: int) -> tuple[tuple[StructPart, ...], Callable[[list[str]], str]]:
    """Return the struct parts of an unsigned big-endian integer, and the function that returns the
    expression joining them.
    """
    codes = {1: "B", 2: "H", 3: "BH", 4: "I", 5: "BI", 6: "HI", 7: "BHI", 8: "Q"}[size]
    width = {"B": 8, "H": 16, "I": 32}  # a part of eight bytes is always alone

    def join(names: list[str]) -> str:
        expression = names[0]
        for name, code in zip(names[1:], codes[1:], strict=True):
            expression = f"({expression} << {width[code]} | {name})"
        return expression

    return tuple((">" if code != "B" else "", code) for code in codes), join


def render_digits(value: str, count: int) -> str:
    """Return f-string fields of `value` in `count` digits.

    Look-ups of three digits are cheaper than formatting.
    """
    if count <= 3:
        return f"{{D{count}[{value}]}}"
    high = f"({value} // 1000)"
    return render_digits(high, count - 3) + f"{{D3[{value} % 1000]}}"
