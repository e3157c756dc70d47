"""TABLE_MAPs and row events as servers write them, made by hand: what the decoder is asked where no server
need run.

Nothing here is the product's: lengths, bitmaps and values are packed after MySQL's description of the format,
so that the decoder is held against the format and not against itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from producer.decoders.row_codec import TableCodec, TableMap, TopicTail, count_rows, parse_table_map
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex, Value
from schemas.wire.codec import decode_event
from schemas.wire.event import EventEnvelope
from tests.kits.decoder_support import SOURCE, decode_rows, transaction

WRITE, UPDATE, DELETE = 30, 31, 32


class Field(NamedTuple):
    """A column: its type in the definition, its type byte and metadata in TABLE_MAP."""

    type: ColumnType
    code: int
    metadata: bytes = b""


INT = Field(ColumnType(kind=Kind.INT, bits=32), 3)
AFTER = (0x11223344).to_bytes(4, "little")
"""What stands behind the column that is asked: read from one byte too early or late it is another number."""


def lenenc(number: int) -> bytes:
    """Return a length-encoded integer."""
    return bytes([number]) if number < 251 else b"\xfc" + number.to_bytes(2, "little")


def bitmap(flags: Sequence[bool]) -> bytes:
    """Return one bit for each flag, the first in the lowest bit of the first byte."""
    number = sum(flag << i for i, flag in enumerate(flags))
    return number.to_bytes((len(flags) + 7) // 8, "little")


def varchar(characters: int, charset: str, width: int) -> Field:
    """A VARCHAR of `characters` of up to `width` bytes each; the log has the bytes it may come to."""
    column = ColumnType(kind=Kind.VARCHAR, length=characters, charset=charset)
    return Field(column, 15, (characters * width).to_bytes(2, "little"))


def char(characters: int, charset: str, width: int) -> Field:
    """A CHAR: of its size in bytes two high bits stand, inverted, among those of the real type."""
    size = characters * width
    real = 254 ^ ((size & 0x300) >> 4)
    return Field(
        ColumnType(kind=Kind.CHAR, length=characters, charset=charset), 254, bytes([real, size & 0xFF])
    )


def text(length_bytes: int, charset: str) -> Field:
    """TINYTEXT, TEXT, MEDIUMTEXT and LONGTEXT are BLOBs by the bytes of their length."""
    column = ColumnType(kind=Kind.TEXT, length=(1 << 8 * length_bytes) - 1, charset=charset)
    return Field(column, 252, bytes([length_bytes]))


def labels(kind: Kind, count: int, size: int) -> Field:
    """An ENUM or SET of `count` labels "m0", "m1", … whose value takes `size` bytes."""
    column = ColumnType(kind=kind, members=tuple(f"m{i}" for i in range(count)), charset="utf8mb4")
    return Field(column, 254, bytes([247 if kind in (Kind.ENUM, Kind.ENUM_NUMBER) else 248, size]))


def bit(length: int) -> Field:
    return Field(ColumnType(kind=Kind.BIT, length=length), 16, bytes([length % 8, length // 8]))


def sized(data: bytes, length_bytes: int) -> bytes:
    """Return a value of variable length as it stands in an image."""
    return len(data).to_bytes(length_bytes, "little") + data


class Made:
    """A table with the columns `id`, then c1, c2, … of `fields`; all but `id` may be NULL."""

    def __init__(self, fields: Sequence[Field]) -> None:
        every = (INT, *fields)
        names = ("id", *(f"c{i}" for i in range(1, len(every))))
        columns = tuple(
            Column(name=name, type=field.type, nullable=name != "id")
            for name, field in zip(names, every, strict=True)
        )
        key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
        self.table = Table(db="bank", name="acct", columns=columns, key=key)
        self._width = len(every)
        metadata = b"".join(field.metadata for field in every)
        nullable = bitmap([column.nullable for column in columns])
        self.table_map = (
            (9).to_bytes(6, "little") + b"\1\0" + b"\4bank\0" + b"\4acct\0" + lenenc(self._width)
            + bytes(field.code for field in every) + lenenc(len(metadata)) + metadata + nullable
        )  # fmt: skip

    def map(self) -> TableMap:
        return parse_table_map(self.table_map)

    def image(self, number: int, values: Sequence[bytes | None]) -> bytes:
        """Return an image: the row's number, and its values as they are stored (None: NULL)."""
        nulls = bitmap([False, *(value is None for value in values)])
        stored = b"".join(value for value in values if value is not None)
        return nulls + number.to_bytes(4, "little") + stored

    def body(self, kind: int, images: Sequence[bytes]) -> bytes:
        present = bitmap([True] * self._width) * (2 if kind == UPDATE else 1)
        head = (9).to_bytes(6, "little") + b"\1\0" + b"\2\0"
        return head + lenenc(self._width) + present + b"".join(images)

    def read(self, *rows: Sequence[bytes | None]) -> list[Row]:
        """Return what every way through the decoder makes of `rows`, without their ids: the ways agree.

        They are inserted one behind the other, updated from each to the next, and deleted.
        """
        images = [self.image(number, row) for number, row in enumerate(rows)]
        inserted = self._events(WRITE, images)
        found = [_shown(event.after) for event in inserted]
        assert [_shown(event.before) for event in self._events(DELETE, images)] == found
        turned = [*images[1:], images[0]]
        pairs = [image for pair in zip(images, turned, strict=True) for image in pair]
        updates = self._events(UPDATE, pairs)
        assert [_shown(event.before) for event in updates] == found
        assert [_shown(event.after) for event in updates] == [*found[1:], found[0]]
        return [row[1:] for row in found]

    def _events(self, kind: int, images: list[bytes]) -> list[EventEnvelope]:
        body, codec = self.body(kind, images), TableCodec(self.table, self.map(), SOURCE, TopicTail())
        events = [decode_event(value) for _, value in codec.build_records(kind, body, transaction(), 0)]
        assert codec._marked is None, "the slow way, for damaged values, was taken"
        rows = [_shown(side) for event in events for side in (event.before, event.after) if side is not None]
        assert all(event.undecodable is None for event in events)
        assert [side for pair in decode_rows(codec, kind, body) for side in pair if side is not None] == rows
        assert codec.decode_keys(kind, body) == [row[:1] for row in rows]
        assert count_rows(self.map(), kind, body) == len(events)
        return events


def _shown(image: dict[str, Value] | None) -> Row:
    assert image is not None
    return tuple(image.values())
