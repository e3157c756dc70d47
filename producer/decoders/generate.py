"""Compiles row images to functions: Python source made for one table and one pattern of NULLs.

The library's decode asks for every column of every row what type it has and whether it is NULL. Here those
questions are answered once: a pattern of NULLs fixes which columns follow each other, neighbours of constant size
are read by a single `struct.unpack_from`, and the constant parts of the JSON are literals of one f-string.
A function takes (data, text, p): body, body as latin-1, offset of the row image (at its NULL bitmap).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from producer.decoders.charsets import utf8_in_latin1
from producer.decoders.columns import Fixed, Format, Part
from producer.decoders.scalars import quote

ImageFunction = Callable[[bytes, str, int], Any]
"""(data, text, p) → (image, end, key); without key: (image, end); without names: end. Image and key are JSON."""

_LENGTH_PARTS: dict[int, tuple[Part, ...]] = {
    1: (("", "B"),), 2: (("<", "H"),), 3: (("<", "H"), ("", "B")), 4: (("<", "I"),),
}  # fmt: skip
_PATTERNS = 64


class Layout(msgspec.Struct, frozen=True):
    """Columns of a table: names (empty: rows are only skipped), formats, ordinals of the key (empty: without keys)."""

    formats: tuple[Format, ...]
    names: tuple[str, ...] = ()
    key: tuple[int, ...] = ()

    @property
    def bitmap_bytes(self) -> int:
        return (len(self.formats) + 7) // 8


class Images(dict[int, ImageFunction]):
    """NULL bitmap → function, compiled when first met; after `limit` patterns one function that tests each column."""

    def __init__(self, layout: Layout, limit: int = _PATTERNS) -> None:
        super().__init__()
        self._layout = layout
        self._limit = limit
        self._general: ImageFunction | None = None

    def __missing__(self, nulls: int) -> ImageFunction:
        if len(self) < self._limit:
            function = self[nulls] = compile_image(self._layout, nulls)
            return function
        if self._general is None:
            self._general = compile_image(self._layout, None)
        return self._general


def compile_image(layout: Layout, nulls: int | None) -> ImageFunction:
    """Return the function for rows whose NULL bitmap is `nulls`; None: for any."""
    writer = _Writer()
    texts = _specialised(writer, layout, nulls) if nulls is not None else _general(writer, layout)
    result = [_object(layout.names, texts, range(len(texts)))] if layout.names else []
    result.append(writer.position())
    if layout.key:
        result.append(_object(layout.names, texts, layout.key))
    writer.lines.append(f"return {', '.join(result)}")
    return writer.function()


def _object(names: Sequence[str], texts: Sequence[str], columns: Sequence[int]) -> str:
    """Return the source of an f-string that makes a JSON object of `columns`."""
    members = ",".join(
        utf8_in_latin1(quote(names[i])).replace("{", "{{").replace("}", "}}") + ":" + texts[i]
        for i in columns
    )
    return "f" + repr("{{" + members + "}}")


def _specialised(writer: _Writer, layout: Layout, nulls: int) -> list[str]:
    writer.skip(layout.bitmap_bytes)
    texts = []
    for i, form in enumerate(layout.formats):
        is_null = nulls >> i & 1
        texts.append("null" if is_null else f"{{v{i}}}")
        if not is_null:
            writer.column(i, form)
    writer.flush()
    return texts


def _general(writer: _Writer, layout: Layout) -> list[str]:
    size = layout.bitmap_bytes
    writer.names["from_bytes"] = int.from_bytes
    writer.lines += [f"nulls = from_bytes(data[p:p + {size}], 'little')", f"p += {size}"]
    for i, form in enumerate(layout.formats):
        inner = _Writer()
        inner.column(i, form)
        inner.flush()
        writer.names.update(
            {f"{name}_{i}" if name.startswith("unpack") else name: v for name, v in inner.names.items()}
        )
        lines = [
            line.replace("unpack0(", f"unpack0_{i}(").replace("unpack1(", f"unpack1_{i}(")
            for line in inner.lines
        ]
        writer.lines += [f"if nulls >> {i} & 1:", f"    v{i} = 'null'", "else:"]
        writer.lines += [f"    {line}" for line in [*lines, f"p = {inner.position()}"]]
    return [f"{{v{i}}}" for i in range(len(layout.formats))]


class _Writer:
    """Collects source lines; `base` + `offset` is where the next unread byte is."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._base, self._offset = "p", 0
        self._parts: list[tuple[Part, str]] = []
        self._waiting: list[str] = []
        self._unpacks = 0

    def position(self) -> str:
        return f"{self._base} + {self._offset}" if self._offset else self._base

    def skip(self, size: int) -> None:
        self._offset += size

    def column(self, i: int, form: Format) -> None:
        """Add the lines that set `v{i}`."""
        self.names.update(form.names)
        if isinstance(form, Fixed):
            self._waiting += form.render(self._add(i, form.parts), f"v{i}")
            return
        names = self._add(i, _LENGTH_PARTS[form.length_bytes])
        self.flush()
        length = f"({names[1]} << 16 | {names[0]})" if len(names) > 1 else names[0]
        self.lines += [f"a{i} = {self.position()}", f"b{i} = a{i} + {length}"]
        self.lines += form.render(f"a{i}", f"b{i}", f"v{i}")
        self._base, self._offset = f"b{i}", 0

    def _add(self, i: int, parts: tuple[Part, ...]) -> list[str]:
        """Queue struct parts of column `i` and return the variables that will hold them."""
        orders = {part[0] for part, _ in self._parts} | {part[0] for part in parts}
        if {"<", ">"} <= orders:
            self.flush()
        names = [f"x{i}_{n}" for n in range(len(parts))]
        self._parts += zip(parts, names, strict=True)
        return names

    def flush(self) -> None:
        """Read the queued parts by one struct, then let the queued lines work on them."""
        if self._parts:
            order = next((part[0] for part, _ in self._parts if part[0]), "<")
            reader = struct.Struct(order + "".join(part[1] for part, _ in self._parts))
            targets = "".join(f"{name}, " for part, name in self._parts if not part[1].endswith("x"))
            if targets:
                name = f"unpack{self._unpacks}"
                self._unpacks += 1
                self.names[name] = reader.unpack_from
                self.lines.append(f"{targets}= {name}(data, {self.position()})")
            self._offset += reader.size
        self.lines += self._waiting
        self._parts, self._waiting = [], []

    def function(self) -> ImageFunction:
        body = "\n    ".join(self.lines)
        source = f"def image(data, text, p):\n    {body}\n"
        scope: dict[str, Any] = dict(self.names)
        # The source holds identifiers made here and names of columns as literals quoted by repr: nothing of a server's
        # text is code.
        exec(compile(source, "<row image>", "exec"), scope)  # noqa: S102
        function: ImageFunction = scope["image"]
        return function
