"""Decoding row events as fast as Python can: structures made once for a table definition (design.md §4).

The full envelope (schemas.codec) costs 8 µs an event, most of it for fields that apply never looks at. Here only what
is needed is decoded, and the images straight into structures whose fields are the table's columns, so that a row is
one C call away. Everything but c, u, d and r events goes through the full codec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from consumer.errors import UnitStoppedError
from schemas.codec import decode_event
from schemas.errors import EnvelopeError
from schemas.event import Event
from schemas.position import Position
from schemas.table import Row, Table

ROW_OPS = frozenset("cudr")


class SlimSource(msgspec.Struct, gc=False):
    """What apply reads of `source`."""

    version: str
    ts_ms: int
    db: str
    table: str
    position: Position
    prev: Position | None
    gen: int


class SlimEvent(msgspec.Struct):
    """Any event, as far as it can be read without a definition."""

    op: str
    source: SlimSource
    before: Any = None
    after: Any = None


Decode = Callable[[bytes], Any]
"""Kafka value → a structure with `op`, `source`, and `before` and `after`: column structures or None."""


decode_any: Decode = msgspec.json.Decoder(SlimEvent).decode
"""Decodes every event while no definition is in force."""


def row_decoder(table: Table) -> Decode:
    """Return the decoder of row events of a source table; an image that lacks a column is refused by it.

    Columns it does not know are ignored: a definition event says when they begin to count.
    """
    names = table.column_names
    fields = [(f"c{i}", Any) for i in range(len(names))]
    rename = {f"c{i}": name for i, name in enumerate(names)}
    image = msgspec.defstruct("Image", fields, rename=rename, gc=False)
    event = msgspec.defstruct(
        "RowEvent",
        [("op", str), ("source", SlimSource), ("before", image | None, None), ("after", image | None, None)],
        gc=False,
    )
    return msgspec.json.Decoder(event).decode


def image_row(added: tuple[tuple[str, str], ...]) -> Callable[[Any], Row]:
    """Return the function column structure → target row (the added columns' values last)."""
    astuple = msgspec.structs.astuple
    values: Row = tuple(value for _, value in added)
    return (lambda image: astuple(image) + values) if values else astuple


def full_event(topic: str, offset: int, raw: bytes) -> Event:
    """Decode the whole envelope. Raises UnitStoppedError with the place."""
    try:
        return decode_event(raw)
    except EnvelopeError as error:
        raise UnitStoppedError(f"{topic} offset {offset}: {error}") from error


def bad_event(topic: str, offset: int, raw: bytes, error: Exception) -> UnitStoppedError:
    """Return why an event that the fast decoder refused stops the unit."""
    try:
        decode_event(raw)
    except EnvelopeError as problem:
        return UnitStoppedError(f"{topic} offset {offset}: {problem}")
    return UnitStoppedError(
        f"{topic} offset {offset}: the event does not fit the definition in force ({error}): the table was changed at "
        f"the source without a definition event in the topic; take a new snapshot of the table"
    )
