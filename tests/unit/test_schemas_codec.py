"""The envelope's bytes: pinned by golden files, described by a JSON Schema, readable by older readers within
a major."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import EnvelopeError
from schemas.table.model import Column, ColumnType, IndexPart, LeftOutColumn, Table, UniqueIndex
from schemas.wire import codec
from schemas.wire.copies import CopyMark, CopyOutcome, CopyRequest, CopyState, RemovedRows, RepairLimits
from schemas.wire.event import (
    ENVELOPE_VERSION,
    Chunk,
    ColumnChanges,
    EventEnvelope,
    LogRows,
    Source,
    Transaction,
    Undecodable,
)
from schemas.wire.position import DEFINITION_ROW, FIRST_SNAPSHOT_ROW, STOP_ROW
from schemas.wire.records import Anchor, Identity, LogProof, ShadowTable, StoredPosition, TableStop, Watermark
from tests.formats.structure import members
from tests.kits.schemas_strategies import TABLE, rows

SCHEMAS = Path(codec.__file__).parent.parent
GOLDEN = SCHEMAS / "golden" / "v1"
EVENTS = (
    "c", "u", "u-undecodable", "u-oracle", "d", "r", "t", "m-definition", "m-expression",
    "m-default-expression", "m-label-numbers", "m-text-types", "m-vector", "m-ddl", "m-ddl-kept",
    "m-ddl-columns", "m-chunk", "m-copy", "m-copy-chunk", "m-stop", "p", "k", "k-begin", "m-keys-chunk",
)  # fmt: skip
RECORDS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    **dict.fromkeys(EVENTS, (codec.decode_event, codec.encode_event_value)),
    "record-position-names": (codec.decode_stored_position, codec.encode_stored_position),
    "record-position-other-names": (codec.decode_stored_position, codec.encode_stored_position),
    "record-position": (codec.decode_stored_position, codec.encode_stored_position),
    "record-watermark": (codec.decode_watermark, codec.encode_watermark),
    "record-copy-request": (codec.decode_copy_request, codec.encode_copy_request),
}
SCHEMA = json.loads((SCHEMAS / "envelope.v1.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().removesuffix(b"\n")


def definition(name: str) -> jsonschema.Draft202012Validator:
    """The schema of one of the records that are not events."""
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


def test_every_golden_file_is_tested() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {*RECORDS, "key"}


@pytest.mark.parametrize("name", EVENTS)
def test_golden_round_trip_is_byte_identical(name: str) -> None:
    decode, encode = RECORDS[name]
    assert encode(decode(golden(name))) == golden(name)


@pytest.mark.parametrize("name", sorted(set(RECORDS) - set(EVENTS)))
def test_nothing_of_a_golden_record_is_lost(name: str) -> None:
    """Later versions may write more. Files with every field of the present one are in tests/golden/stored."""
    decode, encode = RECORDS[name]
    now = dict(members(json.loads(encode(decode(golden(name))))))
    was = dict(members(json.loads(golden(name))))
    assert was == {path: now.get(path, "no such member") for path in was}


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", EVENTS)
def test_golden_events_fit_the_schema(name: str) -> None:
    VALIDATOR.validate(json.loads(golden(name)))


def test_golden_records_fit_the_schema() -> None:
    definition("stored_position").validate(json.loads(golden("record-position")))
    definition("stored_position").validate(json.loads(golden("record-position-names")))
    definition("stored_position").validate(json.loads(golden("record-position-other-names"))["record"])
    definition("watermark").validate(json.loads(golden("record-watermark")))
    definition("copy_request").validate(json.loads(golden("record-copy-request")))


_DESCRIBED: dict[str, type[msgspec.Struct]] = {
    "source": Source, "transaction": Transaction, "chunk": Chunk, "table": Table, "column": Column,
    "type": ColumnType, "index": UniqueIndex, "part": IndexPart, "stored_position": StoredPosition,
    "identity": Identity, "anchor": Anchor, "watermark": Watermark, "stop": TableStop, "proof": LogProof,
    "undecodable": Undecodable, "log_rows": LogRows, "copy_mark": CopyMark, "columns": ColumnChanges,
    "copy_state": CopyState, "copy_request": CopyRequest, "limits": RepairLimits, "shadow": ShadowTable,
    "removed_rows": RemovedRows, "copy_outcome": CopyOutcome, "left_out_column": LeftOutColumn,
}  # fmt: skip


@pytest.mark.parametrize("name", _DESCRIBED)
def test_the_schema_describes_every_field(name: str) -> None:
    fields = msgspec.structs.fields(_DESCRIBED[name])
    assert [field.encode_name for field in fields] == list(SCHEMA["$defs"][name]["properties"])
    required = {field.encode_name for field in fields if field.required}
    assert required <= set(SCHEMA["$defs"][name]["required"])


def test_the_schema_describes_every_field_of_an_event() -> None:
    assert [field.encode_name for field in msgspec.structs.fields(EventEnvelope)] == list(
        SCHEMA["properties"]
    )


def test_a_request_that_names_nothing_else_asks_for_a_whole_copy() -> None:
    request = CopyRequest(id="r", db="bank", table="acct", by="operator", requested_ms=1)
    assert (request.cancel, request.rate_only, request.where, request.limits) == (False, False, None, None)


def test_rows_of_records_without_a_row_are_as_stored() -> None:
    assert (FIRST_SNAPSHOT_ROW, DEFINITION_ROW, STOP_ROW) == (
        -9_007_199_254_740_992, -9_007_199_254_740_993, 4_503_599_627_370_496
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "field"), [("u", "before"), ("c", "after"), ("d", "source"), ("m-chunk", "chunk")]
)
def test_the_schema_refuses_an_event_without_its_part(name: str, field: str) -> None:
    damaged = json.loads(golden(name)) | {field: None}
    assert not VALIDATOR.is_valid(damaged)


_NATURAL = st.integers(0, 2**53)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_POSITION = st.tuples(_NATURAL, _NATURAL, _NATURAL, st.integers(FIRST_SNAPSHOT_ROW - 1, 2**53))
_ROW = rows(TABLE).map(lambda row: dict(zip(TABLE.column_names, row, strict=True)))
_SOURCE = st.builds(
    Source, version=st.just(ENVELOPE_VERSION), connector=st.sampled_from(["mysql", "mariadb"]), name=_TEXT,
    ts_ms=_NATURAL, snapshot=st.sampled_from(["true", "false"]), db=_TEXT, table=_TEXT, server_id=_NATURAL,
    gtid=st.none() | _TEXT, file=_TEXT, pos=_NATURAL, row=st.integers(FIRST_SNAPSHOT_ROW, 2**53),
    position=_POSITION, prev=st.none() | _POSITION, gen=_NATURAL,
)  # fmt: skip
_TRANSACTION = st.none() | st.builds(
    Transaction, id=_TEXT, total_order=st.integers(1, 2**53), last=st.booleans()
)
_CHUNK = st.builds(
    Chunk, number=_NATURAL, after=st.none() | st.tuples(_NATURAL, _TEXT),
    upto=st.none() | st.tuples(_NATURAL, _TEXT), first_row=st.integers(FIRST_SNAPSHOT_ROW, -1), rows=_NATURAL,
    last=st.booleans(), repeated=st.booleans(),
)  # fmt: skip
_STOP = st.builds(
    TableStop,
    cause=_TEXT,
    at=_POSITION,
    file=_TEXT,
    pos=_NATURAL,
    reason=_TEXT,
    remedy=_TEXT,
    since_ms=_NATURAL,
)
_COPY = st.builds(
    CopyMark, id=_TEXT, partial=st.booleans(), begins=st.none() | _NATURAL, since=st.none() | _NATURAL
)
_COLUMNS = st.builds(
    ColumnChanges,
    renamed=st.dictionaries(_TEXT, _TEXT, max_size=2),
    added=st.tuples(_TEXT),
    converted=st.booleans(),
)
_COMMON: dict[str, Any] = {"source": _SOURCE, "transaction": _TRANSACTION, "ts_ms": _NATURAL}
_RAW = _ROW.map(lambda row: row | {"note": {"undecodable": "/v7+"}})
_UNDECODABLE = st.builds(Undecodable, before=st.just(()) | st.tuples(_TEXT), after=st.tuples(_TEXT, _TEXT))
ANY_EVENT = st.one_of(
    st.builds(EventEnvelope, op=st.sampled_from(["c", "r"]), after=_ROW, **_COMMON),
    st.builds(EventEnvelope, op=st.just("u"), before=_ROW, after=_ROW, **_COMMON),
    st.builds(EventEnvelope, op=st.just("d"), before=_ROW, **_COMMON),
    st.builds(EventEnvelope, op=st.just("u"), before=_ROW, after=_RAW, undecodable=_UNDECODABLE, **_COMMON),
    st.builds(EventEnvelope, op=st.just("t"), **_COMMON),
    st.builds(EventEnvelope, op=st.just("m"), definition=st.just(TABLE), ddl=st.none() | _TEXT, **_COMMON),
    st.builds(
        EventEnvelope,
        op=st.just("m"),
        definition=st.just(TABLE),
        ddl=_TEXT,
        effect=st.none() | _TEXT,
        **_COMMON,
    ),
    st.builds(EventEnvelope, op=st.just("m"), chunk=_CHUNK, **_COMMON),
    st.builds(EventEnvelope, op=st.just("m"), stop=_STOP, **_COMMON),
    st.builds(EventEnvelope, op=st.just("m"), definition=st.just(TABLE), copy=_COPY, **_COMMON),
    st.builds(EventEnvelope, op=st.just("m"), chunk=_CHUNK, copy=_COPY, **_COMMON),
    st.builds(
        EventEnvelope, op=st.just("m"), definition=st.just(TABLE), ddl=_TEXT, columns=_COLUMNS, **_COMMON
    ),
)


@settings(max_examples=60, deadline=None)
@given(ANY_EVENT)
def test_whatever_is_encoded_fits_the_schema_and_comes_back(event: EventEnvelope) -> None:
    raw = codec.encode_event_value(event)
    VALIDATOR.validate(json.loads(raw))
    assert codec.decode_event(raw) == event
    assert codec.encode_event_value(codec.decode_event(raw)) == raw


def test_row_events_do_not_carry_the_fields_of_definitions() -> None:
    assert {"definition", "ddl", "chunk"}.isdisjoint(json.loads(golden("u")))
    assert {"definition", "ddl", "chunk"} <= set(json.loads(golden("m-ddl")))


def test_text_that_looks_like_the_left_out_fields_stays() -> None:
    event = codec.decode_event(golden("m-ddl"))
    event.ddl = event.effect = (
        ',"definition":null,"ddl":null,"chunk":null,"effect":null,"stop":null,"copy":null,"columns":null}'
    )
    assert codec.decode_event(codec.encode_event_value(event)) == event


@pytest.mark.parametrize("name", EVENTS)
def test_unknown_fields_are_ignored(name: str) -> None:
    newer = json.loads(golden(name))
    newer["new"] = {"a": [1]}
    newer["source"] |= {"new": None, "version": "1.7"}
    event = codec.decode_event(json.dumps(newer).encode())
    event.source.version = json.loads(golden(name))["source"]["version"]
    assert codec.encode_event_value(event) == golden(name)


@pytest.mark.parametrize(
    "record",
    [json.loads(golden("c")), {"source": {"version": ""}}, {"op": "z", "source": {"version": ""}, "what": 1}],
)
def test_a_newer_major_version_is_refused_whatever_else_it_holds(record: dict[str, Any]) -> None:
    record = {**record, "source": {**record["source"], "version": "4.0"}}
    with pytest.raises(EnvelopeError, match=r"envelope version 4\.0.*upgrade the reading side"):
        codec.decode_event(json.dumps(record).encode())


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"op":"c"}', golden("c")[:-1], golden("key")]
)
def test_what_is_no_event_is_said_to_be_none(raw: bytes) -> None:
    with pytest.raises(EnvelopeError, match="not a rowlock event"):
        codec.decode_event(raw)


def test_the_message_does_not_show_the_row() -> None:
    with pytest.raises(EnvelopeError) as caught:
        codec.decode_event(golden("c")[:-1])
    assert "DE02" not in str(caught.value)


@pytest.mark.parametrize(
    "decode",
    [codec.decode_watermark, codec.decode_stored_position, codec.decode_copy_request, codec.decode_table],
)
def test_damaged_records_are_refused(decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(EnvelopeError, match="damaged"):
        decode(b'{"a":')


def test_a_table_definition_comes_back() -> None:
    assert codec.decode_table(codec.encode_table(TABLE)) == TABLE
