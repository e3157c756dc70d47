"""VECTOR of MySQL and MariaDB: its text, its bytes, its columns in targets, and where it is refused."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.tables.evolution.widening import is_lossless, join_types
from consumer.targets.checks.column_fit import accepts_kind, can_hold_all_values
from consumer.targets.shared.column_values import get_implicit_value
from producer.binlog_format import types as log_types
from producer.binlog_format.row_events import ColumnMap
from producer.decoders.columns import build_column_format
from producer.decoders.fragments import VariableFormat
from producer.decoders.row_codec import DefinitionMismatch
from producer.snapshot.text import build_select_expressions, make_snapshot_row_decoder
from schemas.errors import UnsupportedTypeError
from schemas.io.mysql_catalog import has_vectors
from schemas.io.mysql_columns import CatalogColumn, build_column
from schemas.table.fills import find_fill
from schemas.table.keys import require_comparable_keys
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, TextOf, UniqueIndex
from schemas.table.oracle_ddl import render_oracle_type
from schemas.table.text_types import format_vector, normalize_text, parse_vector
from schemas.table.typemap import convert_postgres_type, render_mysql_type, render_postgres_type
from schemas.values.mysql import make_select_row_converter, to_mysql
from schemas.values.postgres import copy_line, make_postgres_row_converter, to_postgres, to_postgres_columns
from schemas.wire.debezium_values import make_debezium_converter
from schemas.wire.event import choose_event_version
from tests.kits.catalog_forms import MARIADB

NATIVE = frozenset({TextOf.VECTOR})
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def shown(declared: str = "vector(3)", nullable: str = "YES", default: str | None = None) -> Column:
    """Return a column as a catalog shows it."""
    row = CatalogColumn(
        "v", default, nullable, "vector", declared, 12, 12, None, None, None, None, None, "", None
    )
    return build_column(row, MARIADB)


VECTOR = shown().type
LONG_TEXT = ColumnType(kind=Kind.TEXT, length=2**32 - 1, charset="utf8mb4", collation="utf8mb4_bin")


def table(key: str = "id") -> Table:
    first = Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False)
    index = UniqueIndex(name="PRIMARY", parts=(IndexPart(column=key),))
    return Table(db="d", name="t", columns=(first, Column(name="v", type=VECTOR)), key=index)


@given(st.lists(FLOATS, max_size=9))
def test_the_text_has_each_number_exactly(numbers: list[float]) -> None:
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    text = format_vector(data)
    assert list(map(repr, map(float, json.loads(text)))) == list(map(repr, numbers))
    assert parse_vector(text) == data
    assert text == normalize_text(TextOf.VECTOR, text.replace(",", " , "))


def test_a_text_is_what_float_is_in_other_events() -> None:
    assert format_vector(struct.pack("<3f", 0.1, -0.0, 2)) == "[0.10000000149011612,-0.0,2.0]"


@pytest.mark.parametrize(
    "data", [b"\0", b"\0\0\x80\x3f\0", struct.pack("<f", math.inf), struct.pack("<f", math.nan)]
)
def test_bytes_that_are_no_vector_are_raw(data: bytes) -> None:
    with pytest.raises(ValueError, match="vector"):
        format_vector(data)
    marked = make_snapshot_row_decoder(table())((1, data))[1]
    assert isinstance(marked, dict)
    assert [*marked] == ["undecodable"]


@pytest.mark.parametrize("text", ["", "1", "[1", '["a"]', "[null]", "[NaN]", "[1e39]", "{1}"])
def test_a_text_that_is_no_vector_has_no_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="no vector"):
        parse_vector(text)


def test_the_catalog_shows_how_many_numbers_it_has() -> None:
    assert (VECTOR.precision, VECTOR.text_of) == (3, TextOf.VECTOR)
    assert shown("VECTOR(16383)").type.precision == 16383


def test_targets_have_a_vector_or_an_array() -> None:
    assert render_mysql_type(VECTOR, native=NATIVE) == "vector(3)"
    assert render_postgres_type(VECTOR) == "real[]"
    assert render_postgres_type(VECTOR, NATIVE) == "vector(3)"
    assert render_postgres_type(shown("vector(16001)").type, NATIVE) == "real[]", "pgvector's limit"
    assert render_postgres_type(convert_postgres_type("vector"), NATIVE) == "vector"
    for refused in (lambda: render_mysql_type(VECTOR), lambda: render_oracle_type(VECTOR)):
        with pytest.raises(UnsupportedTypeError, match="leave the column out"):
            refused()
    for version, has in {
        "8.4.3": False, "9.0.0": True, "9.7.4-2": True, "10.11.6-MariaDB": False, "11.4.5-MariaDB-log": False,
        "11.7.2-MariaDB": True, "12.0.1-MariaDB": True,
    }.items():  # fmt: skip
        assert has_vectors(version) is has, version


def test_only_vectors_with_room_take_a_vector() -> None:
    array = convert_postgres_type("real[]")
    assert can_hold_all_values(VECTOR, array)
    assert can_hold_all_values(VECTOR, convert_postgres_type("vector(3)"))
    assert can_hold_all_values(VECTOR, convert_postgres_type("vector"))
    assert not can_hold_all_values(VECTOR, convert_postgres_type("vector(2)"))
    assert not accepts_kind(LONG_TEXT, convert_postgres_type("vector(3)"))
    assert can_hold_all_values(VECTOR, shown("vector(4)").type)
    assert not can_hold_all_values(VECTOR, shown("vector(2)").type)
    for source, real in (
        (VECTOR, LONG_TEXT),
        (LONG_TEXT, VECTOR),
        (LONG_TEXT, array),
        (VECTOR, ColumnType(kind=Kind.TEXT)),
    ):
        assert not accepts_kind(source, real)
    assert join_types(VECTOR, shown("vector(4)").type) == shown("vector(4)").type


def test_a_vector_of_another_size_is_copied() -> None:
    """MariaDB adds zeros to existing values, without an event."""
    assert is_lossless(VECTOR, VECTOR)
    assert not is_lossless(VECTOR, shown("vector(4)").type)
    assert not is_lossless(VECTOR, LONG_TEXT)


def test_existing_rows_of_a_new_column_are_read_from_the_source() -> None:
    """MySQL puts an empty vector there, MariaDB one of zeros."""
    assert find_fill(shown(nullable="NO")) is None
    assert find_fill(shown(default="VEC_FromText('[1,2,3]')")) is None
    assert find_fill(shown(default="x'0000803f'")) is None
    fill = find_fill(shown())
    assert fill is not None
    assert fill.value is None
    assert get_implicit_value(VECTOR) is None


def test_keys_of_vectors_are_refused() -> None:
    require_comparable_keys(table())
    with pytest.raises(UnsupportedTypeError, match=r"column v of d\.t .* is a VECTOR"):
        require_comparable_keys(table("v"))


def test_values_of_mysql_are_bytes() -> None:
    data = struct.pack("<2f", 1, 0.5)
    assert build_select_expressions(table())[1] == "CAST(`v` AS BINARY)"
    assert to_mysql(table())((1, "[1.0,0.5]")) == (1, data)
    assert to_mysql(table())((1, None)) == (1, None)
    assert make_select_row_converter(table())((1, data)) == (1, "[1.0,0.5]")
    assert make_snapshot_row_decoder(table())((1, data)) == (1, "[1.0,0.5]")


def test_values_of_postgres_are_arrays() -> None:
    assert to_postgres(table())((1, "[1.0,0.5]")) == ("1", "{1.0,0.5}")
    assert to_postgres_columns(table(), ("v",))(("[]",)) == ("{}",)
    assert copy_line(table())((1, "[1.0,-3e-05]")) == "1\t{1.0,-3e-05}\n"
    assert copy_line(table())((1, None)) == "1\t\\N\n"
    read = make_postgres_row_converter(table())
    assert read((1, "{1,0.1,-3e-05}")) == (1, "[1.0,0.10000000149011612,-2.9999999242136255e-05]")
    assert [read((1, text))[1] for text in ("{}", "{NULL}", "{NaN}", "{{1}}")] == [
        "[]",
        "{NULL}",
        "{NaN}",
        "{{1}}",
    ]


def decode(logged: ColumnMap, data: bytes) -> Any:
    form = build_column_format(0, logged, VECTOR)
    assert isinstance(form, VariableFormat)
    scope: dict[str, Any] = {**form.names, "data": data}
    exec("\n".join(form.render("0", str(len(data)), "out")), scope)
    return json.loads(scope["out"])


def test_both_forms_of_the_log_are_read() -> None:
    data = struct.pack("<3f", 1, 2, 3)
    mysql = ColumnMap(type=log_types.VECTOR, metadata=4, nullable=True)
    mariadb = ColumnMap(type=log_types.VARCHAR, metadata=12, nullable=True)
    assert decode(mysql, data) == decode(mariadb, data) == "[1.0,2.0,3.0]"
    for other in (
        ColumnMap(type=log_types.VARCHAR, metadata=16, nullable=True),
        ColumnMap(type=log_types.BLOB, metadata=2, nullable=True),
    ):
        with pytest.raises(DefinitionMismatch):
            build_column_format(0, other, VECTOR)


def test_earlier_readers_refuse_a_definition_with_a_vector() -> None:
    assert choose_event_version("m", table()) == "3.0"


def test_debezium_has_an_array_of_numbers() -> None:
    convert = make_debezium_converter(VECTOR, decimal_strings=False)
    assert convert([0.1, 2]) == "[0.10000000149011612,2.0]"
    for other in ("[0.1]", 5, ["a"], [1e39], [math.nan]):
        with pytest.raises((ValueError, TypeError, OverflowError, struct.error)):
            convert(other)
