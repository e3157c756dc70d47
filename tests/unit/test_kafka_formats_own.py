"""Tables that are written as events keep every change; the formats `rowlock` and `plain` write rows under
their routing key and read them back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.drivers.batches import build_commit
from consumer.errors import TargetConfigError
from consumer.ordering.model import EveryChange, NetChange, RowChange, TargetTable, TopicOptions
from consumer.ordering.netchange import make_reducer, may_be_anew, replace_snapshot_rows
from consumer.tables.router import (
    ResolvedRoute,
    TableRoute,
    build_topic_options,
    build_topic_table,
    resolve_route,
)
from consumer.targets.batches import TableDefined
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.formats.model import (
    FormattedRecord,
    Origin,
    Place,
    RecordFormat,
    RoutedTable,
    State,
)
from schemas.config.kinds.topics import TopicConfig
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.codec import decode_event

INT, TEXT = ColumnType(kind=Kind.INT, bits=32), ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4")
TABLE = Table(
    db="head",
    name="acct",
    columns=(Column(name="id", type=INT, nullable=False), Column(name="town", type=TEXT),
     Column(name="n", type=INT)),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
    unique=(UniqueIndex(name="town", parts=(IndexPart(column="town"),)),),
)  # fmt: skip
ORIGIN = Origin("b1", "mysql", "bank", "acct")
PLACE = Place((1, 2, 3, 4), 5, 1_000)
OLD, NEW, MOVED = (1, "Ulm", 7), (1, "Ulm", 8), (1, "Bonn", 8)


def topic(*key: int, tombstones: bool = True) -> RoutedTable:
    return RoutedTable(TABLE, key or (1,), (0,), "head.acct", ORIGIN, tombstones)


def written() -> TargetTable:
    routed = ResolvedRoute("head", "acct", topic=TopicOptions(kinds=(("b1", "mysql"),)))
    return build_topic_table(TABLE, routed, "b1", structs.replace(TABLE, db="bank", name="acct"))


def test_every_change_of_a_topic_is_kept_in_order_and_of_a_table_the_net_one() -> None:
    changes = [
        RowChange((n, 0), before, after)
        for n, (before, after) in enumerate([(None, OLD), (OLD, NEW), (NEW, None)])
    ]
    target = written()
    kept = make_reducer(target).reduce(changes)
    assert isinstance(kept, EveryChange)
    assert (kept.changes, kept.size, list(kept.rows)) == (changes, 3, [OLD, NEW])
    assert not may_be_anew(kept)
    assert replace_snapshot_rows(kept) is kept
    net = make_reducer(TargetTable(TABLE, (0,), ())).reduce(changes)
    assert isinstance(net, NetChange)
    assert (net.deletes, net.size) == ([(1,)], 1)


def test_only_the_key_of_a_topic_is_unique_and_it_is_compared_exactly() -> None:
    target = written()
    assert (target.unique_at, target.table.unique, target.key_at) == ((), (), (0,))
    assert [part.collation for part in target.table.key.parts] == [""]
    assert target.topic is not None
    assert (target.topic.name, target.topic.source, target.topic.table) == ("head.acct", "b1", "acct")


def test_a_route_says_how_its_topics_are_written() -> None:
    config = TopicConfig(
        key=["town"], where={"n": ["1", None]}, masks={"n": "*"}, columns=["id", "town", "n"]
    )
    options = build_topic_options(config, {"b1": "mysql"})
    assert (options.key, options.where) == (("town",), (("n", ("1", None)),))
    assert (options.masks, options.columns) == ((("n", "*"),), ("id", "town", "n"))
    routed = resolve_route([TableRoute("bank.*", "head.{table}", topic=options)], "b1", "bank", "acct")
    assert routed is not None
    assert routed.topic == options


def test_a_definition_is_an_entry_of_the_commit_in_its_order() -> None:
    target = written()
    write = ops.WriteChanges(EveryChange(target, []))
    changes, _ = build_commit(
        fx.Transact(0, (), [ops.PublishDefinition(target, TABLE), write, ops.TruncateTarget(target, None)])
    )
    assert changes[0] == TableDefined(target, TABLE)
    assert changes[1] is write.net


def shown(records: list[FormattedRecord]) -> list[tuple[Any, Any]]:
    return [(r.key and msgspec.json.decode(r.key), r.value and msgspec.json.decode(r.value)) for r in records]


def test_plain_rows() -> None:
    plain: RecordFormat = FORMATS["plain"](topic())
    row = {"id": 1, "town": "Ulm", "n": 8}
    ulm, bonn = {"town": "Ulm"}, {"town": "Bonn"}
    assert shown(plain.build_change_records(None, NEW, PLACE)) == [(ulm, row)]
    assert shown(plain.build_change_records(OLD, NEW, PLACE)) == [(ulm, row)]
    assert shown(plain.build_change_records(NEW, None, PLACE)) == [(ulm, None)]
    assert shown(plain.build_change_records(NEW, MOVED, PLACE)) == [
        (ulm, None),
        (bonn, {**row, "town": "Bonn"}),
    ]
    assert plain.build_clear_records(None, PLACE) == plain.build_definition_records(TABLE, PLACE) == []
    (record,) = plain.build_change_records(None, NEW, PLACE)
    assert plain.decode_state(record.key, record.value) == State(record.key, row)
    assert plain.decode_state(record.key, None) == State(record.key)
    assert plain.decode_state(None, None) is None
    with pytest.raises(TargetConfigError, match="tombstones: true"):
        FORMATS["plain"](topic(tombstones=False))


def test_the_envelope() -> None:
    own: RecordFormat = FORMATS["rowlock"](topic())
    (record,) = own.build_change_records(OLD, NEW, PLACE)
    event = decode_event(record.value or b"")
    assert (event.op, event.before, event.after) == (
        "u",
        {"id": 1, "town": "Ulm", "n": 7},
        {"id": 1, "town": "Ulm", "n": 8},
    )
    source = event.source
    assert (source.name, source.connector, source.db, source.table) == ("b1", "mysql", "bank", "acct")
    assert (source.position, source.gen, source.ts_ms, source.prev) == ((1, 2, 3, 4), 5, 1_000, None)
    (read,) = own.build_change_records(None, NEW, Place((1, 2, 3, 4), 5, 1_000, snapshot=True))
    assert (decode_event(read.value or b"").op, decode_event(read.value or b"").source.snapshot) == (
        "r",
        "true",
    )


@pytest.mark.parametrize("tombstones", [True, False])
def test_a_row_that_leaves_its_routing_key_is_deleted_there(*, tombstones: bool) -> None:
    own: RecordFormat = FORMATS["rowlock"](topic(tombstones=tombstones))
    records = own.build_change_records(NEW, MOVED, PLACE)
    assert [msgspec.json.decode(r.key or b"")["town"] for r in records] == ["Ulm"] * (1 + tombstones) + [
        "Bonn"
    ]
    assert [None if r.value is None else decode_event(r.value).op for r in records] == [
        "d",
        *[None] * tombstones,
        "c",
    ]


@pytest.mark.parametrize("word", ["rowlock", "debezium", "debezium-schemas", "canal-json"])
def test_a_primary_key_that_moves_under_one_routing_key_is_a_delete_and_a_create(word: str) -> None:
    """An update would leave the old row with every reader that keeps rows by primary key. A null value
    between them would delete all rows of the key."""
    form: RecordFormat = FORMATS[word](topic())
    missing, new = form.build_change_records(NEW, (2, *NEW[1:]), PLACE)
    assert (missing.key, missing.headers, new.headers) == (new.key, (), ()), "the key has not moved"
    first, second = form.decode_state(missing.key, missing.value), form.decode_state(new.key, new.value)
    assert first is not None
    assert second is not None
    assert (first.values, first.deleted, second.values) == (
        None,
        {"id": 1, "town": "Ulm", "n": 8},
        {"id": 2, "town": "Ulm", "n": 8},
    )
    assert len(form.build_change_records(NEW, OLD, PLACE)) == 1, "the same row"
    assert len(form.build_change_records(NEW, MOVED, PLACE)) == 3, "the same row under another key"


def test_the_state_that_envelopes_leave() -> None:
    own: RecordFormat = FORMATS["rowlock"](topic(1, 0))
    origin = ("b1", "bank", "acct")
    (created,) = own.build_change_records(None, NEW, PLACE)
    assert created.key == b'{"town":"Ulm","id":1}'
    row = {"id": 1, "town": "Ulm", "n": 8}
    assert own.decode_state(created.key, created.value) == State(created.key, row, origin=origin)
    deleted, tombstone = own.build_change_records(NEW, None, PLACE)
    assert own.decode_state(deleted.key, deleted.value) == State(
        created.key, None, origin=origin, deleted=row
    )
    assert own.decode_state(tombstone.key, tombstone.value) == State(created.key)
    (cleared,) = own.build_clear_records({"branch": "b1"}, PLACE)
    assert (cleared.key, own.decode_state(None, cleared.value)) == (
        None,
        State(None, cleared=True, origin=origin),
    )
    (defined,) = own.build_definition_records(TABLE, PLACE)
    assert (defined.key, decode_event(defined.value or b"").definition) == (None, TABLE)
    assert own.decode_state(None, defined.value) is None
