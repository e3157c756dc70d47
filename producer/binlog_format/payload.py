"""MySQL's compressed transactions: the events inside of a TRANSACTION_PAYLOAD event, one after the
other.

A payload holds a whole transaction after its GTID event, from BEGIN to its end, as events without
checksums. It is unpacked as a stream: whatever its size, only the packed event, unless it is large, and one
event of it are in memory. The place of an inner event in a log file is not useful: all
have the bounds of the payload. Format: MySQL's `Transaction_payload_event`
(libs/mysql/binlog/event/codecs/binary.cpp, compression/).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import zstandard

from producer.binlog_format import log_event as log
from producer.binlog_format.byte_reader import ByteReader
from producer.binlog_format.byte_source import ByteSource, Reader
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.large_rows import LARGE_EVENT, cut_rows_event
from producer.binlog_format.log_event import BinlogEvent

_END, _SIZE, _COMPRESSION, _UNPACKED_SIZE = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255
_WINDOW = 1 << 28  # zstd's largest level needs 2^27
_AHEAD = 1 << 17


class PayloadBody(bytes):
    """The first bytes of a TRANSACTION_PAYLOAD event's body of `size` bytes, which is too large for memory.

    `open_rest(start)`: returns a reader of the body from `start` on.
    """

    size: int
    open_rest: Callable[[int], Reader]

    @classmethod
    def build(cls, head: bytes, size: int, open_rest: Callable[[int], Reader]) -> PayloadBody:
        body = cls(head)
        body.size, body.open_rest = size, open_rest
        return body

    def yield_blocks(self) -> Iterator[bytes]:
        """Yield the whole body in blocks."""
        yield from ByteSource(self.open_rest(0), self.size).yield_blocks(self.size)


def yield_payload_events(event: BinlogEvent) -> Iterator[BinlogEvent]:
    """Yield the events of a TRANSACTION_PAYLOAD event; a row event that is too large for memory without its
    large values (producer/binlog_format/large_rows.py).

    `file`, `start` and `end` of each are the payload's.

    Raises DecodeError, also between events: the events before the damage have been yielded by then.
    """
    try:
        compression, payload = _parse_payload_header(event.body)
    except (IndexError, KeyError, ValueError) as error:
        raise DecodeError(f"the head of a compressed transaction cannot be parsed: {error}") from error
    stream, maps = _open_payload(compression, payload), dict[bytes, bytes]()
    try:
        while head := stream.read(log.HEADER_SIZE):
            found = _read_payload_event(event, head, stream, maps)
            if found.type == log.TABLE_MAP:
                maps[found.body[:6]] = found.body
            yield found
    except zstandard.ZstdError as error:
        raise DecodeError(f"a compressed transaction cannot be unpacked: {error}") from error


def _read_payload_event(
    outer: BinlogEvent, head: bytes, stream: Reader, maps: Mapping[bytes, bytes]
) -> BinlogEvent:
    if len(head) < log.HEADER_SIZE:
        raise DecodeError("a compressed transaction ends inside of an event")
    timestamp, kind, server_id, size, _, flags = log.parse_header(b"\0" + head)
    size -= log.HEADER_SIZE
    if size < 0:
        raise DecodeError(f"a compressed transaction holds an event of {size + log.HEADER_SIZE} bytes")
    if size > LARGE_EVENT and kind in log.ANY_ROWS:
        kind, body = cut_rows_event(kind, ByteSource(stream, size), maps)
    else:
        body = stream.read(size)
        if len(body) != size:
            raise DecodeError("a compressed transaction ends inside of an event")
    return BinlogEvent(kind, timestamp, server_id, flags, outer.file, outer.start, outer.end, body)


def _parse_payload_header(body: bytes) -> tuple[int, Reader]:
    """Return the kind of compression, and a reader of the packed bytes."""
    reader, compression = ByteReader(body), _NONE
    size = -1
    while (field := reader.read_lenenc()) != _END:
        value = ByteReader(reader.read_bytes(reader.read_lenenc()))
        if field == _COMPRESSION:
            compression = value.read_lenenc()
        elif field == _SIZE:
            size = value.read_lenenc()
    start = len(body) - reader.rest
    rest = (body.size if isinstance(body, PayloadBody) else len(body)) - start
    if size not in (-1, rest):
        raise ValueError(f"its header states {size} bytes, but {rest} follow")
    if isinstance(body, PayloadBody):
        return compression, body.open_rest(start)
    return compression, io.BytesIO(memoryview(body)[start:])


def _open_payload(compression: int, payload: Reader) -> Reader:
    if compression == _NONE:
        return payload
    if compression != _ZSTD:
        raise DecodeError(
            f"a compressed transaction has the unknown compression {compression}: this "
            "server is newer than rowlock",
            "SET GLOBAL binlog_transaction_compression=OFF",
        )
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    packed: Any = payload  # the library asks for no more than its `read`
    return io.BufferedReader(unpacker.stream_reader(packed, read_across_frames=True), _AHEAD)
