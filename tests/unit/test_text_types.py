"""UUID, INET4 and INET6 of MariaDB: their texts, their bytes in the log, and what columns take them."""

from __future__ import annotations

import uuid
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.ordering.fold import make_key_fold
from consumer.tables.evolution.widening import is_lossless, join_types
from consumer.tables.key_order import are_ranges_alike
from consumer.targets.checks.column_fit import accepts_kind, can_hold_all_values
from schemas.io.mysql_columns import CatalogColumn, build_column
from schemas.io.uuid_order import COMPARES_AS_STORED
from schemas.table.fills import find_fill
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, TextOf, UniqueIndex
from schemas.table.oracle_ddl import render_oracle_type
from schemas.table.text_types import format_inet4, format_inet6, format_uuid, get_zero_text, normalize_text
from schemas.table.typemap import (
    MYSQL_CATALOG,
    convert_postgres_type,
    render_mysql_type,
    render_postgres_type,
)
from schemas.values.postgres import make_postgres_row_converter
from schemas.wire.debezium_values import make_debezium_converter
from schemas.wire.event import choose_event_version
from tests.kits.catalog_forms import MARIADB

UUID, INET4, INET6 = (ColumnType(**MYSQL_CATALOG[name]) for name in ("uuid", "inet4", "inet6"))
NATIVE = frozenset({TextOf.UUID, TextOf.INET4, TextOf.INET6})
TEXT36 = ColumnType(kind=Kind.CHAR, length=36, charset="utf8mb4", collation="utf8mb4_bin")

#: Spelled by MariaDB 11.4.5, and the bytes of CAST(… AS BINARY(16)).
SPELLED = {
    "::": "0" * 32,
    "::1": "0" * 31 + "1",
    "1::": "0001" + "0" * 28,
    "1:2:3:4:5:6:7::": "00010002000300040005000600070000",
    "1:2::4:5:6:7:8": "00010002000000040005000600070008",
    "::2:3:4:5:6:7:8": "00000002000300040005000600070008",
    "::ffff:1.2.3.4": "00000000000000000000FFFF01020304",
    "::ffff:0.0.0.0": "00000000000000000000FFFF00000000",
    "::1.2.3.4": "00000000000000000000000001020304",
    "::100": "00000000000000000000000000000100",
    "::0.1.0.0": "00000000000000000000000000010000",
    "::ffff:0:102:304": "0000000000000000FFFF000001020304",
    "::1:2:3": "00000000000000000000000100020003",
    "::2:0:0": "00000000000000000000000200000000",
    "64:ff9b::102:304": "0064FF9B000000000000000001020304",
    "2001:db8::ff00:42:8329": "20010DB8000000000000FF0000428329",
    "1:0:0:2::3": "00010000000000020000000000000003",
    "1::2:0:0:3:4": "00010000000000020000000000030004",
    ":".join(["ffff"] * 8): "F" * 32,
}


@pytest.mark.parametrize("text", SPELLED)
def test_inet6_is_spelled_as_mariadb_does(text: str) -> None:
    assert format_inet6(bytes.fromhex(SPELLED[text])) == text
    assert normalize_text(TextOf.INET6, text) == text


@given(st.binary(min_size=16, max_size=16) | st.lists(st.sampled_from([b"\0\0", b"\0\1", b"\xff\xff"]),
       min_size=8, max_size=8).map(b"".join))  # fmt: skip
def test_inet6_text_is_the_same_address(data: bytes) -> None:
    text = format_inet6(data)
    assert IPv6Address(text).packed == data
    assert len(text) <= INET6.length


@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_has_the_order_of_its_bytes(data: bytes) -> None:
    text = format_uuid(data)
    assert text == str(uuid.UUID(bytes=data))
    assert normalize_text(TextOf.UUID, text.replace("-", "").upper()) == text


def test_inet4_text_has_every_byte() -> None:
    assert format_inet4(bytes([10, 0, 255, 0])) == "10.0.255.0"
    with pytest.raises(ValueError, match="no UUID"):
        normalize_text(TextOf.UUID, "00112233")


@pytest.mark.parametrize(
    ("type_", "native", "text", "postgres", "oracle"),
    [
        (UUID, "uuid", "char(36)", "uuid", "VARCHAR2(36 CHAR)"),
        (INET4, "inet4", "varchar(15)", "inet", "VARCHAR2(15 CHAR)"),
        (INET6, "inet6", "varchar(39)", "inet", "VARCHAR2(39 CHAR)"),
    ],
)
def test_targets_have_the_type_or_an_exact_text(
    type_: ColumnType, native: str, text: str, postgres: str, oracle: str
) -> None:
    assert render_mysql_type(type_, native=NATIVE) == native
    assert render_mysql_type(type_) == f"{text} CHARACTER SET ascii COLLATE ascii_bin"
    assert render_postgres_type(type_) == postgres
    assert render_oracle_type(type_) == oracle


def test_columns_that_spell_texts_anew_take_only_their_own_type() -> None:
    inet = convert_postgres_type("inet")
    assert can_hold_all_values(UUID, UUID)
    assert can_hold_all_values(UUID, TEXT36)
    assert can_hold_all_values(UUID, convert_postgres_type("uuid"))
    assert can_hold_all_values(INET4, inet)
    assert can_hold_all_values(INET6, inet)
    assert not accepts_kind(TEXT36, UUID)
    assert not accepts_kind(TEXT36, inet)
    assert not accepts_kind(INET4, INET6)


def test_postgres_addresses_become_no_text_without_a_copy() -> None:
    """PostgreSQL's text of one has a netmask, or another spelling."""
    inet, wide = convert_postgres_type("inet"), ColumnType(kind=Kind.VARCHAR, length=100)
    assert render_postgres_type(inet) == "inet"
    assert not can_hold_all_values(inet, wide)
    assert join_types(inet, wide) is None
    assert join_types(inet, INET6) == join_types(INET4, inet) == inet


def test_changes_between_text_and_type_are_copied() -> None:
    plain = ColumnType(kind=Kind.VARCHAR, length=39, charset="ascii", collation="ascii_bin")
    assert is_lossless(UUID, UUID)
    assert not is_lossless(TEXT36, UUID)
    assert not is_lossless(INET4, plain)
    assert not is_lossless(INET4, INET6)


def _table(type_: ColumnType) -> Table:
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    return Table(db="d", name="t", columns=(Column(name="id", type=type_, nullable=False),), key=key)


@pytest.mark.parametrize("type_", [UUID, INET4, INET6])
def test_ranges_of_such_keys_are_never_compared(type_: ColumnType) -> None:
    """Their order in the source's index is not that of the text."""
    assert not are_ranges_alike(_table(type_), _table(type_))


def test_folds_distinguish_values() -> None:
    fold = make_key_fold(_table(UUID))
    assert fold((str(uuid.UUID(int=1)),)) != fold((str(uuid.UUID(int=2)),))


def test_postgres_addresses_are_read_in_the_source_spelling() -> None:
    def read(type_: ColumnType, text: str) -> object:
        return make_postgres_row_converter(_table(type_))((text,))[0]

    assert read(INET4, "10.0.0.0/32") == "10.0.0.0"
    assert read(INET6, "1:2:3:4:5:6:7:0/128") == "1:2:3:4:5:6:7::"
    assert read(INET4, "10.0.0.0/8") == "10.0.0.0/8"
    assert read(INET4, "::1/128") == "::1/128"


def _shown(type_: str, nullable: str, default: str | None) -> Column:
    row = CatalogColumn(
        "c", default, nullable, type_, type_, None, None, None, None, None, None, None, "", None
    )
    return build_column(row, MARIADB)


def test_existing_rows_get_the_default_in_its_spelling() -> None:
    given_ = _shown("uuid", "YES", "'00112233445546778899AABBCCDDEEFF'")
    fill = find_fill(given_)
    assert fill is not None
    assert fill.value == "00112233-4455-4677-8899-aabbccddeeff"
    for name, zero in (("uuid", str(uuid.UUID(int=0))), ("inet4", "0.0.0.0"), ("inet6", "::")):
        fill = find_fill(_shown(name, "NO", None))
        assert fill is not None
        assert fill.value == zero == get_zero_text(TextOf(name))
    assert find_fill(_shown("uuid", "NO", "uuid()")) is None
    assert find_fill(_shown("inet6", "YES", "'1.2.3.4'")) is None, "only the server knows this spelling"


def test_readers_of_earlier_versions_refuse_a_definition_with_such_a_type() -> None:
    """They would fill an added column with an empty text, and keep the spelling of what became a UUID."""
    assert choose_event_version("m", _table(UUID)) == "3.0"
    assert choose_event_version("m", _table(TEXT36)) == "1.0"
    assert choose_event_version("u", None) == "1.0"


def test_debezium_values_must_have_the_source_spelling() -> None:
    convert = make_debezium_converter(UUID, decimal_strings=False)
    assert convert(str(uuid.UUID(int=10))) == str(uuid.UUID(int=10))
    for other in (str(uuid.UUID(int=10)).upper(), "ABEiM0RVRneImaq7zN3u/w==", 5):
        with pytest.raises((ValueError, TypeError)):
            convert(other)


def test_the_probe_compares_one_reversed_uuid_with_one_that_is_not() -> None:
    first, second = (uuid.UUID(part.split("'")[0]) for part in COMPARES_AS_STORED.split("CAST('")[1:])
    assert (first.version, second.version) == (4, 7)
    assert first.bytes > second.bytes, "a server that compares texts answers 0"
    assert first.bytes[10:] < second.bytes[:6], "reversed beside as it is"
    assert first.bytes[10:] < second.bytes[10:], "both reversed"
