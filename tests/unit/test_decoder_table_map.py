"""TABLE_MAPs, refusals and the small parts of the decoder, without a server."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pymysql.constants import FIELD_TYPE

from producer.binlog_format import definition_match
from producer.binlog_format.charsets import find_decoder
from producer.binlog_format.errors import IncompleteRowImage
from producer.binlog_format.row_events import ColumnMap
from producer.decoders.generate import ImageFunctions, RowLayout
from producer.decoders.row_codec import (
    DefinitionMismatch,
    TableCodec,
    TableMapCache,
    TopicTail,
    UndecodableRow,
    count_rows,
    mark_last,
    parse_table_map,
    unpack_rows_event,
)
from producer.kafka.control_events import encode_chunk, encode_definition, encode_snapshot, encode_truncate
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire import codec as codec_module
from schemas.wire.codec import decode_event
from schemas.wire.event import Chunk
from schemas.wire.position import DEFINITION_ROW, FIRST_SNAPSHOT_ROW
from tests.kits.decoder_support import SOURCE, decode_rows, transaction

INT = ColumnType(kind=Kind.INT, bits=32)
TEXT = ColumnType(kind=Kind.VARCHAR, length=11, charset="utf8mb4")
KEY = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))


def table(*columns: Column) -> Table:
    return Table(
        db="bank", name="acct", columns=(Column(name="id", type=INT, nullable=False), *columns), key=KEY
    )


FLAGS = table(Column(name="flags", type=ColumnType(kind=Kind.BIT, length=5)))
PEOPLE = table(Column(name="name", type=TEXT), Column(name="age", type=INT))


def map_body(
    table_id: int = 9, types: bytes = b"\x03\x0f\x03", metadata: bytes = b"\x2c\x00", extra: bytes = b""
) -> bytes:
    head = table_id.to_bytes(6, "little") + b"\1\0" + b"\4bank\0" + b"\4acct\0"
    return head + bytes([len(types)]) + types + bytes([len(metadata)]) + metadata + b"\x06" + extra


def names(*found: bytes) -> bytes:
    packed = b"".join(bytes([len(name)]) + name for name in found)
    return bytes([4, len(packed)]) + packed


def row(number: int, name: bytes | None, age: int | None) -> bytes:
    nulls = (name is None) << 1 | (age is None) << 2
    text = b"" if name is None else bytes([len(name)]) + name
    return (
        bytes([nulls]) + struct.pack("<i", number) + text + (b"" if age is None else struct.pack("<i", age))
    )


def rows_body(*rows: bytes, present: bytes = b"\x07") -> bytes:
    return (9).to_bytes(6, "little") + b"\1\0" + b"\2\0" + b"\3" + present + b"".join(rows)


def codec(of: Table = PEOPLE, **options: bytes) -> TableCodec:
    return TableCodec(of, parse_table_map(map_body(**options)), SOURCE, TopicTail())


def test_the_same_bytes_are_parsed_once() -> None:
    cache = TableMapCache()
    assert cache.get_table_map(map_body()) is cache.get_table_map(map_body())
    assert cache.get_table_map(map_body(table_id=10)).layout == cache.get_table_map(map_body()).layout


def test_names_and_nullability_are_read() -> None:
    found = parse_table_map(map_body(extra=names(b"id", b"name", "é".encode())))
    assert found.parse_metadata(MYSQL_FLAVOUR.table_map).names == ("id", "name", "é")
    assert [column.nullable for column in found.columns] == [False, True, True]
    assert parse_table_map(map_body()).parse_metadata(MYSQL_FLAVOUR.table_map).names == ()


def test_a_bitmap_of_signs_may_be_too_short() -> None:
    short = parse_table_map(map_body(extra=b"\x01\x00"))
    assert short.parse_metadata(MYSQL_FLAVOUR.table_map).unsigned == {}


@pytest.mark.parametrize(
    ("nullable", "indexes", "hidden"),
    [((True,), 1, 1), ((False,), 1, 0), ((True, True), 1, 0), ((True,), 0, 0)],
)
def test_hashes_of_long_unique_texts_are_recognised_by_their_number_and_form(
    nullable: tuple[bool, ...], indexes: int, hidden: int
) -> None:
    """MariaDB adds a nullable BIGINT for each such index, and no catalog shows it. Any other column is a sign
    of another definition."""
    text = Column(name="name", type=ColumnType(kind=Kind.TEXT))
    index = UniqueIndex(name="u", parts=(IndexPart(column="name"),))
    of = replace(table(text), unique=(index,) * indexes)
    shown: list[Any] = [None] * len(of.columns)
    logged: Any = SimpleNamespace(
        columns=[
            *shown,
            *(ColumnMap(type=FIELD_TYPE.LONGLONG, metadata=0, nullable=each) for each in nullable),
        ]
    )
    found: Any = SimpleNamespace(unsigned={}, names=())
    form: Any = SimpleNamespace(hidden_hashes=True)
    assert definition_match._count_hidden_columns(of, logged, found, form) == hidden


@pytest.mark.parametrize("cut", range(8, 28))
def test_a_cut_table_map_is_refused(cut: int) -> None:
    with pytest.raises(UndecodableRow):
        _ = parse_table_map(map_body()[:cut]).columns


@pytest.mark.parametrize("extra", [b"\x03\x05\x2d", b"\x02\x03\x2d\x09\x08", names(b"id", b"name")])
def test_unreadable_metadata_matters_only_to_who_asks_for_it(extra: bytes) -> None:
    """Of a table that nobody captures its names are read, and its rows counted."""
    found = parse_table_map(map_body(extra=extra))
    assert (found.db, found.name) == ("bank", "acct")
    assert count_rows(found, 30, rows_body(row(1, b"lucy", 18))) == 1
    with pytest.raises(UndecodableRow, match=r"bank\.acct: the metadata of its TABLE_MAP"):
        codec(extra=extra)


def test_a_type_from_the_future_matters_only_to_who_asks_for_it() -> None:
    found = parse_table_map(map_body(types=b"\x03\xc8\x03"))
    assert (found.db, found.name) == ("bank", "acct")
    with pytest.raises(UndecodableRow, match="column type 200 is not known"):
        _ = found.columns


def test_rows_with_and_without_nulls() -> None:
    body = rows_body(row(1, b"lucy", 18), row(2, None, None), row(3, b'a"\\\n', None))
    expected = [(None, (1, "lucy", 18)), (None, (2, None, None)), (None, (3, 'a"\\\n', None))]
    assert decode_rows(codec(), 30, body) == expected
    assert count_rows(parse_table_map(map_body()), 30, body) == 3
    assert codec().decode_keys(30, body) == [(1,), (2,), (3,)]
    records = codec().build_records(30, body, transaction(), 0)
    assert [decode_event(value).after for _, value in records] == [
        dict(zip(PEOPLE.column_names, after, strict=True)) for _, after in expected
    ]


@given(
    st.lists(
        st.tuples(
            st.integers(-5, 5),
            st.none() | st.binary(max_size=5).filter(lambda b: b.isascii()),
            st.none() | st.integers(0, 9),
        ),
        max_size=8,
    )
)
def test_patterns_beyond_the_limit_decode_the_same(rows: list[tuple[int, bytes | None, int | None]]) -> None:
    few = codec()
    few._plain = ImageFunctions(RowLayout(few._layout.formats, few._layout.names), limit=0)
    body = rows_body(*(row(*each) for each in rows))
    assert decode_rows(few, 30, body) == decode_rows(codec(), 30, body)


def test_what_is_not_full_or_not_whole_is_refused() -> None:
    with pytest.raises(IncompleteRowImage, match="binlog_row_image"):
        decode_rows(codec(), 30, rows_body(row(1, b"x", 1), present=b"\x03"))
    with pytest.raises(UndecodableRow, match=r"bank\.acct"):
        codec().build_records(30, rows_body(row(1, b"lucy", 18)[:-1]), transaction(), 0)
    with pytest.raises(IncompleteRowImage, match="binlog_row_value_options"):
        decode_rows(codec(), 39, rows_body())


def test_a_refused_event_changes_nothing() -> None:
    tail, tx = TopicTail(), transaction()
    with pytest.raises(UndecodableRow):
        TableCodec(PEOPLE, parse_table_map(map_body()), SOURCE, tail).build_records(
            30, rows_body(b"\0\1"), tx, 0
        )
    assert (tail.last, tx.total_order) == (None, 0)


@pytest.mark.parametrize(
    ("of", "options"),
    [
        (table(Column(name="name", type=TEXT)), {}),
        (table(Column(name="name", type=INT), Column(name="age", type=INT)), {}),
        (PEOPLE, {"types": b"\x03\x0f\x08"}),
        (FLAGS, {"types": b"\x03\x10", "metadata": b"\x06\x00"}),  # BIT(6)
        (FLAGS, {"types": b"\x03\x03", "metadata": b""}),
        (PEOPLE, {"extra": names(b"id", b"name", b"years") + b"\x08\x01\x00"}),
    ],
)
def test_another_definition_is_noticed(of: Table, options: dict[str, bytes]) -> None:
    with pytest.raises(DefinitionMismatch, match=r"bank\.acct"):
        codec(of, **options)


def test_an_unknown_charset_is_refused_by_name() -> None:
    unknown = ColumnType(kind=Kind.VARCHAR, length=11, charset="dec9")
    with pytest.raises(UndecodableRow, match=r"bank\.acct\.name.*dec9"):
        codec(table(Column(name="name", type=unknown), Column(name="age", type=INT)))


def test_latin1_is_cp1252_with_the_holes_filled() -> None:
    decode = find_decoder("latin1")
    assert decode is not None
    assert decode(b"\x80\x81\xe9").encode("latin-1").decode() == "€\x81é"


def test_mariadb_compressed_rows() -> None:
    plain = rows_body(row(1, b"lucy", 18))
    start = 6 + 2 + 2 + 1 + 1
    packed = plain[:start] + b"\x82" + struct.pack(">H", len(plain) - start) + zlib.compress(plain[start:])
    assert unpack_rows_event(169, packed) == (30, plain)
    assert unpack_rows_event(30, plain) == (30, plain)


def test_last_is_patched_behind_the_values() -> None:
    tricky = b'"last":false},"ts_ms":'
    [(_, value)] = codec().build_records(30, rows_body(row(1, tricky, 1)), transaction(), 0)
    before, after = decode_event(value), decode_event(mark_last(value))
    assert before.transaction is not None
    assert after.transaction is not None
    assert (before.transaction.last, after.transaction.last) == (False, True)
    assert after.after == before.after == {"id": 1, "name": tricky.decode(), "age": 1}


def test_all_events_of_a_topic_are_one_chain() -> None:
    tail, tx = TopicTail(), transaction()
    people = TableCodec(PEOPLE, parse_table_map(map_body()), SOURCE, tail)
    chunk = Chunk(number=1, after=None, upto=None, first_row=FIRST_SNAPSHOT_ROW, rows=1, last=True)
    records = [
        encode_definition(PEOPLE, SOURCE, tail, tx, row=DEFINITION_ROW),
        *encode_snapshot(PEOPLE, SOURCE, tail, tx, rows=[(1, "é", None)], first_row=FIRST_SNAPSHOT_ROW),
        encode_chunk(PEOPLE, SOURCE, tail, tx, row=FIRST_SNAPSHOT_ROW + 1, chunk=chunk),
        *people.build_records(30, rows_body(row(2, b"bob", 3), row(3, b"eve", 4)), tx, 0),
        encode_truncate(PEOPLE, SOURCE, tail, tx, row=2, ddl="TRUNCATE acct"),
    ]
    events = [decode_event(value) for _, value in records]
    assert [event.op for event in events] == ["m", "r", "m", "c", "c", "t"]
    assert [event.source.prev for event in events] == [
        None,
        *(event.source.position for event in events[:-1]),
    ]
    assert [event.source.position for event in events] == sorted(event.source.position for event in events)
    assert [e.transaction.total_order for e in events if e.transaction] == [1, 2, 3, 4, 5, 6]
    assert events[1].after == {"id": 1, "name": "é", "age": None}
    assert (events[0].definition, events[2].chunk) == (PEOPLE, chunk)


GOLDEN_KEY = (
    (Path(codec_module.__file__).parent.parent / "golden" / "v1" / "key.json")
    .read_bytes()
    .removesuffix(b"\n")
)


def keys_of(of: Table, logged: bytes, images: bytes, row: Row) -> set[bytes]:
    """The Kafka keys of a row as the log has it, and as a snapshot reads it."""
    nothing_is_null = logged[:-1] + b"\0"
    by_log = TableCodec(of, parse_table_map(nothing_is_null), SOURCE, TopicTail())
    body = (9).to_bytes(6, "little") + b"\1\0" + b"\2\0" + bytes([len(row), 2 ** len(row) - 1]) + images
    found = by_log.build_records(30, body, transaction(), 0)
    found += encode_snapshot(of, SOURCE, TopicTail(), transaction(), rows=[row], first_row=FIRST_SNAPSHOT_ROW)
    return {key for key, _ in found}


def test_keys_are_the_golden_one() -> None:
    big = Column(name="id", type=ColumnType(kind=Kind.INT, bits=64, unsigned=True), nullable=False)
    logged = map_body(types=b"\x08", metadata=b"")
    found = keys_of(
        Table(db="bank", name="acct", columns=(big,), key=KEY), logged, b"\0" + b"\xff" * 8, (str(2**64 - 1),)
    )
    assert found == {GOLDEN_KEY}


def test_a_key_has_the_order_of_its_columns_not_of_the_table() -> None:
    columns = (Column(name="a", type=TEXT, nullable=False), Column(name="b", type=INT, nullable=False))
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="b"), IndexPart(column="a")))
    logged = map_body(types=b"\x0f\x03", metadata=b"\x2c\x00")
    images = b"\0" + b"\2\xc3\xbc" + struct.pack("<i", 1)
    found = keys_of(Table(db="bank", name="acct", columns=columns, key=key), logged, images, ("ü", 1))
    assert found == {'{"b":1,"a":"ü"}'.encode()}


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@given(st.lists(st.integers(1, 40)), st.lists(st.integers(1, 40)))
def test_gtid_sets_are_sets(first: list[int], second: list[int]) -> None:
    a, b = GtidSet(), GtidSet()
    for number in first:
        a.add(f"{UUID}:{number}")
    for number in second:
        b.add(f"{UUID.upper()}:{number}")
    assert a.covers(b) == (set(first) >= set(second))
    assert [number for number in range(1, 42) if f"{UUID}:{number}" in a] == sorted(set(first))
    assert GtidSet.parse(str(a)) == a
    assert a.copy() == a


def test_tagged_gtids_are_another_source() -> None:
    found = GtidSet.parse(f"{UUID}:1-3:7:blue:2,\n{UUID[:-1]}9:5")
    assert f"{UUID}:7" in found
    assert f"{UUID}:blue:2" in found
    assert f"{UUID}:2" in found
    assert f"{UUID}:blue:3" not in found
