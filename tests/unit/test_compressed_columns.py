"""Values of MariaDB's COMPRESSED columns in the log: unpacked, raw as the table has them, and damaged."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from producer.binlog_format.errors import UndecodableRow
from producer.decoders.compressed import unpack_value
from producer.decoders.row_codec import TableCodec, TopicTail, count_rows, parse_table_map
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR, is_stored_unusually
from schemas.io.mysql_columns import CatalogColumn
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.codec import decode_event
from schemas.wire.event import EventEnvelope
from tests.kits.decoder_support import SOURCE, transaction

#: Logged by MariaDB 11.4.5: (the value in the log, what SELECT shows).
LOGGED = [
    ("", b""),
    ("00c3a9", "é".encode()),
    ("8a1770edc2310d00000002a0acda3f84217c19a40100000000004e03", b"ab" * 3000),
    ("8a012caba81805c40200", b"x" * 300),
    ("82012c789caba81805c40200b20a8ca1", b"x" * 300),
]


@pytest.mark.parametrize(("logged", "value"), LOGGED)
def test_values_are_those_that_mariadb_shows(logged: str, value: bytes) -> None:
    assert unpack_value(bytes.fromhex(logged)) == value


def pack(value: bytes, *, raw: bool = True) -> bytes:
    """Pack a value as MariaDB does."""
    size = (len(value).bit_length() + 7) // 8
    packer = zlib.compressobj(wbits=-15 if raw else 15)
    data = packer.compress(value) + packer.flush()
    return bytes([0x80 | (8 if raw else 0) | size]) + len(value).to_bytes(size, "big") + data


@given(st.binary(min_size=1, max_size=300), st.booleans())
def test_what_is_packed_is_unpacked(value: bytes, raw: bool) -> None:
    assert unpack_value(pack(value, raw=raw)) == value
    assert unpack_value(b"\0" + value) == value


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x10abc",  # another method
        pack(b"x" * 300)[:-1],
        pack(b"x" * 300)[:3],
        b"\x8a\x00\x05" + pack(b"x" * 300)[3:],  # longer than it states
        b"\x8a\x7f\xff" + pack(b"x" * 300)[3:],
        b"\x82\x01\x2c" + pack(b"x" * 300)[3:],  # without zlib's header
    ],
)
def test_damaged_values_are_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="COMPRESSED"):
        unpack_value(damaged)


INT = ColumnType(kind=Kind.INT, bits=32)
COLUMNS = (
    Column(name="id", type=INT, nullable=False),
    Column(name="v", type=ColumnType(kind=Kind.VARCHAR, length=20, charset="utf8mb4")),
    Column(name="t", type=ColumnType(kind=Kind.TEXT, length=65535, charset="gbk")),
    Column(name="b", type=ColumnType(kind=Kind.BLOB, length=65535)),
    Column(name="j", type=ColumnType(kind=Kind.JSON)),
)
TABLE = Table(
    db="d", name="t", columns=COLUMNS, key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
)
_HEAD = (9).to_bytes(6, "little") + b"\1\0"
LAYOUT = parse_table_map(
    _HEAD + b"\1d\0\1t\0" + b"\5\x03\x8d\x8c\x8c\x8c" + b"\5\x51\x00\x02\x02\x04" + b"\x1e"
)


def body(*values: bytes) -> bytes:
    sizes = (1, 2, 2, 4)
    image = b"".join(
        len(each).to_bytes(size, "little") + each for size, each in zip(sizes, values, strict=True)
    )
    return _HEAD + b"\2\0" + b"\5" + b"\x1f" + b"\0" + (1).to_bytes(4, "little") + image


def read(*values: bytes) -> EventEnvelope:
    codec = TableCodec(TABLE, LAYOUT, replace(SOURCE, form=MARIADB_FLAVOUR.table_map), TopicTail())
    whole = body(*values)
    assert count_rows(LAYOUT, 30, whole) == 1
    [(_, value)] = codec.build_records(30, whole, transaction(), 0)
    return decode_event(value)


def test_every_kind_of_column_is_unpacked() -> None:
    found = read(pack("é".encode()), b"\0" + "王".encode("gbk"), pack(b"\1\2"), b"\0{}")
    assert found.after == {"id": 1, "v": "é", "t": "王", "b": base64.b64encode(b"\1\2").decode(), "j": "{}"}
    assert found.undecodable is None


def test_a_value_that_is_no_text_is_raw_as_the_table_has_it() -> None:
    found = read(pack(b"a\xff"), b"", b"", b"")
    assert found.after is not None
    assert found.after["v"] == {"undecodable": base64.b64encode(b"a\xff").decode()}


def test_a_damaged_value_stops_the_table() -> None:
    with pytest.raises(UndecodableRow, match=r"d\.t cannot be decoded.*method 1"):
        read(b"\x10a", b"", b"", b"")


def test_compressed_columns_are_captured_and_old_times_are_not() -> None:
    def shown(declared: str, fsp: int | None = None) -> CatalogColumn:
        kind = declared.partition("(")[0].partition(" ")[0]
        return CatalogColumn("c", None, "YES", kind, declared, 20, 80, None, None, fsp, None, None, "", None)

    assert not is_stored_unusually(shown("varchar(20) /*M!100301 COMPRESSED*/"))
    assert not is_stored_unusually(shown("longblob /*M!100301 COMPRESSED*/"))
    assert is_stored_unusually(shown("time(3) /* mariadb-5.3 */", 3))
