"""Debezium's events become changes of rows: by the encodings that Debezium's documentation gives for each
type."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import EnvelopeError
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex, Value
from schemas.wire import codec, debezium
from schemas.wire.debezium import (
    ConnectorModes,
    DebeziumChange,
    DebeziumDecoder,
    format_debezium_topic,
    read_debezium_commit_ms,
)
from schemas.wire.debezium_values import make_debezium_converter


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


#: name → (type, what Debezium writes, the wire value)
CASES: dict[str, tuple[ColumnType, Any, Value]] = {
    "int": (ColumnType(kind=Kind.INT, bits=32), -5, -5),
    "big_unsigned": (ColumnType(kind=Kind.INT, bits=64, unsigned=True), -1, "18446744073709551615"),
    "big_precise": (
        ColumnType(kind=Kind.INT, bits=64, unsigned=True),
        b64(b"\0" + b"\xff" * 8),
        "18446744073709551615",
    ),
    "big": (ColumnType(kind=Kind.INT, bits=64), -(2**63), str(-(2**63))),
    "decimal": (ColumnType(kind=Kind.DECIMAL, precision=10, scale=2), b64(b"\xce"), "-0.50"),
    "whole": (ColumnType(kind=Kind.DECIMAL, precision=10, scale=0), b64(b"\x04\xd2"), "1234"),
    "float": (ColumnType(kind=Kind.FLOAT), 0.1, 0.10000000149011612),
    "double": (ColumnType(kind=Kind.DOUBLE), 1, 1.0),
    "bit1": (ColumnType(kind=Kind.BIT, length=1), True, 1),
    "bit": (ColumnType(kind=Kind.BIT, length=64), b64(b"\x01" + b"\0" * 6 + b"\x80"), "9223372036854775809"),
    "year": (ColumnType(kind=Kind.YEAR), 2026, 2026),
    "text": (ColumnType(kind=Kind.VARCHAR, length=9), "ü", "ü"),
    "blob": (ColumnType(kind=Kind.BLOB, length=9), b64(b"\0a"), b64(b"\0a")),
    "date": (ColumnType(kind=Kind.DATE), -1, "1969-12-31"),
    "time": (ColumnType(kind=Kind.TIME, fsp=3), -3020399500000, "-838:59:59.500"),
    "wall_ms": (ColumnType(kind=Kind.DATETIME, fsp=3), 1529507596945, "2018-06-20 15:13:16.945"),
    "wall_us": (ColumnType(kind=Kind.DATETIME, fsp=6), 1529507596945104, "2018-06-20 15:13:16.945104"),
    "moment": (ColumnType(kind=Kind.TIMESTAMP, fsp=3), "2018-06-20T13:37:03.5Z", "2018-06-20T13:37:03.500Z"),
    "json": (ColumnType(kind=Kind.JSON), '{"a": 1}', '{"a": 1}'),
    "enum": (ColumnType(kind=Kind.ENUM, members=("a", "b")), "b", "b"),
    "set": (ColumnType(kind=Kind.SET, members=("a", "b")), "a,b", "a,b"),
    "point": (ColumnType(kind=Kind.GEOMETRY), {"wkb": "AQ==", "srid": None}, {"wkb": "AQ==", "srid": 0}),
    "nothing": (ColumnType(kind=Kind.DECIMAL, precision=5, scale=1), None, None),
}
TABLE = Table(
    db="bank",
    name="acct",
    columns=tuple(Column(name=name, type=case[0]) for name, case in CASES.items()),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="int"),)),
)
DEBEZIUM = {name: case[1] for name, case in CASES.items()}
WIRE = tuple(case[2] for case in CASES.values())


def decode(raw: bytes, table: Table = TABLE, modes: ConnectorModes = ConnectorModes()) -> DebeziumChange:  # noqa: B008 - frozen
    return DebeziumDecoder(table, modes)(raw)


def record(
    op: str, before: Any, after: Any, *, schemas: bool = False, schema: Any = None, **source: Any
) -> bytes:
    payload = {
        "before": before, "after": after, "op": op, "ts_ms": 1790000000012, "ts_us": 1790000000012000,
        "transaction": {"id": "x:23", "total_order": 2, "data_collection_order": 1},
        "source": {
            "version": "3.0.1.Final", "connector": "mysql", "name": "branch1", "ts_ms": 1790000000000,
            "snapshot": "false", "db": "bank", "sequence": None, "table": "acct", "server_id": 7,
            "gtid": None, "file": "binlog.000003", "pos": 4711, "row": 1, "thread": 9, "query": None,
            **source,
        },
    }  # fmt: skip
    whole = {"schema": schema or {"type": "struct"}, "payload": payload}
    return json.dumps(whole if schemas or schema else payload, separators=(",", ":")).encode()


@pytest.mark.parametrize("schemas", [True, False])
def test_an_update(schemas: bool) -> None:
    event = decode(record("u", DEBEZIUM, DEBEZIUM, schemas=schemas))
    assert (event.op, event.before, event.after) == ("u", WIRE, WIRE)
    assert event.source.position == (0, 3, 4711, 2)
    assert (event.source.db, event.source.table, event.source.ts_ms) == ("bank", "acct", 1790000000000)


def test_insert_delete_truncate() -> None:
    inserted = decode(record("c", None, DEBEZIUM))
    deleted = decode(record("d", DEBEZIUM, None))
    emptied = decode(record("t", None, None))
    assert [(each.op, each.before, each.after) for each in (inserted, deleted, emptied)] == [
        ("c", None, WIRE), ("d", WIRE, None), ("t", None, None),
    ]  # fmt: skip


def test_the_halves_of_a_moved_key_have_positions_in_order() -> None:
    """Debezium writes a delete and an insert with the same file, pos and row."""
    rows = [
        decode(record(op, before, after, row=row)).source.position
        for row in (0, 1)
        for op, before, after in (("d", DEBEZIUM, None), ("c", None, DEBEZIUM))
    ]
    assert None not in rows
    assert rows == sorted(set(rows), key=lambda position: position or ())


@pytest.mark.parametrize("snapshot", ["true", "last", True])
def test_an_event_of_the_log_is_one_whatever_it_says_of_snapshots(snapshot: object) -> None:
    """So 3.5.0 marks them once it was killed in a blocking snapshot: without their positions a repeated one
    would be applied again."""
    raw = record("c", None, DEBEZIUM, snapshot=snapshot)
    assert decode(raw).source == decode(record("c", None, DEBEZIUM)).source
    assert read_debezium_commit_ms(raw) == read_debezium_commit_ms(record("c", None, DEBEZIUM)) is not None


@pytest.mark.parametrize("snapshot", ["true", "last", "first_in_data_collection", "incremental", True])
def test_snapshot_rows_have_neither_position_nor_commit_time(snapshot: object) -> None:
    raw = record("r", None, DEBEZIUM, snapshot=snapshot)
    event = decode(raw)
    assert (event.source.position, event.source.ts_ms) == (None, 0)
    assert read_debezium_commit_ms(raw) is None


@pytest.mark.parametrize("schemas", [True, False])
def test_the_commit_time_is_known_without_the_table(schemas: bool) -> None:
    assert read_debezium_commit_ms(record("d", DEBEZIUM, None, schemas=schemas)) == 1790000000000
    assert read_debezium_commit_ms(b"{}") is None
    assert read_debezium_commit_ms(b"\xff") is None


def test_positions_of_files_compare_by_number() -> None:
    older = decode(record("d", DEBEZIUM, None, file="binlog.999999")).source.position
    newer = decode(record("d", DEBEZIUM, None, file="binlog.1000000", pos=4, row=0)).source.position
    assert older is not None
    assert newer is not None
    assert older < newer


def one(type_: ColumnType) -> Table:
    return Table(db="d", name="t", columns=(Column(name="v", type=type_),), key=TABLE.key)


@given(st.integers(-(10**20), 10**20), st.integers(0, 6))
def test_precise_decimals(unscaled: int, scale: int) -> None:
    raw = unscaled.to_bytes(12, "big", signed=True)
    table = one(ColumnType(kind=Kind.DECIMAL, precision=30, scale=scale))
    event = decode(record("c", None, {"v": b64(raw)}), table)
    (text,) = event.after or ()
    assert isinstance(text, str)
    assert int(text.replace(".", "")) == unscaled
    assert len(text.partition(".")[2]) == scale


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_widened_exactly(value: float) -> None:
    event = decode(record("c", None, {"v": value}), one(ColumnType(kind=Kind.FLOAT)))
    assert event.after is not None
    assert struct.pack("<d", event.after[0]) == struct.pack("<d", value)


def test_decimal_strings_are_an_option() -> None:
    table = one(ColumnType(kind=Kind.DECIMAL, precision=10, scale=0))
    assert decode(record("c", None, {"v": "1234"}), table, ConnectorModes(decimal_strings=True)).after == (
        "1234",
    )


@pytest.mark.parametrize(
    ("raw", "table", "message"),
    [
        (b"{}", TABLE, "not an event of Debezium"),
        (b"\xff", TABLE, "not an event of Debezium"),
        (b'{"schema":{},"payload":{"id":1}}', TABLE, "not an event of Debezium"),
        (record("m", None, None), TABLE, "op 'm'"),
        (record("u", None, DEBEZIUM), TABLE, "binlog_row_image=FULL"),
        (record("c", None, {"w": 1}), one(CASES["int"][0]), "no column v"),
        (record("c", None, {"v": 1, "w": 1}), one(CASES["int"][0]), "a column w"),
        (record("d", {"v": 1, "w": 1}, None, schemas=True), one(CASES["int"][0]), "a column w"),
        (record("c", None, {"v": 1.5}), one(CASES["int"][0]), "column v: .* int"),
        (record("c", None, {"v": "5"}), one(CASES["int"][0]), "column v: .* int"),
        (record("c", None, {"v": "1.50"}), one(CASES["decimal"][0]), "column v: .* decimal"),
        (record("c", None, {"v": 1.5}), one(CASES["decimal"][0]), "column v: .* decimal"),
        (record("c", None, {"v": "1.5"}), one(CASES["double"][0]), "column v: .* double"),
        (record("c", None, {"v": 1529507596945}), one(CASES["moment"][0]), "column v: .* timestamp"),
        (record("c", None, {"v": 5}), one(CASES["text"][0]), "column v: .* varchar"),
        (record("d", DEBEZIUM, None, file="binlog"), TABLE, "no usable position"),
    ],
)
def test_what_does_not_fit_is_refused(raw: bytes, table: Table, message: str) -> None:
    with pytest.raises(EnvelopeError, match=message):
        decode(raw, table)


def schema_of(**field: Any) -> dict[str, Any]:
    image = {"type": "struct", "optional": True, "fields": [{"optional": True, "field": "v", **field}]}
    return {"type": "struct", "fields": [{**image, "field": "before"}, {**image, "field": "after"}]}


TIME = "io.debezium.time."
DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    ("case", "fits", "altered"),
    [
        ("decimal", {**DECIMAL, "parameters": {"scale": "2"}}, {**DECIMAL, "parameters": {"scale": "3"}}),
        ("decimal", {**DECIMAL, "parameters": {"scale": "2"}}, {"type": "double"}),
        ("wall_ms", {"type": "int64", "name": f"{TIME}Timestamp"}, {"type": "int64", "name": f"{TIME}MicroTimestamp"}),  # noqa: E501
        ("wall_us", {"type": "int64", "name": f"{TIME}MicroTimestamp"}, {"type": "int64", "name": f"{TIME}Timestamp"}),  # noqa: E501
        ("time", {"type": "int64", "name": f"{TIME}MicroTime"}, {"type": "int32", "name": f"{TIME}Time"}),
        ("date", {"type": "int32", "name": f"{TIME}Date"}, {"type": "int32", "name": "org.apache.kafka.connect.data.Date"}),  # noqa: E501
        ("moment", {"type": "string", "name": f"{TIME}ZonedTimestamp"}, {"type": "int64", "name": f"{TIME}MicroTimestamp"}),  # noqa: E501
        ("blob", {"type": "bytes"}, {"type": "string"}),
        ("int", {"type": "int32"}, {"type": "string"}),
        ("text", {"type": "string"}, {"type": "int32"}),
    ],
)  # fmt: skip
def test_a_schema_that_means_something_else_is_refused(case: str, fits: Any, altered: Any) -> None:
    """Bare numbers would be read with the wrong scale or unit. What was accepted once is not believed for
    other schemas."""
    type_, value, wire = CASES[case]
    decode = DebeziumDecoder(one(type_), ConnectorModes())
    for _ in range(2):
        assert decode(record("c", None, {"v": value}, schema=schema_of(**fits))).after == (wire,)
    with pytest.raises(EnvelopeError, match="column v: Debezium's schema has it as") as refused:
        decode(record("c", None, {"v": value}, schema=schema_of(**altered)))
    shown = {
        "decimal": "decimal of 2 digits after the point",
        "wall_ms": "datetime(3)",
        "wall_us": "datetime(6)",
    }
    assert f", which is no {shown.get(case, type_.kind)}: " in refused.value.problem.what


def test_a_schema_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is several times as long as the event that it comes with."""
    looked: list[bytes] = []
    monkeypatch.setattr(debezium, "explain_schema_problem", lambda raw, *_, **__: looked.append(raw))
    decode = DebeziumDecoder(one(CASES["int"][0]), ConnectorModes())
    for value in range(3):
        decode(record("c", None, {"v": value}, schema=schema_of(type="int32")))
    assert len(looked) == 1


def test_decimal_strings_are_seen_in_a_schema() -> None:
    table = one(ColumnType(kind=Kind.DECIMAL, precision=10, scale=0))
    raw = record("c", None, {"v": "1234"}, schema=schema_of(type="string"))
    assert decode(raw, table, ConnectorModes(decimal_strings=True)).after == ("1234",)
    with pytest.raises(EnvelopeError, match="this source's `decimals`"):
        decode(raw, table)


def test_topics_are_named_as_debezium_names_them() -> None:
    assert format_debezium_topic("rowlock", "b1", "bank", "acct") == "rowlock.b1.bank.acct"
    assert format_debezium_topic("rowlock", "b1", "bänk", "a$b-c.d") == "rowlock.b1.b_nk.a_b-c.d"


def test_a_debezium_record_is_not_taken_for_a_newer_version_of_ours() -> None:
    with pytest.raises(EnvelopeError, match="not a rowlock event"):
        codec.decode_event(record("c", None, DEBEZIUM))


BLOB = ColumnType(kind=Kind.BLOB, length=65535)
TIME_0, TIME_3, WALL_6 = (
    ColumnType(kind=Kind.TIME), ColumnType(kind=Kind.TIME, fsp=3), ColumnType(kind=Kind.DATETIME, fsp=6)
)  # fmt: skip
#: type, value, what makes it wrong or doubtful without a schema; None: it is read
MODES: list[tuple[ColumnType, object, str | None]] = [
    (BLOB, "3q2+7w==", None),
    (BLOB, "", None),
    (BLOB, "deadbeef", "could be base64 or hexadecimal"),
    (BLOB, "beef", "could be base64 or hexadecimal"),
    (BLOB, "beefbe", "no blob"),
    (BLOB, "3q2-7w==", "no blob"),
    (BLOB, "3q2+7w", "no blob"),
    (BLOB, " 3q2+7w==", "no blob"),
    (BLOB, 7, "no blob"),
    (TIME_0, 45_296_000_000, None),
    (TIME_0, 0, None),
    (TIME_0, 45_296_000, "its unit is not microseconds|microseconds or milliseconds"),
    (TIME_0, 1_800_000_000, "microseconds or milliseconds"),
    (TIME_3, 45_296_123, "its unit is not microseconds|microseconds or milliseconds"),
    (TIME_3, -45_296_000, "microseconds or milliseconds"),
    (WALL_6, 1_790_000_000_000_123, None),
    (WALL_6, -62_135_596_800_000_000, None),
    (WALL_6, 1_790_000_000_000, "microseconds or milliseconds"),
]


@pytest.mark.parametrize(("type_", "value", "why"), MODES)
def test_a_value_that_could_be_another_in_another_mode_is_refused(
    type_: ColumnType, value: object, why: str | None
) -> None:
    """Events without a schema do not show whether binary.handling.mode=hex or the time mode `connect` is
    set."""
    table = one(type_)
    raw = record("c", None, {"v": value})
    if why is None:
        assert decode(raw, table).after is not None
        return
    with pytest.raises(EnvelopeError, match=why) as refused:
        decode(raw, table)
    found = refused.value.problem
    assert found.remedy.startswith("turn schemas on") == ("it could" in found.what)


@pytest.mark.parametrize(
    ("mode", "value"), [("hex", "deadbeef"), ("bytes", "3q2+7w=="), ("base64-url-safe", "3q2-7w==")]
)
def test_how_bytes_are_written_may_be_said(mode: str, value: str) -> None:
    assert decode(record("c", None, {"v": value}), one(BLOB), ConnectorModes(binaries=mode)).after == (
        "3q2+7w==",
    )


def test_what_is_said_leaves_no_doubt() -> None:
    assert decode(record("c", None, {"v": "beef"}), one(BLOB), ConnectorModes(binaries="bytes")).after == (
        "beef",
    )
    assert decode(record("c", None, {"v": 1_800_000_000}), one(TIME_0), ConnectorModes(times=True)).after == (
        "00:30:00",
    )
    assert decode(record("c", None, {"v": 1}), one(WALL_6), ConnectorModes(times=True)).after == (
        "1970-01-01 00:00:00.000001",
    )
    assert make_debezium_converter(TIME_0, decimal_strings=False)(1_800_000_000) == "00:30:00"
    micros = schema_of(type="int64", name=f"{TIME}MicroTime")
    assert decode(record("c", None, {"v": 1_800_000_000}, schema=micros), one(TIME_0)).after == ("00:30:00",)
