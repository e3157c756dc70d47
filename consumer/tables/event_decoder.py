"""Decodes row events as fast as Python can, with structures that are built once for a table definition.

Decoding the full envelope (schemas.wire.codec) costs 8 µs an event, most of it for fields that apply
never reads. Here only the needed fields are decoded, and images become structures with the table's
columns as fields, so that a row is one C call away. Events other than c, u, d and r go through the full
codec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from consumer.errors import CopyNeededError, UnitStoppedError
from schemas.errors import EnvelopeError
from schemas.table.model import Row, Table
from schemas.wire.codec import decode_event
from schemas.wire.event import ENVELOPE_VERSION, EventEnvelope, Undecodable
from schemas.wire.images import make_checked_decoder, make_image_reader, make_image_type
from schemas.wire.position import Position

SNAPSHOT_READ = "r"
ROW_EVENT_OPS = frozenset("cud" + SNAPSHOT_READ)


class SlimSource(msgspec.Struct, gc=False):
    """The fields of an event's `source` that apply reads."""

    version: str = msgspec.field(name="version")
    ts_ms: int = msgspec.field(name="ts_ms")
    db: str = msgspec.field(name="db")
    table: str = msgspec.field(name="table")
    position: Position = msgspec.field(name="position")
    prev: Position | None = msgspec.field(name="prev")
    gen: int = msgspec.field(name="gen")


class SlimEvent(msgspec.Struct):
    """Any event, as far as it can be decoded without a definition."""

    op: str = msgspec.field(name="op")
    source: SlimSource = msgspec.field(name="source")
    before: Any = msgspec.field(name="before", default=None)
    after: Any = msgspec.field(name="after", default=None)
    undecodable: Undecodable | None = msgspec.field(name="undecodable", default=None)


DecodeEvent = Callable[[bytes], Any]
"""Kafka value → a structure with `op`, `source`, `before` and `after`; the images are column structures
or None."""


def decode_none(_raw: bytes) -> Any:
    """Refuse every event: the row decoder while there is no active definition."""
    raise msgspec.DecodeError("no definition is active")


decode_any: DecodeEvent = msgspec.json.Decoder(SlimEvent).decode
"""Decodes every event while there is no active definition."""


def make_event_decoder(table: Table) -> DecodeEvent:
    """Return the decoder of all events of a source table, with both images complete.

    An image that lacks a column is refused. Columns that the table does not know are ignored until a
    definition event introduces them.
    """
    names = table.column_names
    image = make_image_type(names, names)
    return make_checked_decoder(_make_decoder(str, SlimSource, image, image, Undecodable | None), names)


def make_row_decoder(table: Table, kept: Collection[str]) -> DecodeEvent:
    """Return the fast decoder of a source table's row events in today's envelope; it refuses all others.

    `kept`: the columns needed from a before-image (keys and unique indexes); the others are None in it.
    Constant parts of an event are compared and not built, and no object is built of unused parts:
    freeing an object, thousands of events later, costs more than building it.
    """
    names = table.column_names
    source = msgspec.defstruct(
        "RowSource",
        [
            ("version", Literal[ENVELOPE_VERSION]),  # a constant of one value
            ("db", Literal[table.db]),
            ("table", Literal[table.name]),
            ("ts_ms", int),
            ("position", Position),
            ("prev", Position | None),
            ("gen", int),
        ],
        gc=False,
    )
    before, after = make_image_type(names, kept), make_image_type(names, names)
    return make_checked_decoder(
        _make_decoder(Literal["c", "u", "d", "r"], source, before, after, None), names
    )


def _make_decoder(op: Any, source: Any, before: Any, after: Any, undecodable: Any) -> DecodeEvent:
    event = msgspec.defstruct(
        "RowEvent",  # in the order of the wire, where each field is found at once
        [
            ("op", op),
            ("before", before | None, None),
            ("after", after | None, None),
            ("source", source),
            ("undecodable", undecodable, None),
        ],
        kw_only=True,
        gc=False,
    )
    return msgspec.json.Decoder(event).decode


def make_image_converter(table: Table, added: tuple[tuple[str, str], ...]) -> Callable[[Any], Row]:
    """Return the function image of `table` → target row, with the added columns' values last."""
    row = make_image_reader(table.column_names)
    values: Row = tuple(value for _, value in added)
    return (lambda image: row(image) + values) if values else row


def decode_full_event(topic: str, offset: int, raw: bytes) -> EventEnvelope:
    """Decode the whole envelope. Raises UnitStoppedError with topic and offset."""
    try:
        return decode_event(raw)
    except EnvelopeError as error:
        raise UnitStoppedError.wrap_error(f"{topic} offset {offset}", error) from error


def build_event_error(topic: str, offset: int, raw: bytes, error: Exception) -> UnitStoppedError:
    """Return the error with which an event that the fast decoder refused stops the unit."""
    try:
        decode_event(raw)
    except EnvelopeError as problem:
        return UnitStoppedError.wrap_error(f"{topic} offset {offset}", problem)
    return CopyNeededError(
        f"{topic} offset {offset}: the event does not fit the active definition ({error}): the table was "
        "changed at the source without a definition event in the topic",
        cause="event", after=offset,
    )  # fmt: skip
