"""Collects the source lines that read a row image, and compiles them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from producer.decoders.fragments import ColumnFormat, FixedFormat, StructPart

_LENGTH_PARTS: dict[int, tuple[StructPart, ...]] = {
    1: (("", "B"),),
    2: (("<", "H"),),
    3: (("<", "H"), ("", "B")),
    4: (("<", "I"),),
}


class ImageSourceWriter:
    """Writes lines that read columns one after the other.

    `tag` distinguishes the variables of several writers.

    Parts of constant size are queued and read together when a column of variable size needs its length.
    """

    def __init__(self, tag: str) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._tag = tag
        self._base, self._offset = f"{tag}p" if tag == "_" else "p", 0
        self._parts: list[tuple[StructPart, str]] = []
        self._waiting: list[str] = []
        self._unpacks = 0

    def render_position(self) -> str:
        """Return the expression of the offset of the next unread byte."""
        return f"{self._base} + {self._offset}" if self._offset else self._base

    def skip_bytes(self, size: int) -> None:
        self._offset += size

    def add_column(self, i: int, form: ColumnFormat) -> str:
        """Add the lines that read column `i`; returns the variable that will hold its JSON."""
        out = f"{self._tag}v{i}"
        self.names.update(form.names)
        if isinstance(form, FixedFormat):
            self._waiting += form.render(self._queue_parts(i, form.parts), out)
            return out
        names = self._queue_parts(i, _LENGTH_PARTS[form.length_bytes])
        self.flush_parts()
        length = f"({names[1]} << 16 | {names[0]})" if len(names) > 1 else names[0]
        start, end = f"{self._tag}a{i}", f"{self._tag}b{i}"
        self.lines += [f"{start} = {self.render_position()}", f"{end} = {start} + {length}"]
        self.lines += form.render(start, end, out)
        self._base, self._offset = end, 0
        return out

    def _queue_parts(self, i: int, parts: tuple[StructPart, ...]) -> list[str]:
        """Queue struct parts of column `i` and return the variables that will hold them."""
        names = [f"{self._tag}x{i}_{n}" for n in range(len(parts))]
        self._parts += zip(parts, names, strict=True)
        return names

    def flush_parts(self) -> None:
        """Write lines that read the queued parts, with one struct per byte order, and the queued lines
        that use them.
        """
        if len(self._parts) == 1 and self._parts[0][0] == ("", "B"):
            self.lines.append(f"{self._parts[0][1]} = data[{self.render_position()}]")
        else:
            little = [name for part, name in self._parts if part[0] == "<"]
            big = [name for part, name in self._parts if part[0] == ">"]
            single = [name for part, name in self._parts if not part[0]]
            (big if big else little).extend(single)
            self._add_unpack("<", little)
            self._add_unpack(">", big)
        self._offset += sum(_compute_part_size(part) for part, _ in self._parts)
        self.lines += self._waiting
        self._parts, self._waiting = [], []

    def _add_unpack(self, order: str, chosen: Sequence[str]) -> None:
        codes = "".join(
            part[1] if name in chosen else f"{_compute_part_size(part)}x" for part, name in self._parts
        )
        targets = "".join(f"{name}, " for part, name in self._parts if name in chosen and part[1][-1] != "x")
        if targets:
            unpack = f"{self._tag}unpack{self._unpacks}"
            self._unpacks += 1
            self.names[unpack] = struct.Struct(order + codes).unpack_from
            self.lines.append(f"{targets}= {unpack}(data, {self.render_position()})")


def _compute_part_size(part: StructPart) -> int:
    return struct.calcsize("=" + part[1])


def compile_function(arguments: str, lines: Sequence[str], names: Mapping[str, Any]) -> Any:
    """Return the function of `arguments` with the body `lines`; `names` are its globals."""
    source = f"def generated({arguments}):\n    " + "\n    ".join(lines) + "\n"
    scope: dict[str, Any] = dict(names)
    # The lines have identifiers made by the generator, and names of columns as literals quoted by repr:
    # no text of a server is ever code.
    exec(compile(source, "<row decoder>", "exec"), scope)  # noqa: S102
    return scope["generated"]
