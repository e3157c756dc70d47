"""Canal's flat messages, as a Kafka target writes them: whole texts, every type's bounds there and back."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings

from consumer.errors import RefusedError, TargetConfigError
from consumer.targets.kafka.formats import canal_json_columns
from consumer.targets.kafka.formats.canal_json import CanalJson
from consumer.targets.kafka.formats.model import FormattedRecord, State
from schemas.errors import EnvelopeError
from schemas.table.equality import are_wire_equal
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex, Value
from tests.kits.kafka_formats import ACCOUNTS, EVERYTHING, LUCY, ORIGIN, PLACE, READ, compacted, one, routed
from tests.kits.schemas_strategies import TABLE, bound_rows, rows

FORM = CanalJson(EVERYTHING)
KEY = b'{"branch":"b1","id":"1"}'
TYPES = (
    '"mysqlType":{"id":"bigint","naïve":"varchar(20)","sum":"decimal(10,2)","branch":"varchar(64)"}',
    '"pkNames":["branch","id"],"sql":"","sqlType":{"id":-5,"naïve":12,"sum":3,"branch":12},"table":"acct"',
)
START = '{"data":[{"id":"1","naïve":"lucy","sum":"10.50","branch":"b1"}],"database":"head","es":1790000000123,"id":4711,"isDdl":false'  # noqa: E501


@pytest.mark.parametrize(
    ("before", "after", "old", "kind"),
    [
        (None, LUCY, "null", "INSERT"),
        ((1, "lucy", None, "b1"), LUCY, '[{"sum":null}]', "UPDATE"),
        (LUCY, LUCY, "[{}]", "UPDATE"),
        (LUCY, None, "null", "DELETE"),
    ],
)
def test_messages_are_these_texts(before: Row | None, after: Row | None, old: str, kind: str) -> None:
    record, *more = CanalJson(routed()).build_change_records(before, after, PLACE)
    assert record.key == KEY
    reported = f'{START},{TYPES[0]},"old":{old},{TYPES[1]},"ts":1790000000123,"type":"{kind}"}}'
    assert (record.value or b"").decode() == reported
    assert more == ([FormattedRecord(KEY, None)] if after is None else [])


def test_a_row_that_a_snapshot_read_is_an_insert() -> None:
    (record,) = CanalJson(routed()).build_change_records(None, LUCY, READ)
    assert json.loads(record.value or b"")["type"] == "INSERT"


def test_a_key_moves_by_its_bytes() -> None:
    missing, tombstone, new = CanalJson(routed()).build_change_records(
        LUCY, (1, "lucy", "10.50", "B1"), PLACE
    )
    assert (missing.key, tombstone, new.key) == (KEY, FormattedRecord(KEY, None), b'{"branch":"B1","id":"1"}')
    assert [json.loads(each.value or b"")["type"] for each in (missing, new)] == ["DELETE", "INSERT"]
    assert len(CanalJson(routed(tombstones=False)).build_change_records(LUCY, None, PLACE)) == 1


def assert_carried(row: Row) -> None:
    (record,) = FORM.build_change_records(row, row, PLACE)
    data = json.loads(record.value or b"")["data"][0]
    assert all(value is None or isinstance(value, str) for value in data.values())
    state = FORM.decode_state(record.key, record.value)
    assert state is not None
    assert state.values is not None
    assert tuple(state.values) == TABLE.column_names
    for column, value in zip(TABLE.columns, row, strict=True):
        assert are_wire_equal(column.type.kind, state.values[column.name], value), column.name  # type: ignore[arg-type]


@pytest.mark.parametrize("row", bound_rows(TABLE), ids=str)
def test_the_bounds_of_every_type_come_back(row: Row) -> None:
    assert_carried(row)


@settings(max_examples=60, deadline=None)
@given(row=rows(TABLE))
def test_any_row_comes_back(row: Row) -> None:
    assert_carried(row)


#: type, wire value, Canal's text, type in MySQL's words, number in java.sql.Types
WRITTEN: list[tuple[ColumnType, Value, str, str, int]] = [
    (ColumnType(kind=Kind.INT, bits=8), -128, "-128", "tinyint", -6),
    (ColumnType(kind=Kind.INT, bits=8, unsigned=True), 255, "255", "tinyint unsigned", 5),
    (ColumnType(kind=Kind.INT, bits=16), 1, "1", "smallint", 5),
    (ColumnType(kind=Kind.INT, bits=24, unsigned=True), 1, "1", "mediumint unsigned", 4),
    (ColumnType(kind=Kind.INT, bits=32, unsigned=True), 1, "1", "int unsigned", -5),
    (ColumnType(kind=Kind.INT, bits=64, unsigned=True), str(2**64 - 1), str(2**64 - 1), "bigint unsigned", 3),
    (ColumnType(kind=Kind.FLOAT), "NaN", "NaN", "float", 7),
    (ColumnType(kind=Kind.DOUBLE), -0.5, "-0.5", "double", 8),
    (ColumnType(kind=Kind.BIT, length=64), str(2**63), str(2**63), "bit(64)", -7),
    (ColumnType(kind=Kind.YEAR), 0, "0000", "year", 12),
    (ColumnType(kind=Kind.CHAR, length=3, charset="utf8mb4"), "ü", "ü", "char(3)", 1),
    (ColumnType(kind=Kind.TEXT, length=65535, charset="utf8mb4"), "ü", "ü", "text", 2005),
    (ColumnType(kind=Kind.BLOB, length=255), "AP8=", "\0ÿ", "tinyblob", 2004),
    (ColumnType(kind=Kind.DATE), "0000-00-00", "0000-00-00", "date", 91),
    (ColumnType(kind=Kind.TIME, fsp=1), "-838:59:59.0", "-838:59:59.0", "time(1)", 92),
    (ColumnType(kind=Kind.TIMESTAMP, fsp=1), "2026-01-02T03:04:05.6Z", "2026-01-02 03:04:05.6",
     "timestamp(1)", 93),
    (ColumnType(kind=Kind.TIMESTAMP), "0000-00-00 00:00:00", "0000-00-00 00:00:00", "timestamp(0)", 93),
    (ColumnType(kind=Kind.ENUM, members=("a", "b")), "b", "2", "enum('a','b')", 4),
    (ColumnType(kind=Kind.ENUM, members=("a", "b")), "", "0", "enum('a','b')", 4),
    (ColumnType(kind=Kind.ENUM, members=("a", "")), "", "2", "enum('a','')", 4),
    (ColumnType(kind=Kind.SET, members=("a", "b", "c")), "a,c", "5", "set('a','b','c')", -7),
    (ColumnType(kind=Kind.GEOMETRY), {"wkb": "AQ==", "srid": 258}, "\x02\x01\0\0\x01", "geometry", 2004),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "wire", "text", "words", "number"), WRITTEN, ids=str)
def test_what_is_written_for_a_value(
    type_: ColumnType, wire: Value, text: str, words: str, number: int
) -> None:
    form = CanalJson(one(type_))
    (record,) = form.build_change_records(None, (1, wire), PLACE)
    message = json.loads(record.value or b"")
    assert (message["data"][0]["v"], message["mysqlType"]["v"], message["sqlType"]["v"]) == (
        text,
        words,
        number,
    )
    state = form.decode_state(record.key, record.value)
    assert state is not None
    assert state.values == {"id": 1, "v": wire}


def test_a_label_that_the_type_has_not_is_refused() -> None:
    for kind in (Kind.ENUM, Kind.SET):
        with pytest.raises(RefusedError, match=r"column v: Canal's form .*`format: rowlock`"):
            CanalJson(one(ColumnType(kind=kind, members=("a",)))).build_change_records(None, (1, "b"), PLACE)


def test_a_type_without_a_form_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(canal_json_columns._FORMS, Kind.JSON)
    with pytest.raises(
        TargetConfigError, match=r"topic head\.t, column v: format canal-json .*type json.*`columns`"
    ):
        CanalJson(one(ColumnType(kind=Kind.JSON)))


def test_a_truncate_empties_the_topic() -> None:
    form = CanalJson(routed())
    (record,) = form.build_clear_records(None, PLACE)
    message = json.loads(record.value or b"")
    assert (record.key, message["isDdl"], message["type"]) == (None, True, "TRUNCATE")
    assert message["sql"] == "TRUNCATE TABLE `head`.`acct`"
    assert {message[name] for name in ("old", "sqlType", "mysqlType", "pkNames", "data")} == {None}
    assert compacted(form, [*form.build_change_records(None, LUCY, PLACE), record]) == {}


def test_a_truncate_of_one_source_of_many_deletes_its_rows_alone() -> None:
    """A consumer that runs TRUNCATE would lose the rows of the other sources."""
    form = CanalJson(routed())
    (record,) = form.build_clear_records({"branch": "it's", "area": "n"}, PLACE)
    message = json.loads(record.value or b"")
    assert (message["isDdl"], message["type"]) == (True, "QUERY")
    assert message["sql"] == (
        "DELETE FROM `head`.`acct` WHERE `branch` = 'it''s' AND `area` = 'n' /* rowlock "
        '["branch1","bank","acct"] */'
    )
    assert form.decode_state(None, record.value) == State(
        None, cleared=True, origin=("branch1", "bank", "acct")
    )


def test_names_cannot_end_the_comment() -> None:
    table = routed()
    odd = type(table)(
        table.table, table.key_at, table.primary_at, table.topic, type(ORIGIN)("a*/b", "mysql", "`", "*/")
    )
    form = CanalJson(odd)
    (record,) = form.build_clear_records({"branch": "x"}, PLACE)
    assert json.loads(record.value or b"")["sql"].count("*/") == 1
    state = form.decode_state(None, record.value)
    assert state is not None
    assert state.origin == ("a*/b", "`", "*/")


def test_a_definition_is_a_statement() -> None:
    key = UniqueIndex(name="n", parts=(IndexPart(column="na`me", prefix=5), IndexPart(column="id")))
    name = Column(name="na`me", type=ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4"))
    defined = Table(
        db="head", name="acct", columns=(ACCOUNTS.columns[0], name), key=ACCOUNTS.key, unique=(key,)
    )
    form = CanalJson(routed())
    (record,) = form.build_definition_records(defined, PLACE)
    message = json.loads(record.value or b"")
    assert (record.key, message["isDdl"], message["type"]) == (None, True, "CREATE")
    assert message["sql"] == (
        "CREATE TABLE IF NOT EXISTS `head`.`acct` (`id` bigint NOT NULL, `na``me` varchar(9), PRIMARY KEY "
        "(`branch`, `id`), UNIQUE KEY `n` (`na``me`(5), `id`))"
    )
    assert form.decode_state(record.key, record.value) is None


def test_a_delete_and_its_tombstone_say_that_the_row_is_gone() -> None:
    form = CanalJson(routed())
    assert [
        form.decode_state(each.key, each.value) for each in form.build_change_records(LUCY, None, PLACE)
    ] == [
        State(KEY, deleted=dict(zip(ACCOUNTS.column_names, LUCY, strict=True))),
        State(KEY),
    ]


@pytest.mark.parametrize("value", [b"x", b"{}", b"[]", b'{"type":"INSERT","isDdl":false,"data":[]}', b"1"])
def test_a_foreign_record_is_said(value: bytes) -> None:
    with pytest.raises(EnvelopeError, match=r"topic d\.everything has a record that format canal-json"):
        FORM.decode_state(b"{}", value)


def test_an_older_record_has_the_columns_that_are_left() -> None:
    (record,) = CanalJson(routed()).build_change_records(None, LUCY, PLACE)
    state = CanalJson(one(ColumnType(kind=Kind.INT, bits=32))).decode_state(record.key, record.value)
    assert state is not None
    assert state.values == {"id": 1}


@pytest.mark.parametrize(
    ("was", "value", "now"),
    [
        (ColumnType(kind=Kind.VARCHAR, length=9), "five", ColumnType(kind=Kind.INT, bits=32)),
        (ColumnType(kind=Kind.VARCHAR, length=9), "\N{SNOWMAN}", ColumnType(kind=Kind.BLOB)),
        (ColumnType(kind=Kind.ENUM, members=("a", "b")), "b", ColumnType(kind=Kind.ENUM, members=("a",))),
        (ColumnType(kind=Kind.SET, members=("a", "b")), "a,b", ColumnType(kind=Kind.SET, members=("a",))),
    ],
    ids=str,
)
def test_a_value_of_an_older_type_is_not_known(was: ColumnType, value: Value, now: ColumnType) -> None:
    (record,) = CanalJson(one(was)).build_change_records(None, (1, value), PLACE)
    assert CanalJson(one(now)).decode_state(record.key, record.value) == State(
        record.key, {"id": 1, "v": None}
    )


def test_a_key_of_an_older_type_is_said() -> None:
    (record,) = CanalJson(one(ColumnType(kind=Kind.VARCHAR, length=9))).build_change_records(
        None, (1, "five"), PLACE
    )
    now = one(ColumnType(kind=Kind.INT, bits=32))
    form = CanalJson(dataclasses.replace(now, key_at=(0, 1)))
    with pytest.raises(EnvelopeError, match=r"column v .*of an older type"):
        form.decode_state(record.key, record.value)
