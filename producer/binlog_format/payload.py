"""MySQL's compressed transactions: the events inside of a TRANSACTION_PAYLOAD event, one after the
other.

A payload holds a whole transaction after its GTID event, from BEGIN to its end, as events without
checksums. It is unpacked as a stream: whatever its size, only the packed event, which the server sent as
a whole, and one event of it are in memory. The place of an inner event in a log file is not useful: all
have the bounds of the payload. Format: MySQL's `Transaction_payload_event`
(libs/mysql/binlog/event/codecs/binary.cpp, compression/).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

import zstandard

from producer.binlog_format import log_event as log
from producer.binlog_format.byte_reader import ByteReader
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.log_event import BinlogEvent

_END, _SIZE, _COMPRESSION, _UNPACKED_SIZE = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255
_WINDOW = 1 << 28  # zstd's largest level needs 2^27
_AHEAD = 1 << 17


def yield_payload_events(event: BinlogEvent) -> Iterator[BinlogEvent]:
    """Yield the events of a TRANSACTION_PAYLOAD event.

    `file`, `start` and `end` of each are the payload's.

    Raises DecodeError, also between events: the events before the damage have been yielded by then.
    """
    try:
        compression, payload = _parse_payload_header(event.body)
    except (IndexError, KeyError, ValueError) as error:
        raise DecodeError(f"the head of a compressed transaction cannot be parsed: {error}") from error
    stream = _open_payload(compression, payload)
    try:
        while head := stream.read(log.HEADER_SIZE):
            yield _read_payload_event(event, head, stream)
    except zstandard.ZstdError as error:
        raise DecodeError(f"a compressed transaction cannot be unpacked: {error}") from error


def _read_payload_event(outer: BinlogEvent, head: bytes, stream: IO[bytes]) -> BinlogEvent:
    if len(head) < log.HEADER_SIZE:
        raise DecodeError("a compressed transaction ends inside of an event")
    timestamp, kind, server_id, size, _, flags = log.parse_header(b"\0" + head)
    if size < log.HEADER_SIZE:
        raise DecodeError(f"a compressed transaction holds an event of {size} bytes")
    body = stream.read(size - log.HEADER_SIZE)
    if len(body) != size - log.HEADER_SIZE:
        raise DecodeError("a compressed transaction ends inside of an event")
    return BinlogEvent(kind, timestamp, server_id, flags, outer.file, outer.start, outer.end, body)


def _parse_payload_header(body: bytes) -> tuple[int, memoryview]:
    """Return the kind of compression, and the packed bytes."""
    reader, compression = ByteReader(body), _NONE
    size = -1
    while (field := reader.read_lenenc()) != _END:
        value = ByteReader(reader.read_bytes(reader.read_lenenc()))
        if field == _COMPRESSION:
            compression = value.read_lenenc()
        elif field == _SIZE:
            size = value.read_lenenc()
    rest = memoryview(body)[len(body) - reader.rest :]
    if size not in (-1, len(rest)):
        raise ValueError(f"its header states {size} bytes, but {len(rest)} follow")
    return compression, rest


def _open_payload(compression: int, payload: memoryview) -> IO[bytes]:
    if compression == _NONE:
        return io.BytesIO(payload)
    if compression != _ZSTD:
        raise DecodeError(
            f"a compressed transaction has the unknown compression {compression}: this "
            "server is newer than rowlock",
            "SET GLOBAL binlog_transaction_compression=OFF",
        )
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    return io.BufferedReader(unpacker.stream_reader(payload, read_across_frames=True), _AHEAD)
