"""-0.0 and 0.0 are one key to every SQL server and to Python, and two values: no step takes a change between
them for none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import structs

from consumer.attempt.copies.window import KeyWindow, note_changes
from consumer.attempt.readers.reader import RowBatch
from consumer.ordering.dispatch import Dispatcher
from consumer.ordering.lanes.batches import PendingBatch, QuarantinedKeys, build_batch, moves_key
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress, NetChange, QuarantineEntry, RowChange
from consumer.ordering.netchange import NetChangeReducer
from consumer.ordering.tickets import TicketTable
from consumer.tables.definition import ActiveDefinition
from consumer.tables.event_decoder import make_event_decoder, make_image_converter, make_row_decoder
from consumer.tables.held_events import build_final_change
from consumer.tables.router import TableRoute, build_desired_table, build_target_table, resolve_route
from consumer.tables.stored import StoredDefinition
from consumer.targets.alterations import AddColumn
from consumer.targets.kafka.formats.model import Place
from consumer.targets.mysql.sql import build_mysql_plan
from consumer.targets.postgres.sql import build_postgres_plan
from rowlock.inspect.compare import Difference, Suspects, TableShape, compare_page
from schemas.table.equality import are_same_values
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, UniqueIndex, Value
from schemas.values.mysql import to_mysql
from schemas.values.postgres import copy_line, to_postgres
from tests.kits.alter_texts import column, in_mysql, in_postgres
from tests.kits.verify_topics import VerifiedTopic, found

DOUBLE = ColumnType(kind=Kind.DOUBLE)
SOURCE = Table(
    db="bank",
    name="acct",
    columns=(
        Column(name="f", type=DOUBLE, nullable=False),
        Column(name="d", type=DOUBLE),
        Column(name="note", type=ColumnType(kind=Kind.VARCHAR, length=20)),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="f"),)),
    unique=(UniqueIndex(name="d", parts=(IndexPart(column="d"),)),),
)


def in_force() -> ActiveDefinition:
    routed = resolve_route([TableRoute("bank.*", "public.{table}")], "b1", "bank", "acct")
    assert routed is not None
    desired = build_desired_table(SOURCE, routed)
    return ActiveDefinition(
        text="", stored=StoredDefinition(SOURCE), written=SOURCE, routed=routed, expected=desired,
        real=desired, target=build_target_table(desired, desired), decode=make_event_decoder(SOURCE),
        decode_row=make_row_decoder(SOURCE, {"f"}), row=make_image_converter(SOURCE, ()),
    )  # fmt: skip


TARGET = in_force().target
OLD, NEW = (-0.0, -0.0, "x"), (0.0, 0.0, "x")


def change(before: Row | None, after: Row | None, offset: int = 5, **more: Any) -> RowChange:
    event = {
        "op": "c" if before is None else "d" if after is None else "u",
        "before": None if before is None else dict(zip(SOURCE.column_names, before, strict=True)),
        "after": None if after is None else dict(zip(SOURCE.column_names, after, strict=True)),
        "source": {"version": "1.0", "ts_ms": 1, "db": "bank", "table": "acct", "position": [0, 1, 2, 3],
         "prev": None, "gen": 1},
    }  # fmt: skip
    return RowChange((offset, 0), before, after, (0, 1, 2, 3), wire=msgspec.json.encode(event), **more)


def same(rows: Sequence[Row], desired: Sequence[Row]) -> bool:
    """Compare by the very values: "==" would take each zero for the other."""
    return repr(rows) == repr(desired)


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)])
def test_an_update_between_zeros_is_written_in_place_with_its_new_values(before: Row, after: Row) -> None:
    for changes in ([change(before, after)], [change(before, before), change(before, after)]):
        net = NetChangeReducer(TARGET).reduce(changes)
        assert same(net.updates, [after])
        assert net.size == 1
    read = NetChangeReducer(TARGET).reduce([change(None, before, snapshot=True), change(before, after)])
    assert same(read.snapshot, [after])
    anew = NetChangeReducer(TARGET).reduce([change(before, None), change(None, after)])
    assert same(anew.replaces, [after])


def test_the_key_is_written_where_a_row_is_updated_in_place() -> None:
    assert "`f` = IF(`f` = VALUES(`f`), VALUES(`f`), `f`)" in build_mysql_plan(TARGET).on_duplicate
    assert 'SET "f" = EXCLUDED."f"' in build_postgres_plan(TARGET, 0).on_conflict
    assert 'SET "f" = EXCLUDED."f"' in build_postgres_plan(TARGET, 0).upsert_copied


def test_every_form_in_which_a_value_is_sent_keeps_the_sign() -> None:
    from consumer.targets.mysql.values import render_literal

    assert [render_literal(value) for value in to_mysql(SOURCE)(OLD)][:2] == [
        "-0.0e0",
        "-0.0e0",
    ]  # "-0.0" is a DECIMAL
    assert to_postgres(SOURCE)(OLD)[:2] == ("-0.0", "-0.0")
    assert copy_line(SOURCE)(OLD) == "-0.0\t-0.0\tx\n"


# --- the quarantine


def applied(*changes: RowChange) -> tuple[list[QuarantineEntry], list[NetChange]]:
    """Apply `changes` one by one, the first of which the target refuses. Returns the entries that are left,
    and what was applied."""
    dispatcher = Dispatcher(
        Layout(lanes=1), TicketTable(1), [LaneProgress(0, 1, 1, "", -1, (0, 0, 0, 0), 0, "")]
    )
    plan = dispatcher.plan_table(TARGET)
    dispatcher.dispatch(plan, changes)
    [items] = dispatcher.take_queued()
    keys, entries, nets = QuarantinedKeys([]), list[QuarantineEntry](), list[NetChange]()
    for at, item in enumerate(items):
        refused = {} if at else {int(moves_key(item[0], plan)): "too long"}
        batch = build_batch(PendingBatch([item], refused=refused), 0, keys)
        keys.record_commit(batch)
        changes = batch.quarantine
        entries = [
            each for each in [*entries, *changes.added] if (each.offset, each.part) not in changes.closed
        ]
        nets += [net for net in batch.nets if isinstance(net, NetChange)]
    return entries, nets


@pytest.mark.parametrize("later", [False, True])
def test_a_retry_of_a_refused_change_between_zeros_leaves_the_new_row(*, later: bool) -> None:
    """Recorded under the key of before, it would be taken for a row that moved away: a retry would delete
    it."""
    last = (0.0, 7.0, "y")
    changes = [change(OLD, NEW), *([change(NEW, last, 6)] if later else [])]
    entries, nets = applied(*changes)
    assert {entry.key for entry in entries} == {"[0.0]"}
    assert not [row for net in nets for row in net.rows]
    retried = build_final_change(in_force(), entries)
    assert same(list(retried.rows), [last if later else NEW])
    assert retried.deletes == []


def test_a_refused_row_is_free_once_its_zero_has_changed() -> None:
    entries, nets = applied(change(None, OLD), change(OLD, NEW, 6))
    assert entries == []
    assert same([row for net in nets for row in net.rows], [NEW])


# --- copies


def test_a_zero_that_was_given_up_does_not_live() -> None:
    noted: list[tuple[Key, bool]] = []
    note_changes([change(OLD, NEW)], lambda row: row[:1], lambda *each: noted.append(each))
    living = {msgspec.json.encode(key): lives for key, lives in noted}
    assert living == {b"[-0.0]": False, b"[0.0]": True}
    window = KeyWindow(TARGET, 1)
    window.note_taken(RowBatch([change(None, OLD, 2), change(OLD, NEW, 3)], (3, (0, 1, 2, 3), 1, 1)))
    assert same(window.list_living_keys(1), [(0.0,)])


# --- verify


def test_a_source_that_changed_its_zero_meanwhile_settles() -> None:
    shape = TableShape.from_table(TARGET)
    suspects = Suspects(shape, 9)
    source, target = {(0.0,): (1.0, -0.0, "x")}, {(0.0,): (1.0, 5.0, "x")}
    suspects.add_findings(compare_page(shape, source, target), source, target)
    now = {(0.0,): (1.0, 0.0, "x")}
    suspects.observe_keys([(0.0,)], now, now)
    assert suspects.findings == []


def test_a_zero_of_the_other_sign_is_a_difference() -> None:
    source, target = {(-0.0,): OLD}, {(0.0,): NEW}
    [finding] = compare_page(TableShape.from_table(TARGET), source, target)
    assert (finding.kind, finding.columns) == (Difference.DIFFERENT, ("f", "d"))


# --- topics

KEYED = Table(
    db="bank",
    name="acct",
    columns=(
        Column(name="f", type=DOUBLE, nullable=False),
        Column(name="town", type=ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4")),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="f"),)),
)
TELLING = ["rowlock", "debezium", "debezium-schemas", "canal-json"]


def moved(word: str, *key: str) -> VerifiedTopic:
    """A topic that follows an update from -0.0 to 0.0."""
    verified = VerifiedTopic(word, table=KEYED, key=key)
    verified.put(-0.0, "Ulm")
    before = verified.rows.pop(-0.0)
    verified.rows[0.0] = (0.0, "Ulm")
    verified.change(before, verified.rows[0.0])
    return verified


@pytest.mark.parametrize("word", [*TELLING, "plain"])
def test_a_topic_has_the_row_of_the_new_zero_alone(word: str) -> None:
    for key in ((), ("town",)) if word != "plain" else ((),):
        assert moved(word, *key).verify().equal


@pytest.mark.parametrize("word", TELLING)
def test_a_row_under_the_zero_that_is_no_more_is_found(word: str) -> None:
    verified = moved(word, "town")
    verified.change(None, (-0.0, "Ulm"))
    assert [kind for kind, _, _ in found(verified.verify())] == [Difference.EXTRA]


@pytest.mark.parametrize("word", ["rowlock", "debezium", "canal-json"])
def test_a_net_change_deletes_the_row_of_the_other_zero(word: str) -> None:
    """As a retry writes it, or the end of a copy."""
    verified = VerifiedTopic(word, table=KEYED, key=("town",))
    verified.put(-0.0, "Ulm")
    there = [{"f": -0.0, "town": "Ulm"}]

    class Contents:
        def yield_rows(self, keys: Sequence[Key]) -> list[dict[str, Value]]:
            return [row for row in there if any(are_same_values((row["f"],), key) for key in keys)]

    verified.rows = {0.0: (0.0, "Ulm")}
    net = NetChange(verified.written, deletes=[(-0.0,)], replaces=[(0.0, "Ulm")])
    contents: Any = Contents()
    verified.emit(verified.records().yield_records(net, Place((0, 1, 9, 0), 1, 1), lambda: contents))
    assert verified.verify().equal


def test_canal_names_a_column_whose_zero_changed_as_changed() -> None:
    table = structs.replace(KEYED, columns=(*KEYED.columns, Column(name="d", type=DOUBLE)))
    verified = VerifiedTopic("canal-json", table=table)
    verified.put(1.0, "Ulm", -0.0)
    verified.put(1.0, "Ulm", 0.0)
    message = msgspec.json.decode(verified.topic[-1][2] or b"")
    assert (message["old"], message["data"][0]["d"]) == ([{"d": "-0.0"}], "0.0")


# --- changes of tables


def test_a_column_whose_rows_have_negative_zero_is_added_with_it() -> None:
    required = AddColumn(column("n", DOUBLE, null=False), fill=-0.0)
    assert "DEFAULT -0.0e0" in in_mysql(required)[0]
    assert "DEFAULT '-0.0'" in in_postgres(required)[0]
    positive = AddColumn(column("n", DOUBLE, null=False, default="-0"), fill=0.0)
    assert "SET DEFAULT -0.0e0" in in_mysql(positive)[1]
