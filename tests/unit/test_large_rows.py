"""Row events that are too large to be held: every type of column is cut by TABLE_MAP as the decoder reads it,
from real servers' events, and what arrives in many parts is never whole in memory."""

from __future__ import annotations

import io
import itertools
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from producer.binlog_format import log_event as log
from producer.binlog_format.byte_source import ByteSource
from producer.binlog_format.errors import DecodeError, IncompleteRowImage, OversizedValue, UndecodableRow
from producer.binlog_format.large_rows import CutBody, CutValue, cut_rows_event
from producer.binlog_format.log_event import BinlogEvent
from producer.binlog_format.payload import yield_payload_events
from producer.binlog_format.types import COMPRESSED
from producer.decoders.row_codec import TableCodec, TopicTail, count_rows
from producer.errors import StreamStoppedError, TransientSourceError
from producer.sources.binlog.binlog_dump import PacketSplitter
from producer.sources.binlog.binlog_source import SpillFile
from producer.sources.binlog.large_packets import LargePacket, make_file_opener
from producer.sources.binlog.log_proof import digest_event
from producer.sources.binlog.log_stream import LogStream
from schemas.table.left_out import leave_columns_out
from tests.decoder_golden import Golden, goldens
from tests.kits.decoder_support import decode_rows, transaction

ALL = goldens()
EACH = pytest.mark.parametrize("golden", ALL, ids=lambda golden: f"{golden.server} {golden.declared[:40]}")
PACKED = {plain: kind for kind, plain in COMPRESSED.items()}


def cut(golden: Golden, kind: int, body: bytes, limit: int) -> tuple[int, bytes]:
    return cut_rows_event(kind, ByteSource(io.BytesIO(body), len(body)), {golden.map[:6]: golden.map}, limit)


def rows_of(golden: Golden, kind: int, body: bytes, *left_out: str) -> list[object]:
    codec = TableCodec(
        leave_columns_out(golden.table, left_out), golden.table_map(), golden.source, TopicTail()
    )
    codec.build_records(kind, body, transaction(), 0)
    return list(decode_rows(codec, kind, body))


@EACH
def test_cut_rows_decode_to_the_published_values(golden: Golden) -> None:
    column = golden.table.columns[1].name
    for limit, (kind, body) in itertools.product((0, 1, 9, 300), golden.events):
        plain, found = cut(golden, kind, body, limit)
        assert plain == kind
        assert isinstance(found, CutBody)
        assert rows_of(golden, kind, found, column) == rows_of(golden, kind, body, column)
        assert count_rows(golden.table_map(), kind, found) == count_rows(golden.table_map(), kind, body)
        assert len(found) == len(body) - sum(value.size for value in found.cut)
        assert all(value.place == 1 and value.size > limit for value in found.cut)


@EACH
def test_rows_without_large_values_are_kept_as_they_are(golden: Golden) -> None:
    for kind, body in golden.events:
        found = cut(golden, kind, body, 1 << 30)[1]
        assert (bytes(found), found.cut if isinstance(found, CutBody) else None) == (body, ())
        assert rows_of(golden, kind, found) == rows_of(golden, kind, body)


def test_published_value_that_was_cut_stops_its_table() -> None:
    golden = next(each for each in ALL if each.declared.startswith("LONGBLOB"))
    kind, body = next((kind, body) for kind, body in golden.events if cut(golden, kind, body, 2)[1].cut)  # type: ignore[attr-defined]
    found = cut(golden, kind, body, 2)[1]
    tail = TopicTail(last=(0, 1, 2, 3))
    codec = TableCodec(golden.table, golden.table_map(), golden.source, tail)
    with pytest.raises(OversizedValue, match=f"column {golden.table.columns[1].name} of .* bytes"):
        codec.build_records(kind, found, transaction(), 0)
    assert tail.last == (0, 1, 2, 3)


@EACH
def test_compressed_rows_are_unpacked_and_cut(golden: Golden) -> None:
    for kind, body in golden.events:
        packed = pack(golden, kind, body)
        assert cut(golden, PACKED[kind], packed, 9) == cut(golden, kind, body, 9)


def pack(golden: Golden, kind: int, body: bytes) -> bytes:
    """Return the body of a compressed event, as MariaDB packs what follows the bitmaps."""
    head = len(cut(golden, kind, body, 0)[1]) and _find_rows(golden, kind, body)
    rows = body[head:]
    return body[:head] + bytes([0x84]) + len(rows).to_bytes(4, "big") + zlib.compress(rows)


def _find_rows(golden: Golden, kind: int, body: bytes) -> int:
    codec = TableCodec(golden.table, golden.table_map(), golden.source, TopicTail())
    return codec._find_first_row(kind, body)


INT = next(each for each in ALL if each.declared == "INT")
KIND, BODY = INT.events[0]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (KIND, BODY[:-1]),
        (KIND, BODY + b"\0"),
        (KIND, b"\xff" * 6 + BODY[6:]),
        (PACKED[KIND], BODY[: _find_rows(INT, KIND, BODY)] + b"\x81\x04" + zlib.compress(b"12345")),
        (PACKED[KIND], BODY[: _find_rows(INT, KIND, BODY)] + b"\x81\x09" + zlib.compress(b"12345")),
        (PACKED[KIND], BODY[: _find_rows(INT, KIND, BODY)] + b"\x81\x05no zlib"),
        (39, BODY),
    ],
    ids=[
        "too short",
        "too long",
        "no TABLE_MAP",
        "longer than stated",
        "shorter than stated",
        "no zlib",
        "39",
    ],
)
def test_rows_that_cannot_be_parsed_cannot_be_decoded_either(kind: int, body: bytes) -> None:
    plain, found = cut(INT, kind, body, 9)
    assert len(found) < 64
    with pytest.raises(DecodeError):
        count_rows(INT.table_map(), plain, found)


def test_image_that_is_not_full_stays_so() -> None:
    start = _find_rows(INT, KIND, BODY)
    body = BODY[: start - 1] + b"\x03" + BODY[start:]
    with pytest.raises(IncompleteRowImage):
        count_rows(INT.table_map(), *cut(INT, KIND, body, 9))


def test_cut_values_outlast_the_spill(tmp_path: Path) -> None:
    golden = next(each for each in ALL if each.declared.startswith("LONGBLOB"))
    spill, events = SpillFile(tmp_path), []
    for kind, body in golden.events:
        for each in (body, cut(golden, kind, body, 2)[1]):
            events.append(BinlogEvent(kind, 1, 2, 0, "b.1", 4, 5, each))
            spill.append(events[-1])
    found = list(spill)
    assert found == events
    assert [getattr(each.body, "cut", None) for each in found] == [
        getattr(each.body, "cut", None) for each in events
    ]


# --- packets


PARTS = 0xFFFFFF
MIB = 1 << 20


def frame(payload: bytes) -> bytes:
    """Return a packet as the server sends it, in parts."""
    ends = range(0, len(payload) + 1, PARTS)
    return b"".join(
        len(part).to_bytes(3, "little") + b"\0" + part for part in (payload[at : at + PARTS] for at in ends)
    )


def packet(kind: int, body: bytes) -> bytes:
    head = struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body) + 4, 0, 0)
    return b"\0" + head + body + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little")


@given(
    st.lists(st.sampled_from([1, 5, PARTS - 1, PARTS, PARTS + 1, 3 * PARTS, 3 * PARTS + 7]), max_size=4),
    st.integers(1, 5_000_000),
)
def test_packets_of_any_size_arrive_whole(sizes: list[int], step: int) -> None:
    packets = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    stream, splitter, found = b"".join(map(frame, packets)), PacketSplitter(), list[bytes]()
    step = max(step, len(stream) // 50)
    for at in range(0, len(stream), step):
        found += splitter.add_data(stream[at : at + step])
    whole = [each.read_whole() if isinstance(each, LargePacket) else each for each in found]
    assert whole == packets


BLOB = next(each for each in ALL if each.server == "mariadb" and each.declared.startswith("LONGBLOB"))


def blob_rows(*sizes: int) -> tuple[int, bytes]:
    """Return a WRITE_ROWS event of rows with values of these sizes."""
    kind, body = BLOB.events[0]
    head = body[: _find_rows(BLOB, kind, body)]
    rows = (
        b"\0" + struct.pack("<I", n) + size.to_bytes(4, "little") + bytes([n]) * size + struct.pack("<I", 9)
        for n, size in enumerate(sizes)
    )
    return kind, head + b"".join(rows)


class Packets:
    """A dump of packets, as they come out of a splitter."""

    checksum = True
    received_bytes = 0

    def __init__(self, *packets: bytes) -> None:
        self._splitter, self._packets = PacketSplitter(), [*packets]

    def read_packets(self, timeout: float) -> list[bytes]:
        del timeout
        stream, self._packets = b"".join(map(frame, self._packets)), []
        reads = (stream[at : at + MIB] for at in range(0, len(stream), MIB))
        return [each for data in reads for each in self._splitter.add_data(data)]

    def close(self) -> None: ...


def events_of(*packets: bytes) -> list[BinlogEvent]:
    stream = LogStream(Packets(*packets), "b.1", 4, lambda: 0)  # type: ignore[arg-type]
    return stream.read_events(0)


def test_large_rows_come_without_their_large_values() -> None:
    kind, body = blob_rows(3, 20 * MIB, 5, 17 * MIB)
    logged, large, after = events_of(
        packet(log.TABLE_MAP, BLOB.map), packet(kind, body), packet(log.XID, b"8" * 8)
    )
    assert (logged.type, large.type, after.type) == (log.TABLE_MAP, kind, log.XID)
    assert isinstance(large.body, CutBody)
    assert large.body.cut == (CutValue(1, 20 * MIB), CutValue(1, 17 * MIB))
    assert count_rows(BLOB.table_map(), kind, large.body) == 4
    assert large.end - large.start == len(body) + 23
    assert len(large.body) < 1000


def test_damaged_large_packet_stops_the_stream() -> None:
    kind, body = blob_rows(40 * MIB)
    damaged = packet(kind, body)
    with pytest.raises(StreamStoppedError, match="checksum is wrong"):
        events_of(packet(log.TABLE_MAP, BLOB.map), damaged[:-1] + bytes([damaged[-1] ^ 1]))


def test_large_statement_is_whole() -> None:
    body = b"a statement" * (4 * MIB)
    assert [event.body == body for event in events_of(packet(log.QUERY, body))] == [True]


def test_folder_without_room_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    splitter = PacketSplitter(make_file_opener(file / "spill"))
    stream = frame(bytes(40 * MIB))
    assert splitter.add_data(stream[: 30 * MIB]) == []
    with pytest.raises(TransientSourceError, match="`state_dir` has no room"):
        splitter.add_data(stream[30 * MIB : 35 * MIB])


# --- compressed transactions


def payload(events: list[tuple[int, bytes]], *, packed: bool = True) -> bytes:
    plain = b"".join(
        struct.pack("<IBIIIH", 1, kind, 7, 19 + len(body), 77, 0) + body for kind, body in events
    )
    data = zstandard.ZstdCompressor().compress(plain) if packed else plain
    kind = b"\x00" if packed else b"\xfc\xff\x00"
    sizes = (b"\xfe" + struct.pack("<Q", size) for size in (len(plain), len(data)))
    fields = ((2, kind), (3, next(sizes)), (1, next(sizes)))
    return b"".join(bytes([number, len(value)]) + value for number, value in fields) + b"\0" + data


def transaction_events(kind: int, body: bytes) -> list[tuple[int, bytes]]:
    return [(log.QUERY, b"BEGIN"), (log.TABLE_MAP, BLOB.map), (kind, body), (log.XID, b"8" * 8)]


@pytest.mark.parametrize("packed", [True, False], ids=["zstd", "not compressed"])
def test_large_rows_of_a_compressed_transaction_come_without_their_large_values(packed: bool) -> None:
    kind, body = blob_rows(3, 40 * MIB, 5)
    whole = payload(transaction_events(kind, body), packed=packed)
    (event,) = events_of(packet(log.TRANSACTION_PAYLOAD, whole))
    found = list(yield_payload_events(event))
    assert [each.type for each in found] == [log.QUERY, log.TABLE_MAP, kind, log.XID]
    assert getattr(found[2].body, "cut", None) == (CutValue(1, 40 * MIB),)
    assert count_rows(BLOB.table_map(), kind, found[2].body) == 3


def test_large_payload_proves_the_log_as_before() -> None:
    """A version that held payloads whole stored the same digest."""
    kind, body = blob_rows(40 * MIB)
    whole = payload(transaction_events(kind, body), packed=False)
    (event,) = events_of(packet(log.TRANSACTION_PAYLOAD, whole))
    assert len(event.body) < 1000
    assert digest_event(event) == digest_event(event._replace(body=whole))


def test_large_packet_takes_little_memory() -> None:
    def arriving() -> Iterator[bytes]:
        kind, body = blob_rows(0)
        size = 200 * MIB
        row = b"\0" + struct.pack("<I", 1) + size.to_bytes(4, "little")
        total = len(body) + len(row) + size + 4
        head = struct.pack("<IBIIIH", 1, kind, 1, 19 + total, 0, 0)
        start, left = b"\0" + head + body + row, total + 20
        data = start
        while left:
            part = min(left, PARTS)
            yield part.to_bytes(3, "little") + b"\0"
            sent = 0
            while sent < part:
                block = data[: part - sent] or bytes(min(MIB, part - sent))
                data, sent = data[len(block) :], sent + len(block)
                yield block
            left -= part

    splitter, found = PacketSplitter(), list[bytes]()
    tracemalloc.start()
    for block in arriving():
        found += splitter.add_data(block)
    (large,) = found
    assert isinstance(large, LargePacket)
    source = large.open_source(20, large.size)
    body = cut_rows_event(BLOB.events[0][0], source, {BLOB.map[:6]: BLOB.map})[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert getattr(body, "cut", None) == (CutValue(1, 200 * MIB),)
    assert count_rows(BLOB.table_map(), BLOB.events[0][0], body) == 2
    assert peak < 80 * MIB, "200 MB arrived"


def test_source_that_ends_early_is_refused() -> None:
    with pytest.raises(UndecodableRow):
        ByteSource(io.BytesIO(b"12"), 5).take(5)
    with pytest.raises(UndecodableRow):
        ByteSource(io.BytesIO(b"12345"), 2).take(3)
