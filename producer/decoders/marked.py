"""Encodes rows with values that cannot be decoded: the slow path, taken only when the fast one has
failed.

A column of variable length (text, JSON, geometry) with bytes that are no value of its type stays as it
is in the log, as `{"undecodable": base64}`, and the event names it. Columns of the key may not, because
rows could not be distinguished by them. Other errors (a label that the definition does not have, a row
with a wrong end) do not concern one value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from producer.binlog_format.charsets import prove_utf8
from producer.binlog_format.errors import UndecodableRow
from producer.decoders.envelope import EnvelopeParts
from producer.decoders.fragments import ColumnFormat, VariableFormat
from producer.decoders.generate import ImageFunctions, RowLayout
from producer.decoders.scalars import encode_base64_text
from schemas.wire.codec import mark_undecodable
from schemas.wire.event import Undecodable

_NONE: tuple[str, ...] = ()
_ERRORS = (ValueError, LookupError, OverflowError, struct.error)


class EnvelopeText(NamedTuple):
    """The JSON text around the images of an event's rows.

    `prev`: the position before its first row, as JSON.
    """

    parts: EnvelopeParts
    operation: str
    prev: str


def encode_raw_value(data: bytes) -> str:
    """Return the JSON of a value that cannot be decoded."""
    return '{"undecodable":"' + encode_base64_text(data) + '"}'


class UndecodableRowEncoder:
    """Encodes row events of one table, value by value."""

    def __init__(self, layout: RowLayout, bitmap: int) -> None:
        self._bad: list[int] = []
        formats = tuple(_guard_format(i, each, self._bad) for i, each in enumerate(layout.formats))
        self._images = ImageFunctions(RowLayout(formats, layout.names, layout.key, layout.image))
        self._layout = layout
        self._bitmap = bitmap

    def encode_records(
        self, operation: str, body: bytes, start: int, envelope: EnvelopeText, numbers: tuple[int, int]
    ) -> list[tuple[bytes, bytes]]:
        """Return (Kafka key, event value) of every row from `start` on.

        `numbers`: row and order of the first.

        Raises UndecodableRow for a value of the key, and the errors of a form that is not the table's.
        """
        where, position, middle, tail = envelope.parts
        row, order = numbers
        prev, p, out = envelope.prev, start, []
        while p < len(body):
            before, p, key, in_before = self._decode_image(body, p)
            after, in_after = "null", _NONE
            if operation == "u":
                after, p, key, in_after = self._decode_image(body, p)
            elif operation == "c":
                before, after, in_before, in_after = "null", before, _NONE, in_before
            here = f"{position}{row}]"
            text = (
                f'{{"op":"{operation}","before":{before},"after":{after}'
                f'{where}{row},"position":{here},"prev":{prev}{middle}{order}{tail}'
            )
            value = text.encode("latin-1")
            if in_before or in_after:
                value = mark_undecodable(value, Undecodable(before=in_before, after=in_after))
            out.append((key.encode("latin-1"), value))
            row, order, prev = row + 1, order + 1, here
        if p != len(body):
            raise ValueError(
                f"the last row ends at {p}, the event at {len(body)}: the table definition does not fit"
            )
        return out

    def _decode_image(self, body: bytes, p: int) -> tuple[str, int, str, tuple[str, ...]]:
        """Return the image at `p`, its end, its key, and the columns that could not be decoded."""
        self._bad.clear()
        function = self._images[int.from_bytes(body[p : p + self._bitmap], "little")]
        image, end, key = function(body, body.decode("latin-1"), p)
        names = tuple(self._layout.names[i] for i in self._bad)
        for i in self._bad:
            if i in self._layout.key:
                raise UndecodableRow(
                    f"column {self._layout.names[i]} of the key holds bytes that cannot be decoded"
                )
        return image, end, key, names


def _guard_format(i: int, form: ColumnFormat, bad: list[int]) -> ColumnFormat:
    """Return a format that keeps a value raw if it cannot be decoded, and adds its ordinal to `bad`."""
    if not isinstance(form, VariableFormat):
        return form

    def render(start: str, end: str, out: str) -> Sequence[str]:
        return [
            "try:",
            *(f"    {line}" for line in form.render(start, end, out)),
            f"    if not {out}.isascii(): prove_utf8({out})",
            "except errors:",
            f"    {out} = raw_value(data[{start}:{end}])",
            f"    bad.append({i})",
        ]

    unpack = form.unpack
    names = {
        **form.names,
        "errors": _ERRORS,
        "raw_value": encode_raw_value if unpack is None else lambda data: encode_raw_value(unpack(data)),
        "bad": bad,
        "prove_utf8": prove_utf8,
    }
    return VariableFormat(
        length_bytes=form.length_bytes, render=lambda a, b, v: list(render(a, b, v)), names=names
    )
