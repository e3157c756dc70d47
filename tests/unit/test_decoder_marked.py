"""Values that cannot be decoded go into the event raw and marked; nothing else is let through."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from producer.binlog_format.errors import UndecodableRow
from producer.decoders.row_codec import TableCodec, TopicTail, mark_last, parse_table_map
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.codec import decode_event, encode_event_value
from schemas.wire.event import EventEnvelope, Undecodable
from tests.kits.decoder_support import SOURCE, transaction

INT = ColumnType(kind=Kind.INT, bits=32)
USER_DEFINED = b"\xaa\xa1"  # gbk's first user-defined character
BROKEN = b"a\xff\xc3"


def text(charset: str) -> ColumnType:
    return ColumnType(kind=Kind.VARCHAR, length=11, charset=charset)


def table(charset: str, key: str = "id", *unique: str) -> Table:
    columns = (
        Column(name="id", type=INT, nullable=False),
        Column(name="name", type=text(charset)),
        Column(name="note", type=text("utf8mb4")),
    )
    index, *others = (UniqueIndex(name=name, parts=(IndexPart(column=name),)) for name in (key, *unique))
    return Table(db="bank", name="acct", columns=columns, key=index, unique=tuple(others))


def codec(
    charset: str = "gbk", key: str = "id", tail: TopicTail | None = None, unique: tuple[str, ...] = ()
) -> TableCodec:
    head = (9).to_bytes(6, "little") + b"\1\0" + b"\4bank\0" + b"\4acct\0"
    logged = head + b"\3\x03\x0f\x0f" + b"\4\x2c\x00\x2c\x00" + b"\6"
    return TableCodec(table(charset, key, *unique), parse_table_map(logged), SOURCE, tail or TopicTail())


def image(number: int, *values: bytes | None) -> bytes:
    nulls = sum((value is None) << n for n, value in enumerate(values, 1))
    packed = b"".join(bytes([len(value)]) + value for value in values if value is not None)
    return bytes([nulls]) + struct.pack("<i", number) + packed


def body(kind: int, *images: bytes) -> bytes:
    bitmaps = b"\x07" * (2 if kind == 31 else 1)
    return (9).to_bytes(6, "little") + b"\1\0" + b"\2\0" + b"\3" + bitmaps + b"".join(images)


def raw(data: bytes) -> dict[str, str]:
    return {"undecodable": base64.b64encode(data).decode()}


def events(kind: int, *images: bytes, charset: str = "gbk") -> list[EventEnvelope]:
    tail = TopicTail((0, 3, 4000, 0))
    tx = transaction()
    records = codec(charset, tail=tail).build_records(kind, body(kind, *images), tx, 5)
    found = [decode_event(value) for _, value in records]
    for (key, value), event in zip(records, found, strict=True):
        assert encode_event_value(event) == value
        assert decode_event(mark_last(value)).undecodable == event.undecodable
        assert json.loads(key) == {"id": (event.after or event.before or {})["id"]}
    rows = [event.source.row for event in found]
    assert rows == list(range(5, 5 + len(found)))
    assert [event.source.prev for event in found] == [
        (0, 3, 4000, 0),
        *[e.source.position for e in found[:-1]],
    ]
    assert tail.last == found[-1].source.position
    orders = [event.transaction.total_order for event in found if event.transaction is not None]
    assert orders == list(range(1, len(found) + 1))
    assert tx.total_order == len(found)
    return found


def test_only_the_value_at_fault_is_raw() -> None:
    good = "王".encode("gbk")
    found = events(30, image(1, good, b"x"), image(2, USER_DEFINED, b"y"), image(3, None, None))
    assert [event.after for event in found] == [
        {"id": 1, "name": "王", "note": "x"},
        {"id": 2, "name": raw(USER_DEFINED), "note": "y"},
        {"id": 3, "name": None, "note": None},
    ]
    assert [event.undecodable for event in found] == [None, Undecodable(after=("name",)), None]


def test_every_image_names_its_own() -> None:
    (update,) = events(31, image(1, USER_DEFINED, BROKEN), image(1, b"ok", BROKEN))
    assert update.before == {"id": 1, "name": raw(USER_DEFINED), "note": raw(BROKEN)}
    assert update.after == {"id": 1, "name": "ok", "note": raw(BROKEN)}
    assert update.undecodable == Undecodable(before=("name", "note"), after=("note",))
    (delete,) = events(32, image(1, USER_DEFINED, None))
    assert (delete.op, delete.after) == ("d", None)
    assert delete.undecodable == Undecodable(before=("name",))


def test_bytes_that_are_no_geometry_are_raw() -> None:
    """MariaDB gives existing rows an empty value where a statement adds a geometry that is NOT NULL."""
    point = Column(name="point", type=ColumnType(kind=Kind.GEOMETRY))
    columns = (*table("utf8mb4").columns[:1], point, table("utf8mb4").columns[2])
    head = (9).to_bytes(6, "little") + b"\1\0" + b"\4bank\0" + b"\4acct\0"
    logged = parse_table_map(head + b"\3\x03\xff\x0f" + b"\3\x01\x2c\x00" + b"\6")
    reader = TableCodec(structs.replace(table("utf8mb4"), columns=columns), logged, SOURCE, TopicTail())
    images = [image(number, value, b"x") for number, value in enumerate([b"", b"\1\0\0\0", b"\1\0\0\0wkb"])]
    found = [
        decode_event(value) for _, value in reader.build_records(30, body(30, *images), transaction(), 0)
    ]
    expected: list[Any] = [raw(b""), raw(b"\1\0\0\0"), {"wkb": base64.b64encode(b"wkb").decode(), "srid": 1}]
    assert [event.after and event.after["point"] for event in found] == expected
    assert [event.undecodable for event in found] == [*[Undecodable(after=("point",))] * 2, None]


@pytest.mark.parametrize("charset", ["ascii", "utf8mb4", "utf8mb3"])
@pytest.mark.parametrize("bad", [BROKEN, b"\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_bytes_that_are_no_utf8_make_no_event_that_nobody_can_read(charset: str, bad: bytes) -> None:
    (event,) = events(30, image(1, bad, b"x"), charset=charset)
    assert event.after == {"id": 1, "name": raw(bad), "note": "x"}


def test_a_key_is_never_raw() -> None:
    with pytest.raises(UndecodableRow, match="column name of the key"):
        codec(key="name").build_records(
            30, body(30, image(1, b"ok", b"x"), image(2, USER_DEFINED, b"x")), transaction(), 0
        )


#: Character set → two codes of one character; the first is that of the servers.
REPEATED = {
    "armscii8": (b"\x28", b"\xa5"),
    "eucjpms": (b"\xa2\xe2", b"\xad\xf0"),
    "cp932": (b"\x81\xe0", b"\x87\x90"),
}


@pytest.mark.parametrize("charset", REPEATED)
def test_rows_with_two_codes_of_a_character_never_become_one(charset: str) -> None:
    first, second = REPEATED[charset]
    both = body(30, image(1, first, None), image(2, second, None))

    def read(**where: Any) -> list[Any]:
        records = codec(charset, **where).build_records(30, both, transaction(), 0)
        return [(decode_event(value).after or {})["name"] for _, value in records]

    one, other = read()
    assert one == other
    assert read(unique=("name",)) == [one, raw(second)]
    with pytest.raises(UndecodableRow, match="column name of the key"):
        read(key="name")
    with pytest.raises(UndecodableRow, match=r"bank\.acct"):
        codec(charset, key="name").decode_keys(30, both)


def test_a_damaged_event_is_refused_whole() -> None:
    tail, tx = TopicTail(), transaction()
    for damaged in (image(1, USER_DEFINED, b"x")[:-1], image(1, USER_DEFINED, b"x") + b"\0"):
        with pytest.raises(UndecodableRow, match=r"bank\.acct"):
            codec(tail=tail).build_records(30, body(30, damaged), tx, 0)
    assert (tail.last, tx.total_order) == (None, 0)


_VALUE = st.none() | st.binary(max_size=11)


@given(
    st.sampled_from(["gbk", "latin1", "utf8mb4", "sjis", "ucs2"]), st.sampled_from([30, 31, 32]), st.data()
)
def test_whatever_stands_in_a_column_makes_an_event(charset: str, kind: int, data: st.DataObject) -> None:
    values = data.draw(
        st.lists(st.tuples(_VALUE, _VALUE), min_size=2, max_size=6).filter(lambda v: len(v) % 2 == 0)
    )
    found = events(kind, *(image(1, *value) for value in values), charset=charset)
    images: list[tuple[dict[str, Any], tuple[str, ...]]] = []
    for event in found:
        named = event.undecodable or Undecodable()
        images += [
            (i, n) for i, n in ((event.before, named.before), (event.after, named.after)) if i is not None
        ]
    for (shown, named_here), value in zip(images, values, strict=True):
        for column, stored in zip(("name", "note"), value, strict=True):
            assert (column in named_here) == isinstance(shown[column], dict)
            if column in named_here:
                assert shown[column] == raw(stored or b"")


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_records_that_are_not_sent_leave_the_chain_whole(keep: int) -> None:
    tail, tx = TopicTail((0, 3, 4000, 0)), transaction()
    writing = codec(tail=tail)
    records = writing.build_records(30, body(30, *(image(n, b"x", b"y") for n in range(3))), tx, 5)
    writing.withdraw_rows(records, keep, tx)
    assert len(records) == keep
    expected = [(0, 3, 4000, 0), (0, 3, 4711, 5), (0, 3, 4711, 6), (0, 3, 4711, 7)][keep]
    assert (tail.last, tx.total_order) == (expected, keep)
    ((_, value),) = writing.build_records(30, body(30, image(9, b"x", b"y")), tx, 90)
    event = decode_event(value)
    assert event.source.prev == expected
    assert event.transaction is not None
    assert event.transaction.total_order == keep + 1
