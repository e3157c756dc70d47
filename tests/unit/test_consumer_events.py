"""The fast decoder of row events against the general one, and what it leaves to it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.tables.event_decoder import (
    ROW_EVENT_OPS,
    make_event_decoder,
    make_image_converter,
    make_row_decoder,
)
from schemas.errors import EnvelopeError
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex, Value
from schemas.wire.codec import encode_event_value
from schemas.wire.debezium import ConnectorModes, DebeziumDecoder
from schemas.wire.event import ENVELOPE_VERSION
from tests.kits.apply import FakeSource, account_table

TABLE = account_table()
KEPT = {"id", "email"}


def history(numbers: list[int]) -> list[bytes]:
    source = FakeSource()
    events = [source.put(source.row(n % 5, f"{n}@x" if n % 3 else None, n)) for n in numbers]
    events += [source.delete(key) for key in list(source.rows)]
    return [encode_event_value(event) for event in events]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_both_decoders_agree_in_all_that_is_asked_for(numbers: list[int]) -> None:
    general, fast, row = (
        make_event_decoder(TABLE),
        make_row_decoder(TABLE, KEPT),
        make_image_converter(TABLE, (("branch", "b1"),)),
    )
    for raw in history(numbers):
        whole, found = general(raw), fast(raw)
        assert (found.op, found.source.position, found.source.prev, found.source.gen, found.source.ts_ms) == (
            whole.op, whole.source.position, whole.source.prev, whole.source.gen, whole.source.ts_ms
        )  # fmt: skip
        assert (found.after is None) == (whole.after is None)
        if whole.after is not None:
            assert row(found.after) == row(whole.after)
        assert (found.before is None) == (whole.before is None)
        if whole.before is not None:
            kept = [
                v if n in KEPT else None for n, v in zip(TABLE.column_names, row(whole.before), strict=False)
            ]
            assert row(found.before) == (*kept, "b1")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":"%s"' % ENVELOPE_VERSION.encode(), b'"version":"1.9"'),
        (b'"table":"acct"', b'"table":"other"'),
        (b'"op":"c"', b'"op":"m"'),
        (b'"owner":', b'"owned":'),
    ],
)
def test_the_fast_decoder_refuses_what_is_not_a_row_of_this_table(old: bytes, new: bytes) -> None:
    raw = history([1])[0]
    fast = make_row_decoder(TABLE, KEPT)
    assert fast(raw).op in ROW_EVENT_OPS
    assert old in raw
    with pytest.raises(msgspec.DecodeError):
        fast(raw.replace(old, new))


@pytest.mark.parametrize("name", ["c1", " ", "  1", "      1", "a column of many letters"])
def test_a_column_may_be_called_like_a_field_of_ours(name: str) -> None:
    table = Table(
        db="d",
        name="t",
        columns=tuple(Column(name=n, type=ColumnType(kind=Kind.INT, bits=32)) for n in ("id", name)),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
    )
    source = '{"version":"1.0","ts_ms":1,"db":"d","table":"t","position":[0,1,2,3],"prev":null,"gen":1}'
    raw = f'{{"op":"u","before":{{"id":1,"{name}":2}},"after":{{"id":1,"{name}":3}},"source":{source}}}'.encode()  # noqa: E501
    event, row = make_row_decoder(table, {"id"})(raw), make_image_converter(table, ())
    assert (row(event.before), row(event.after)) == ((1, None), (1, 3))


HOSTILE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(st.lists(HOSTILE, min_size=1, max_size=4, unique=True))
def test_a_column_may_have_any_name(names: list[str]) -> None:
    """A quotation mark or a backslash in one once ended apply for ever."""
    table = Table(
        db="d",
        name=names[0],
        columns=tuple(Column(name=n, type=ColumnType(kind=Kind.INT, bits=32)) for n in names),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column=names[0]),)),
    )
    source = FakeSource(table)
    values: dict[str, Value] = {name: number for number, name in enumerate(names)}
    raw = encode_event_value(source.event("u", values, values))
    row = make_image_converter(table, (("branch", "b1"),))
    for decode in (make_event_decoder(table), make_row_decoder(table, set(names))):
        event = decode(raw)
        assert row(event.before) == row(event.after) == (*range(len(names)), "b1")
    fewer = encode_event_value(source.event("c", None, dict.fromkeys(names[1:], 1)))
    for decode in (make_event_decoder(table), make_row_decoder(table, set(names))):
        with pytest.raises(msgspec.DecodeError):
            decode(fewer)


@given(st.lists(HOSTILE, min_size=2, max_size=4, unique=True))
def test_a_column_of_debeziums_may_have_any_name(names: list[str]) -> None:
    table = Table(
        db="d",
        name="t",
        columns=tuple(Column(name=n, type=ColumnType(kind=Kind.INT, bits=32)) for n in names),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column=names[0]),)),
    )
    decode = DebeziumDecoder(table, ConnectorModes())
    source = {"db": "d", "table": "t", "ts_ms": 1, "file": "b.000001", "pos": 4, "row": 0}

    def event(*columns: str) -> bytes:
        image = {name: number for number, name in enumerate(columns)}
        return msgspec.json.encode({"op": "c", "source": source, "before": None, "after": image})

    assert decode(event(*names)).after == tuple(range(len(names)))
    for other in (names[1:], [*names, "".join(names) + "x"]):
        with pytest.raises(EnvelopeError, match=r"no column|a column"):
            decode(event(*other))
