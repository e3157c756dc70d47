"""Compressed transactions (MySQL), statements and rows (MariaDB): unpacked exactly, in bounded memory, or
refused."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Iterable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from producer.binlog_format import log_event as log
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.log_event import (
    BinlogEvent,
    LoggedStatement,
    SessionSettings,
    parse_statement_event,
)
from producer.binlog_format.payload import yield_payload_events


def event(kind: int, body: bytes) -> BinlogEvent:
    return BinlogEvent(kind, 1_700_000_000, 1, 0, "binlog.000009", 400, 900, body)


def field(kind: int, value: bytes) -> bytes:
    return bytes([kind, len(value)]) + value


def payload(events: Iterable[tuple[int, bytes]], compression: int = 0, frames: int = 1) -> BinlogEvent:
    """Pack (type, body) pairs as the server does; each of `frames` holds some of the bytes."""
    plain = b"".join(
        struct.pack("<IBIIIH", 1_700_000_001, kind, 7, 19 + len(body), 77, 0) + body for kind, body in events
    )
    packed = plain
    if compression == 0:
        size = -(-len(plain) // frames)
        pieces = [plain[i : i + size] for i in range(0, len(plain), size)]
        packed = b"".join(zstandard.ZstdCompressor().compress(piece) for piece in pieces)
    fields = field(2, b"\xfc\xff\x00" if compression == 255 else bytes([compression]))
    fields += field(3, b"\xfe" + struct.pack("<Q", len(plain))) + field(
        1, b"\xfe" + struct.pack("<Q", len(packed))
    )
    return event(log.TRANSACTION_PAYLOAD, fields + b"\0" + packed)


def compressed(data: bytes) -> bytes:
    length = max(1, -(-len(data).bit_length() // 8))
    return bytes([0x80 | length]) + len(data).to_bytes(length, "big") + zlib.compress(data)


@given(
    st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300)), min_size=1, max_size=20),
    st.sampled_from([0, 255]),
    st.integers(1, 3),
)
def test_a_payload_gives_its_events(events: list[tuple[int, bytes]], compression: int, frames: int) -> None:
    found = list(yield_payload_events(payload(events, compression, frames)))
    assert [(e.type, e.body) for e in found] == events
    assert {(e.file, e.start, e.end) for e in found} == {("binlog.000009", 400, 900)}
    assert {(e.timestamp, e.server_id) for e in found} == {(1_700_000_001, 7)}


def test_a_payload_is_unpacked_as_a_stream() -> None:
    packed = payload((30, bytes(8192)) for _ in range(20_000))
    assert len(packed.body) < 1 << 20
    tracemalloc.start()
    count = sum(1 for _ in yield_payload_events(packed))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 8 << 20, "160 MB unpacked"


def damaged() -> list[BinlogEvent]:
    good = payload([(2, b"BEGIN" * 40), (16, bytes(8))])
    short = struct.pack("<IBIIIH", 0, 2, 7, 400, 77, 0)
    return [
        event(log.TRANSACTION_PAYLOAD, good.body[:-5]),
        event(log.TRANSACTION_PAYLOAD, good.body[:20] + b"\xff" * (len(good.body) - 20)),
        event(log.TRANSACTION_PAYLOAD, b""),
        event(log.TRANSACTION_PAYLOAD, b"\xff\xff"),
        event(log.TRANSACTION_PAYLOAD, field(2, b"\x09") + b"\0abc"),
        event(log.TRANSACTION_PAYLOAD, field(2, b"\xfc\xff\x00") + b"\0" + short),
        event(log.TRANSACTION_PAYLOAD, field(2, b"\xfc\xff\x00") + b"\0" + short[:7]),
        event(log.TRANSACTION_PAYLOAD, field(2, b"\xfc\xff\x00") + b"\0" + bytes(19)),
    ]


@pytest.mark.parametrize("bad", damaged())
def test_a_damaged_payload_is_refused(bad: BinlogEvent) -> None:
    with pytest.raises(DecodeError, match="compressed transaction"):
        list(yield_payload_events(bad))


HEAD = struct.pack("<IIBHH", 1, 0, 4, 0, 3)
STATUS = b"\xfa\xfb\xfc"


def test_statements_are_read_from_every_event_that_holds_one() -> None:
    sql = b"UPDATE acct SET x = " + b"1" * 70_000
    plain = HEAD + STATUS + b"bank\0" + sql
    packed = HEAD + STATUS + b"bank\0" + compressed(sql)
    load = HEAD + bytes(13) + STATUS + b"bank\0" + sql
    expected = LoggedStatement(
        "bank", sql.decode(), settings=SessionSettings(zeroes_dates=True)
    )  # nothing is said of its sql_mode
    assert parse_statement_event(event(log.QUERY, plain)) == expected
    assert parse_statement_event(event(log.QUERY_COMPRESSED, packed)) == expected
    assert parse_statement_event(event(log.EXECUTE_LOAD_QUERY, load)) == expected


@pytest.mark.parametrize(
    "text",
    [b"", b"\x91\x05" + zlib.compress(b"BEGIN"), b"\x81\x04" + zlib.compress(b"BEGIN"), b"\x81\x05xxx",
     b"\x81\x05" + zlib.compress(b"BEGIN")[:-4]],
)  # fmt: skip
def test_a_damaged_compressed_statement_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError, match="compressed statement"):
        parse_statement_event(event(log.QUERY_COMPRESSED, HEAD + STATUS + b"bank\0" + text))
