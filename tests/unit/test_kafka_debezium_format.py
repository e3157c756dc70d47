"""Debezium's envelope, as a Kafka target writes it: whole texts, every type's bounds, and what rowlock's own
reader of Debezium makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import structs

from consumer.errors import RefusedError, TargetConfigError
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.formats.debezium import Debezium, DebeziumWithSchemas
from consumer.targets.kafka.formats.debezium_columns import build_debezium_form
from consumer.targets.kafka.formats.model import FormattedRecord, RecordFormat
from schemas.errors import EnvelopeError
from schemas.table.equality import are_wire_equal
from schemas.table.model import ColumnType, Kind, Row, Value
from schemas.wire.debezium import ConnectorModes, DebeziumDecoder
from tests.kits.kafka_formats import ACCOUNTS, EVERYTHING, LUCY, ORIGIN, PLACE, READ, one, routed
from tests.kits.schemas_strategies import TABLE, bound_rows, rows

PLAIN, WITH_SCHEMAS = Debezium(EVERYTHING), DebeziumWithSchemas(EVERYTHING)
BOTH = pytest.mark.parametrize("form", [PLAIN, WITH_SCHEMAS], ids=["debezium", "debezium-schemas"])
KEY = b'{"branch":"b1","id":1}'


def test_an_insert_is_this_text() -> None:
    (record,) = Debezium(routed()).build_change_records(None, LUCY, PLACE)
    assert record.key == KEY
    assert (record.value or b"").decode() == (
        '{"before":null,"after":{"id":1,"naïve":"lucy","sum":"BBo=","branch":"b1"},"source":{"version":"3.0.0.rowlock","connector":"mysql",'
        '"name":"branch1","ts_ms":1790000000123,"snapshot":"false","db":"bank","sequence":null,"ts_us":1790000000123000,'
        '"ts_ns":1790000000123000000,"table":"acct","server_id":0,"gtid":null,"file":"binlog.000003","pos":4711,"row":2,"thread":null,'
        '"query":null},"transaction":null,"op":"c","ts_ms":1790000000123,"ts_us":1790000000123000,"ts_ns":1790000000123000000}'
    )


def test_the_schemas_are_these() -> None:
    (record,) = DebeziumWithSchemas(routed()).build_change_records(LUCY, LUCY, PLACE)
    key, value = json.loads(record.key or b""), json.loads(record.value or b"")
    text = {"type": "string", "optional": False}
    fields = [
        {"type": "int64", "optional": False, "field": "id"},
        {**text, "default": "none", "field": "naïve"},
        {
            "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "10"}, "field": "sum",
        },
        {**text, "field": "branch"},
    ]  # fmt: skip
    assert key == {
        "schema": {"type": "struct", "fields": [fields[3], fields[0]], "optional": False,
         "name": "head.acct.Key"},
        "payload": {"branch": "b1", "id": 1},
    }  # fmt: skip
    schema = value["schema"]
    assert {name: schema[name] for name in schema if name != "fields"} == {
        "type": "struct", "optional": False, "name": "head.acct.Envelope", "version": 2,
    }  # fmt: skip
    assert [field["field"] for field in schema["fields"]] == list(value["payload"])
    for at, name in enumerate(("before", "after")):
        assert schema["fields"][at] == {
            "type": "struct", "fields": fields, "optional": True, "name": "head.acct.Value", "field": name,
        }  # fmt: skip
    source = schema["fields"][2]
    assert [field["field"] for field in source["fields"]] == list(value["payload"]["source"])
    assert (source["name"], source["version"]) == ("io.debezium.connector.mysql.Source", 1)
    assert schema["fields"][3]["name"] == "event.block"


def ops(records: list[FormattedRecord]) -> list[tuple[bytes | None, str | None]]:
    return [(each.key, None if each.value is None else json.loads(each.value)["op"]) for each in records]


def test_the_ops() -> None:
    form, moved = Debezium(routed()), ("1", *LUCY[1:])
    key = b'{"branch":"b1","id":2}'
    assert ops(form.build_change_records(None, LUCY, READ)) == [(KEY, "r")]
    assert ops(form.build_change_records(LUCY, (1, "", None, "b1"), PLACE)) == [(KEY, "u")]
    assert ops(form.build_change_records(LUCY, None, PLACE)) == [(KEY, "d"), (KEY, None)]
    assert ops(form.build_change_records(LUCY, (2, *LUCY[1:]), PLACE)) == [
        (KEY, "d"),
        (KEY, None),
        (key, "c"),
    ]
    assert ops(form.build_change_records(LUCY, moved, PLACE)) == [(KEY, "u")], (
        "the same number is the same bytes"
    )
    assert ops(form.build_clear_records({"branch": "b1"}, PLACE)) == [(None, "t")]
    assert form.build_definition_records(ACCOUNTS, PLACE) == []
    assert ops(Debezium(routed(tombstones=False)).build_change_records(LUCY, None, PLACE)) == [(KEY, "d")]


def test_a_key_that_a_source_holds_equal_moves_by_its_bytes() -> None:
    missing, tombstone, new = Debezium(routed()).build_change_records(LUCY, (1, "lucy", "10.50", "B1"), PLACE)
    assert (missing.key, tombstone, new.key) == (KEY, FormattedRecord(KEY, None), b'{"branch":"B1","id":1}')
    assert missing.headers == (("__debezium.newkey", new.key),)
    assert new.headers == (("__debezium.oldkey", KEY),)
    assert json.loads(missing.value or b"")["before"]["branch"] == "b1"


def test_a_snapshots_rows_say_so() -> None:
    (record,) = Debezium(routed()).build_change_records(None, LUCY, READ)
    source = json.loads(record.value or b"")["source"]
    assert (source["snapshot"], source["row"], source["pos"]) == ("true", 0, 4711)


def assert_same(found: dict[str, Any], row: Row) -> None:
    assert tuple(found) == TABLE.column_names
    for column, value in zip(TABLE.columns, row, strict=True):
        assert are_wire_equal(column.type.kind, found[column.name], value), column.name


def assert_carried(form: RecordFormat, row: Row) -> None:
    """By the format's own reading, and by the reader of topics that Debezium writes."""
    (record,) = form.build_change_records(row, row, PLACE)
    state = form.decode_state(record.key, record.value)
    assert state is not None
    assert state.values is not None
    assert (state.key, state.origin) == (record.key, (ORIGIN.source, ORIGIN.db, ORIGIN.table))
    assert_same(state.values, row)
    event = DebeziumDecoder(TABLE, ConnectorModes(binaries="bytes", times=True))(record.value or b"")
    assert event.op == "u"
    assert event.source.position == (0, 3, 4711, 4)
    assert event.after == event.before
    assert_same(dict(zip(TABLE.column_names, event.after or (), strict=True)), row)


@BOTH
@pytest.mark.parametrize("row", bound_rows(TABLE), ids=str)
def test_the_bounds_of_every_type_come_back(form: RecordFormat, row: Row) -> None:
    assert_carried(form, row)


@settings(max_examples=60, deadline=None)
@given(row=rows(TABLE))
def test_any_row_comes_back(row: Row) -> None:
    assert_carried(PLAIN, row)
    assert_carried(WITH_SCHEMAS, row)


#: type, wire value, what Debezium writes
WRITTEN: list[tuple[ColumnType, Value, Any]] = [
    (ColumnType(kind=Kind.INT, bits=64, unsigned=True), "18446744073709551615", -1),
    (ColumnType(kind=Kind.INT, bits=64, unsigned=True), "9223372036854775808", -(2**63)),
    (ColumnType(kind=Kind.INT, bits=64, unsigned=True), "9223372036854775807", 2**63 - 1),
    (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "-1.28", "gA=="),
    (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "1.28", "AIA="),
    (ColumnType(kind=Kind.DECIMAL, precision=5), "-129", "/38="),
    (ColumnType(kind=Kind.DECIMAL), "-0.125", {"scale": 3, "value": "gw=="}),
    (ColumnType(kind=Kind.DECIMAL), "12", {"scale": 0, "value": "DA=="}),
    (ColumnType(kind=Kind.FLOAT), 0.10000000149011612, 0.1),
    (ColumnType(kind=Kind.FLOAT), "NaN", "NaN"),
    (ColumnType(kind=Kind.DOUBLE), "-Infinity", "-Infinity"),
    (ColumnType(kind=Kind.BIT, length=1), 1, True),
    (ColumnType(kind=Kind.BIT, length=9), 258, "AgE="),
    (ColumnType(kind=Kind.DATE), "1969-12-31", -1),
    (ColumnType(kind=Kind.DATE), "0001-01-01", -719162),
    (ColumnType(kind=Kind.TIME, fsp=1), "-838:59:58.5", -3020398500000),
    (ColumnType(kind=Kind.DATETIME, fsp=3), "1969-12-31 23:59:59.999", -1),
    (ColumnType(kind=Kind.DATETIME, fsp=4), "1970-01-01 00:00:00.0001", 100),
    (ColumnType(kind=Kind.TIMESTAMP, fsp=2), "2026-01-02T03:04:05.60Z", "2026-01-02T03:04:05.60Z"),
    (ColumnType(kind=Kind.GEOMETRY), {"wkb": "AQ==", "srid": 4326}, {"wkb": "AQ==", "srid": 4326}),
]


@pytest.mark.parametrize(("type_", "wire", "written"), WRITTEN, ids=str)
def test_what_is_written_for_a_value(type_: ColumnType, wire: Value, written: object) -> None:
    form = Debezium(one(type_))
    (record,) = form.build_change_records(None, (1, wire), PLACE)
    value = json.loads(record.value or b"")["after"]["v"]
    assert (value, type(value)) == (written, type(written))
    state = form.decode_state(record.key, record.value)
    assert state is not None
    assert state.values == {"id": 1, "v": wire}


@pytest.mark.parametrize(
    ("type_", "wire"),
    [
        (ColumnType(kind=Kind.DATE), "0000-00-00"),
        (ColumnType(kind=Kind.DATE), "2024-02-30"),
        (ColumnType(kind=Kind.DATE), "2024-00-15"),
        (ColumnType(kind=Kind.DATETIME), "0000-00-00 00:00:00"),
        (ColumnType(kind=Kind.DATETIME), "-4712-01-01 00:00:00"),
        (ColumnType(kind=Kind.TIMESTAMP), "0000-00-00 00:00:00"),
        (ColumnType(kind=Kind.TIMESTAMP), "2026-01-01 00:00:00"),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "1.5"),
        (ColumnType(kind=Kind.FLOAT), 0.1),
        (ColumnType(kind=Kind.FLOAT), 1e300),
        (ColumnType(kind=Kind.BIT, length=8), 256),
        (ColumnType(kind=Kind.GEOMETRY), {"wkb": "AQ==", "srid": 2**31}),
    ],
)
def test_a_value_that_would_be_lost_is_refused_with_its_column(type_: ColumnType, wire: Value) -> None:
    with pytest.raises(RefusedError, match=r"column v: Debezium's form .*`format: rowlock`"):
        Debezium(one(type_)).build_change_records(None, (1, wire), PLACE)


@pytest.mark.parametrize("word", ["debezium", "debezium-schemas"])
def test_a_type_that_debezium_has_no_form_for_is_refused_at_once(word: str) -> None:
    with pytest.raises(TargetConfigError, match=rf"head\.t, column v: format {word} .*9 digits.*`columns`"):
        FORMATS[word](one(ColumnType(kind=Kind.DATETIME, fsp=9)))


@pytest.mark.parametrize(
    ("type_", "literal", "default"),
    [
        (ColumnType(kind=Kind.INT, bits=8), "5", 5),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "1.5", "AJY="),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "2", "AMg="),
        (ColumnType(kind=Kind.DOUBLE), "1.5", 1.5),
        (ColumnType(kind=Kind.BIT, length=1), "1", True),
        (ColumnType(kind=Kind.VARCHAR, length=5), "", ""),
        (ColumnType(kind=Kind.DATE), "1970-01-02", 1),
        (ColumnType(kind=Kind.TIME, fsp=3), "00:00:01", 1_000_000),
        (ColumnType(kind=Kind.DATETIME, fsp=6), "1970-01-01 00:00:00.5", 500_000),
        (ColumnType(kind=Kind.DATETIME), "0000-00-00 00:00:00", None),
        (ColumnType(kind=Kind.TIMESTAMP), "2020-01-01 00:00:00", None),
        (ColumnType(kind=Kind.JSON), "{}", None),
    ],
)
def test_defaults(type_: ColumnType, literal: str, default: object) -> None:
    """A nullable column has none in the schema: a reader by the schema would put it where a NULL is."""
    strict = DebeziumWithSchemas(one(type_, nullable=False, default=literal))
    loose = DebeziumWithSchemas(one(type_, default=literal))
    fields = [
        json.loads(form.build_clear_records(None, PLACE)[0].value or b"")["schema"]["fields"][0]["fields"][1]
        for form in (strict, loose)
    ]
    assert [field["optional"] for field in fields] == [False, True]
    assert (fields[0].get("default"), "default" in fields[1]) == (default, False)


@BOTH
def test_a_deletes_record_and_its_tombstone_say_that_the_row_is_gone(form: RecordFormat) -> None:
    row = bound_rows(TABLE)[0]
    missing, tombstone = form.build_change_records(row, None, PLACE)
    for record in (missing, tombstone):
        state = form.decode_state(record.key, record.value)
        assert state is not None
        assert (state.key, state.values, state.cleared) == (missing.key, None, False)
        assert (state.deleted is None) is (record is tombstone)


def test_the_values_of_another_tables_record_are_not_read() -> None:
    (record,) = Debezium(routed()).build_change_records(None, LUCY, PLACE)
    other = replace(one(ColumnType(kind=Kind.DATE)), origin=replace(ORIGIN, table="other"))
    state = Debezium(other).decode_state(record.key, record.value)
    assert state is not None
    assert (state.values, state.origin) == ({}, ("branch1", "bank", "acct"))


@BOTH
def test_a_truncate_names_whose_rows_are_gone(form: RecordFormat) -> None:
    (record,) = form.build_clear_records(None, PLACE)
    state = form.decode_state(record.key, record.value)
    assert state is not None
    assert (state.key, state.cleared, state.origin) == (None, True, ("branch1", "bank", "acct"))


@pytest.mark.parametrize("value", [b"x", b"{}", b"[]", b'{"op":"c","source":{},"after":{}}', b"1"])
@BOTH
def test_a_foreign_record_is_said(form: RecordFormat, value: bytes) -> None:
    with pytest.raises(EnvelopeError, match=r"topic d\.everything has a record that format debezium"):
        form.decode_state(b"{}", value)


def test_an_older_record_has_the_columns_that_are_left() -> None:
    (record,) = Debezium(routed()).build_change_records(None, LUCY, PLACE)
    now = one(ColumnType(kind=Kind.INT, bits=32))
    state = Debezium(now).decode_state(record.key, record.value)
    assert state is not None
    assert state.values == {"id": 1}


INT, WORD = ColumnType(kind=Kind.INT, bits=32), ColumnType(kind=Kind.VARCHAR, length=9)
MONEY = ColumnType(kind=Kind.DECIMAL, precision=12, scale=0)


@pytest.mark.parametrize("word", ["debezium", "debezium-schemas"])
@pytest.mark.parametrize(
    ("was", "value", "now"),
    [
        (INT, 5, MONEY),
        (INT, 5, WORD),
        (WORD, "five", INT),
        (WORD, "five", ColumnType(kind=Kind.FLOAT)),
        (WORD, "five", ColumnType(kind=Kind.DOUBLE)),
        (WORD, "five", ColumnType(kind=Kind.DATE)),
        (WORD, "five", ColumnType(kind=Kind.TIMESTAMP)),
        (WORD, "five", ColumnType(kind=Kind.GEOMETRY)),
        (ColumnType(kind=Kind.BIT, length=16), 300, ColumnType(kind=Kind.BIT, length=8)),
        (ColumnType(kind=Kind.BIT, length=1), 1, INT),
    ],
    ids=str,
)
def test_a_value_of_an_older_type_is_not_known(
    word: str, was: ColumnType, value: Value, now: ColumnType
) -> None:
    """Whoever deletes the row then can write what is left of it."""
    (record,) = FORMATS[word](one(was)).build_change_records(None, (1, value), PLACE)
    form = FORMATS[word](one(now))
    state = form.decode_state(record.key, record.value)
    assert state is not None
    assert state.values == {"id": 1, "v": None}


@pytest.mark.parametrize("keys", [("id",), ("id", "v")])
def test_a_key_of_an_older_type_is_said(keys: tuple[str, ...]) -> None:
    (record,) = Debezium(one(INT)).build_change_records(None, (1, 5), PLACE)
    now = one(WORD)
    table = now.table
    if keys == ("id",):
        table = structs.replace(
            table, columns=(structs.replace(table.columns[0], type=WORD), table.columns[1])
        )
    form = Debezium(replace(now, table=table, key_at=table.find_ordinals(keys)))
    with pytest.raises(EnvelopeError, match=f"column {keys[-1]} .*of an older type"):
        form.decode_state(record.key, record.value)


@pytest.mark.parametrize(
    ("bits", "signed", "unsigned"),
    [(8, "int16", "int16"), (16, "int16", "int32"), (24, "int32", "int32"), (32, "int32", "int64"), (64, "int64", "int64")],  # noqa: E501
)  # fmt: skip
def test_an_integer_has_the_type_of_connect_that_holds_all_of_it(
    bits: int, signed: str, unsigned: str
) -> None:
    found = (
        build_debezium_form(ColumnType(kind=Kind.INT, bits=bits, unsigned=each)) for each in (False, True)
    )
    assert [each and each.schema for each in found] == [{"type": signed}, {"type": unsigned}]
