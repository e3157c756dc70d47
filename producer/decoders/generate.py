"""Compiles row events to functions: Python source generated for one table and one pattern of NULLs.

The decoder of mysql-replication checks the type of every column of every row and whether it is NULL. Here
both are decided once: a pattern of NULLs fixes which columns follow each other, neighbours of constant size
are read by a single `struct.unpack_from`, and the constant parts of the JSON are literals of one f-string.

Two kinds of function are generated: *images* (one row image → its JSON), kept in an `ImageFunctions` by
pattern, and *loops* (a whole event → Kafka records) with the image code of the first pattern inlined;
rows of other patterns use the images.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from producer.binlog_format.charsets import encode_utf8_in_latin1
from producer.decoders.fragments import ColumnFormat, FixedFormat, StructPart
from producer.decoders.scalars import quote_json_text

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


ImageFunction = Callable[[bytes, str, int], Any]
"""(data, text, p) → (image, end, key); without key: (image, end); without names: end. Image and key are
JSON.

`data` is the body, `text` the same as latin-1, `p` the offset of the image (at its NULL bitmap).
"""
LoopFunction = Callable[..., int]
"""A function that compile_loop returns."""

_PATTERNS = 64


class RowLayout(msgspec.Struct, frozen=True):
    """The columns of a table: names (empty: rows are only skipped), formats, ordinals of the key (empty:
    without keys).

    `image`: the ordinals of the columns that an image contains; None: all of them.
    """

    formats: tuple[ColumnFormat, ...]
    names: tuple[str, ...] = ()
    key: tuple[int, ...] = ()
    image: tuple[int, ...] | None = None

    @property
    def shown(self) -> Sequence[int]:
        return range(len(self.formats)) if self.image is None else self.image

    @property
    def bitmap_bytes(self) -> int:
        return (len(self.formats) + 7) // 8


class ImageFunctions(dict[int, ImageFunction]):
    """NULL bitmap → function, compiled on first use.

    After `limit` patterns a general function tests each column.
    """

    def __init__(self, layout: RowLayout, limit: int = _PATTERNS) -> None:
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


def compile_image(layout: RowLayout, nulls: int | None) -> ImageFunction:
    """Return the function for rows with the NULL bitmap `nulls`; None: for any."""
    writer = ImageSourceWriter("")
    texts = (
        _write_specialised_columns(writer, layout, nulls)
        if nulls is not None
        else _write_general_columns(writer, layout)
    )
    result = [_render_fstring(_render_object(layout.names, texts, layout.shown))] if layout.names else []
    result.append(writer.render_position())
    if layout.key:
        result.append(_render_fstring(_render_object(layout.names, texts, layout.key)))
    lines = [*writer.lines, f"return {', '.join(result)}"]
    function: ImageFunction = compile_function("data, text, p", lines, writer.names)
    return function


def compile_loop(layout: RowLayout, nulls: int, *, update: bool) -> LoopFunction:
    """Return the function for a whole event.

    Rows with images that have the NULL bitmap `nulls` are decoded in place.

    Arguments: data, text, p (offset of the first row), end, images without and with key, append (takes a
    Kafka record), head (up to the first image), and of the envelope (producer/decoders/envelope.py)
    where, position, prev, middle, tail, with the numbers row and order of the first row. The function
    returns where the last row ends. It raises UnicodeDecodeError for a record that is not UTF-8: text in
    a UTF-8 charset is copied into the images as it is in the log.
    """
    lines = ["while p < end:", "    here = f'{position}{row}]'"]
    body, names = (_generate_update_rows if update else _generate_single_rows)(layout, nulls)
    lines += [f"    {line}" for line in body]
    lines += ["    prev = here", "    row += 1", "    order += 1", "return p"]
    arguments = (
        "data, text, p, end, plain, keyed, append, head, where, position, prev, middle, tail, row, order"
    )
    function: LoopFunction = compile_function(arguments, lines, {**names, "from_bytes": int.from_bytes})
    return function


def _generate_single_rows(layout: RowLayout, nulls: int) -> tuple[list[str], dict[str, Any]]:
    writer = ImageSourceWriter("")
    texts = _write_specialised_columns(writer, layout, nulls)
    image, key = (
        _render_object(layout.names, texts, layout.shown),
        _render_object(layout.names, texts, layout.key),
    )
    other = [
        f"image, p, key = keyed[{_render_bitmap(layout)}](data, text, p)",
        *_render_append("{key}", "{head}{image}"),
    ]
    hot = [*writer.lines, *_render_append(key, "{head}" + image), f"p = {writer.render_position()}"]
    return [
        f"if {_is_hot(layout, nulls, 'p')}:",
        *_indent_lines(hot),
        "else:",
        *_indent_lines(other),
    ], writer.names


def _generate_update_rows(layout: RowLayout, nulls: int) -> tuple[list[str], dict[str, Any]]:
    before, after = ImageSourceWriter(""), ImageSourceWriter("_")
    old, new = (
        _write_specialised_columns(before, layout, nulls),
        _write_specialised_columns(after, layout, nulls),
    )
    key = _render_object(layout.names, new, layout.key)
    images = (
        _render_object(layout.names, old, layout.shown)
        + ',"after":'
        + _render_object(layout.names, new, layout.shown)
    )
    other = [
        f"image, p = plain[{_render_bitmap(layout)}](data, text, p)",
        f"after, p, key = keyed[{_render_bitmap(layout)}](data, text, p)",
        *_render_append("{key}", '{head}{image},"after":{after}'),
    ]
    hot = [*after.lines, *_render_append(key, "{head}" + images), f"p = {after.render_position()}"]
    hot = [
        *before.lines,
        f"_p = {before.render_position()}",
        f"if {_is_hot(layout, nulls, '_p')}:",
        *_indent_lines(hot),
        "else:",
        *_indent_lines(other),
    ]
    lines = [f"if {_is_hot(layout, nulls, 'p')}:", *_indent_lines(hot), "else:", *_indent_lines(other)]
    return lines, {**before.names, **after.names}


def _is_hot(layout: RowLayout, nulls: int, p: str) -> str:
    size = layout.bitmap_bytes
    if size == 1:
        return f"data[{p}] == {nulls}"
    return f"data[{p}:{p} + {size}] == {nulls.to_bytes(size, 'little')!r}"


def _render_bitmap(layout: RowLayout) -> str:
    return f"from_bytes(data[p:p + {layout.bitmap_bytes}], 'little')"


def _render_append(key: str, images: str) -> list[str]:
    envelope = images + '{where}{row},"position":{here},"prev":{prev}{middle}{order}{tail}'
    return [
        f"value = {_render_fstring(envelope)}",
        "raw = value.encode('latin-1')",
        # Each text is between quotes, so if the whole is valid UTF-8, each of its values is.
        "if not value.isascii(): raw.decode()",
        f"append(({_render_fstring(key)}.encode('latin-1'), raw))",
    ]


def _indent_lines(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _render_fstring(fields: str) -> str:
    """Return the source of an f-string. Literal braces in `fields` are doubled."""
    return "f" + repr(fields)


def _render_object(names: Sequence[str], texts: Sequence[str], columns: Sequence[int]) -> str:
    """Return the f-string content for a JSON object of `columns`."""
    return "{{" + ",".join(_render_member(names[i]) + texts[i] for i in columns) + "}}"


def _render_member(name: str) -> str:
    return encode_utf8_in_latin1(quote_json_text(name)).replace("{", "{{").replace("}", "}}") + ":"


def _write_specialised_columns(writer: ImageSourceWriter, layout: RowLayout, nulls: int) -> list[str]:
    """Write the columns of one pattern of NULLs. Return the f-string field of each."""
    writer.skip_bytes(layout.bitmap_bytes)
    fields = []
    for i, form in enumerate(layout.formats):
        is_null = nulls >> i & 1
        fields.append("null" if is_null else "{" + writer.add_column(i, form) + "}")
    writer.flush_parts()
    return fields


def _write_general_columns(writer: ImageSourceWriter, layout: RowLayout) -> list[str]:
    """Write all columns, each with a test for NULL."""
    size = layout.bitmap_bytes
    writer.names["from_bytes"] = int.from_bytes
    writer.lines.extend([f"nulls = from_bytes(data[p:p + {size}], 'little')", f"p += {size}"])
    fields = []
    for i, form in enumerate(layout.formats):
        one = ImageSourceWriter(f"c{i}")
        value = one.add_column(i, form)
        one.flush_parts()
        writer.names.update(one.names)
        writer.lines.extend([f"if nulls >> {i} & 1:", f"    {value} = 'null'", "else:"])
        writer.lines.extend(_indent_lines([*one.lines, f"p = {one.render_position()}"]))
        fields.append("{" + value + "}")
    return fields
