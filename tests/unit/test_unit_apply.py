"""One topic in one attempt (consumer.attempt), against a target in memory."""

from __future__ import annotations

import json
import random
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace as replaced
from structlog.testing import capture_logs

from consumer.attempt.readers.reader import EnvelopeReader, RowBatch
from consumer.attempt.reports import CopyNeed
from consumer.errors import CommitUnknownError, RefusedError, TransientError
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import RowChange
from consumer.tables.evolution.decisions import KeepDefinition, NeedsCopy, judge_table_event
from consumer.tables.router import TableRoute
from schemas.findings import START_OVER
from schemas.problems import decode_problem
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.wire.codec import encode_event_value
from schemas.wire.event import EventEnvelope, Undecodable
from schemas.wire.records import TableStop
from tests.kits.apply import FakeSource, account_table
from tests.kits.unit_apply import ROUTES, Bench, rows_of, started, with_generated
from tests.stands.fake_target import ConnectionFaultError, FakeSession


def test_rows_that_nobody_could_apply_are_never_taken_for_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader gives no rows while no definition is active; should one do so, the unit stops and its lanes
    stay."""
    bench = Bench()
    bench.topic = [b"{}"]
    rows = RowBatch([RowChange((0, 0), None, (1,))], (0, (0, 1, 1, 0), 1, 0))
    monkeypatch.setattr(EnvelopeReader, "read_slice", lambda *_: iter([rows]))
    report = bench.apply()
    assert (report.state, report.applied, bench.offsets()) == ("stopped", 0, [-1, -1, -1])
    assert "without a table definition" in report.message


def test_a_new_table_is_read_once_after_it_was_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it took most of the time of a unit's first attempt, and a start may have thousands."""
    found = []
    read = FakeSession.read_table

    def count(self: FakeSession, schema: str, name: str) -> Table | None:
        found.append(read(self, schema, name))
        return found[-1]

    monkeypatch.setattr(FakeSession, "read_table", count)
    bench, source = started()
    bench.write(source.history(random.Random(3), 30))
    assert bench.apply().state == "ok"
    assert [each is not None for each in found].count(True) == 1
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_history_ends_as_the_source(short: int, lanes: int) -> None:
    bench, source = started(lanes=lanes, small_batch=short)
    bench.write(source.history(random.Random(3), 300))
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert bench.offsets() == [len(bench.topic) - 1] * lanes


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    lanes=st.integers(1, 5),
    short=st.sampled_from([0, 500]),
    gather=st.sampled_from([1, 3, 5000]),
    cuts=st.lists(st.integers(0, 120), max_size=4),
)
def test_any_batches_and_any_replay_end_as_the_source(
    seed: int, lanes: int, short: int, gather: int, cuts: list[int]
) -> None:
    """Batches that begin before, at or after the progress: covered is dropped, missing is read from Kafka."""
    bench, source = started(lanes=lanes, small_batch=short, limits=LaneLimits(max_gather=gather, pause=0.001))
    bench.write(source.history(random.Random(seed), 60, keys=6))
    whole = bench.topic
    for cut in [*cuts, len(whole)]:
        bench.topic = whole[: max(cut, 1)]
        assert bench.apply(max(0, cut - 30)).state == "ok"
    bench.topic = whole
    assert bench.apply(len(whole) - 1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert set(bench.offsets()) == {len(whole) - 1}


def test_a_small_batch_is_one_transaction_of_all_lanes() -> None:
    bench, source = started(lanes=3)
    assert bench.apply().state == "ok"
    before = bench.target.commits
    bench.write(source.history(random.Random(1), 40))
    bench.apply(1)
    assert bench.target.commits == before + 1
    assert bench.target.log[-1] == (0, 1, 2)


def test_a_stretch_written_again_changes_nothing_and_is_covered() -> None:
    bench, source = started()
    events = source.history(random.Random(5), 100, keys=8)
    bench.write(events)
    bench.write(events[20:])
    report = bench.apply()
    assert (report.applied, report.dropped) == (101, 80)
    assert bench.target.rows_of() == rows_of(source)
    assert bench.offsets() == [180] * 3


def test_a_zombie_of_an_older_gen_is_dropped() -> None:
    bench, source = started()
    source.gen = 2
    bench.write([source.put(source.row(1, "a@x", 1))])
    zombie = FakeSource(pos=900, gen=1)
    bench.write([zombie.put(zombie.row(1, "old@x", 0))])
    report = bench.apply()
    assert report.dropped == 1
    assert bench.target.rows_of() == rows_of(source)


def test_a_gap_stops_the_unit_after_what_came_before() -> None:
    bench, source = started()
    good = source.put(source.row(1, "a@x", 1))
    source.put(source.row(2, "b@x", 1))  # never written: lost on the way
    bench.write([good, source.put(source.row(3, "c@x", 1))])
    report = bench.apply()
    assert report.state == "stopped"
    assert "gap" in report.message
    assert bench.target.state.unit.stopped == report.message
    assert [row[0] for row in bench.target.rows_of()] == [1]
    assert set(bench.offsets()) == {1}


def test_a_stopped_unit_goes_on_where_it_stopped_once_the_cause_is_gone() -> None:
    bench, source = started()
    lost = source.put(source.row(2, "b@x", 1))
    bench.write([late := source.put(source.row(3, "c@x", 1))])
    assert bench.apply().state == "stopped"
    del bench.topic[-1]
    bench.write([lost, late])
    bench.take_over()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("ddl", ["ALTER TABLE acct ADD x INT", "RENAME TABLE acct TO b"])
def test_a_changed_definition_stops_the_unit_before_it(ddl: str) -> None:
    bench, source = started(routes=(TableRoute("bank.*", "public.{table}", policy="stop"),))
    table = source.table
    wider = Table(
        db=table.db,
        name=table.name,
        columns=(*table.columns, Column(name="x", type=ColumnType(kind=Kind.INT, bits=32))),
        key=table.key,
        unique=table.unique,
    )
    bench.write(
        [
            source.put(source.row(1, None, 1)),
            source.definition(ddl, wider),
            source.put(source.row(2, None, 1)),
        ]
    )
    report = bench.apply()
    assert report.state == "stopped"
    assert ddl in report.message
    assert set(bench.offsets()) == {1}
    bench.take_over()  # a restart meets it again: its position was not written
    assert bench.apply(2).message == report.message


def test_an_equal_definition_changes_nothing() -> None:
    bench, source = started()
    bench.write([source.put(source.row(1, None, 1)), source.definition(), source.put(source.row(2, None, 1))])
    assert bench.apply().state == "ok"
    assert len(bench.target.rows_of()) == 2


def test_a_stop_in_the_topic_stops_the_unit_there() -> None:
    bench, source = started()
    stop = TableStop(
        cause="dropped", at=(0, 1, 500, -1), file="binlog.000001", pos=500,
        reason="bank.acct was dropped: DROP TABLE acct", remedy=START_OVER, since_ms=7,
    )  # fmt: skip
    bench.write(
        [source.put(source.row(1, None, 1)), source.event("m", stop=stop), source.put(source.row(2, None, 1))]
    )
    report = bench.apply()
    assert report.state == "stopped"
    assert str(decode_problem(report.message)).endswith(
        "bank.acct was dropped: DROP TABLE acct: rowlock copy bank.acct"
    )
    assert report.copy == CopyNeed(2, "dropped")
    assert len(bench.target.rows_of()) == 1, "everything before it is applied"
    bench.take_over()
    assert bench.apply(2).message == report.message


def test_a_stop_stops_also_a_unit_that_has_no_definition_yet() -> None:
    bench, source = Bench(), FakeSource()
    stop = TableStop(
        cause="unfit",
        at=(0, 1, 5, -1),
        file="f.1",
        pos=5,
        reason="bank.acct has no key",
        remedy="add one",
        since_ms=7,
    )
    bench.write([source.event("m", stop=stop)])
    report = bench.apply()
    assert report.state == "stopped"
    assert str(decode_problem(report.message)).endswith(
        "bank.acct has no key: add one, then rowlock copy bank.acct"
    )


@pytest.mark.parametrize(("effect", "goes_on"), [("kept", True), (None, False), ("emptied", False)])
def test_a_statement_under_an_equal_definition_must_say_that_it_kept_the_rows(
    effect: str | None, goes_on: bool
) -> None:
    """Events of older versions say nothing: DROP PARTITION and the like were passed over."""
    bench, source = started()
    ddl = "ALTER TABLE acct DROP PARTITION p0"
    first = source.put(source.row(1, None, 1))
    event = source.event("m", definition=source.table, ddl=ddl, effect=effect)
    bench.write([first, event, source.put(source.row(2, None, 1))])
    report = bench.apply()
    assert report.state == ("ok" if goes_on else "stopped")
    assert goes_on or ddl in report.message
    assert len(bench.target.rows_of()) == (2 if goes_on else 1)


def test_expressions_that_an_older_topic_lacks_are_learnt_and_then_compared() -> None:
    """Capture was older than the expressions, and is upgraded: its next definition is no change, the one
    after it is."""
    source = FakeSource()
    old, now = with_generated(source.table, None), with_generated(source.table, "a + 1")
    found = judge_table_event(old, source.definition(None, now), "evolve")
    assert found == KeepDefinition(now)
    assert judge_table_event(now, source.definition(None, now), "evolve") == KeepDefinition()
    for known, then in ((now, with_generated(source.table, "a + 100")), (old, source.table)):
        assert isinstance(judge_table_event(known, source.definition(None, then), "evolve"), NeedsCopy)


def test_rows_before_any_definition_stop_the_unit() -> None:
    bench, source = Bench(), FakeSource()
    bench.write([source.put(source.row(1, None, 1))])
    report = bench.apply()
    assert report.state == "stopped"
    assert "definition" in report.message
    assert set(bench.offsets()) == {-1}


def test_truncate_deletes_only_the_rows_of_this_source() -> None:
    bench, source = started(routes=(TableRoute("bank.*", "public.{table}", (("branch", "{source}"),)),))
    bench.write([source.put(source.row(1, "a@x", 1)), source.truncate(), source.put(source.row(2, "a@x", 2))])
    other = (1, "a@x", "o", "1.00", 1, "2026-01-01 00:00:00.000000", "", "branch2")
    bench.target.state.rows["public.acct"] = {("branch2", 1): other}
    assert bench.apply().state == "ok"
    assert [(row[0], row[-1]) for row in bench.target.rows_of()] == [(1, "branch2"), (2, "branch1")]


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("slice_size", [50, 3, 1])
def test_rows_before_a_truncate_in_one_batch_are_gone_behind_it(
    short: int, lanes: int, slice_size: int
) -> None:
    bench, source = started(lanes=lanes, small_batch=short)
    bench.write([source.put(source.row(key, f"{key}@x", 1)) for key in range(6)])
    bench.write([source.truncate()])
    bench.write([source.put(source.row(key, f"{key + 1}@x", 2)) for key in (2, 7)])
    bench.write([source.truncate(), source.put(source.row(9, "2@x", 3))])
    report = bench.apply(slice_size=slice_size)
    assert (report.state, report.displaced, report.held) == ("ok", 0, 0)
    assert bench.target.rows_of() == rows_of(source)
    assert [row[0] for row in bench.target.rows_of()] == [9]
    assert set(bench.offsets()) == {len(bench.topic) - 1}


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_row_lost_inside_a_transaction_stops_the_unit_before_what_follows(lost: int) -> None:
    bench, source = started()
    events, previous = [], source.previous
    for number in range(5):  # rows 0 to 4 of one transaction
        event = source.put(source.row(number, None, 1))
        place = replaced(event.source, position=(0, 1, 500, number), row=number, prev=previous)
        events.append(replaced(event, source=place))
        previous = place.position
    bench.write([*events[:lost], *events[lost + 1 :]])
    report = bench.apply()
    assert (report.state, "gap" in report.message) == ("stopped", True)
    assert [row[0] for row in bench.target.rows_of()] == list(range(lost))


def test_another_topic_under_the_same_name_stops_the_unit() -> None:
    bench, source = started()
    bench.write([source.put(source.row(1, None, 1))])
    report = bench.apply(topic_id="another")
    assert report.state == "stopped"
    assert "created again" in report.message


def test_a_fenced_attempt_writes_nothing() -> None:
    bench, source = started()
    assert bench.apply().state == "ok"
    bench.write([source.put(source.row(1, None, 1))])
    FakeSession(bench.target).take_over(bench.unit, "id", "", 3)
    assert bench.apply(1).state == "fenced"
    assert bench.target.rows_of() == []


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("happened", [True, False])
def test_after_a_commit_of_unknown_outcome_the_row_decides(short: int, happened: bool) -> None:
    bench, source = started(lanes=2, small_batch=short)
    assert bench.apply().state == "ok"
    bench.write(source.history(random.Random(2), 30))
    bench.target.unknown_happened = happened
    bench.target.faults = [CommitUnknownError("lost"), CommitUnknownError("lost")]
    assert bench.apply(1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_transient_errors_are_tried_again_and_bounded() -> None:
    bench, source = started()
    assert bench.apply().state == "ok"
    bench.write(source.history(random.Random(2), 30))
    bench.target.faults = [TransientError("deadlock")] * 3
    assert bench.apply(1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    bench.write(source.history(random.Random(4), 30))
    bench.target.faults = [TransientError("down")] * 1000
    report = bench.apply(len(bench.topic) - 1)
    assert report.state == "behind"
    bench.target.faults = []
    assert bench.apply(len(bench.topic) - 1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_a_target_that_is_down_at_the_beginning_leaves_the_unit_behind() -> None:
    bench, _ = started()
    bench.target.faults = [ConnectionFaultError("refused")] * 10
    assert bench.apply().state == "behind"


@pytest.mark.parametrize("short", [0, 500])
def test_a_refused_row_is_held_until_its_key_has_a_row_that_fits(short: int) -> None:
    bench, source = started(small_batch=short)
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    poison = {**source.row(7, "p@x", 1), "owner": "poison"}
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(5)])
    bench.write([source.put(poison)])
    bench.write([source.put(source.row(n, f"{n}@x", 3)) for n in range(5)])
    with capture_logs() as logs:
        report = bench.apply()
    assert [entry for entry in logs if "quarantined" in entry["event"]] == [
        {
            "event": "row quarantined", "log_level": "warning", "pipeline": "p", "topic": "t",
            "table": "public.acct", "key": "[7]", "first_event": "6.0", "reason": ANY, "remedy": ANY,
        }
    ]  # fmt: skip
    assert (report.state, report.held) == ("ok", 1)
    assert {(row[0], row[4]) for row in bench.target.rows_of()} == {(n, 3) for n in range(5)}
    assert "too long" in bench.target.state.held[6, 0].error
    bench.write([source.put({**poison, "version": 2}), source.put(source.row(8, None, 1))])
    with capture_logs() as logs:
        assert bench.apply(len(bench.topic) - 2).state == "ok"
    assert not [entry for entry in logs if "quarantined" in entry["event"]], "nothing new is refused"
    assert sorted(bench.target.state.held) == [(6, 0), (12, 0)]
    assert "too long" in bench.target.state.held[12, 0].error
    assert [row[0] for row in bench.target.rows_of()] == [0, 1, 2, 3, 4, 8]
    bench.write([source.put({**poison, "owner": "fine", "version": 3})])
    assert bench.apply(len(bench.topic) - 1).state == "ok"
    assert bench.target.state.held == {}
    assert [row[0] for row in bench.target.rows_of()] == [0, 1, 2, 3, 4, 7, 8]


RAW = {"undecodable": "qqE="}


def test_a_key_that_an_older_version_holds_is_not_overtaken_after_an_upgrade() -> None:
    """The older version folded otherwise, and so sent keys to other lanes; the lanes stood equal when it
    ended."""
    bench, source = started()
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    poison = {**source.row(7, "p@x", 1), "owner": "poison"}
    bench.write([source.put(poison), source.put(source.row(8, None, 1))])
    assert bench.apply().held == 1
    state, offset = bench.target.state, len(bench.topic)
    state.held = {at: structs.replace(entry, folded="3f3f") for at, entry in state.held.items()}
    older = replaced(Layout.decode(state.lanes[0].layout), fold=1).encode()
    state.lanes = {lane: structs.replace(row, layout=older) for lane, row in state.lanes.items()}
    bench.tables.clear()
    bench.write([source.put({**poison, "version": 2}), source.put(source.row(9, None, 1))])
    report = bench.apply(offset)
    assert (report.state, report.held) == ("ok", 1), report
    assert sorted(bench.target.state.held) == [(offset - 2, 0), (offset, 0)]
    assert [row[0] for row in bench.target.rows_of()] == [8, 9]
    assert Layout.decode(bench.target.state.lanes[0].layout).computable


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("column", ["note", "email"])
def test_a_row_with_a_value_that_cannot_be_decoded_is_held_and_the_rest_goes_on(
    short: int, column: str
) -> None:
    """`email` has a unique index: what cannot be decoded takes no unique value, and gives up none."""
    bench, source = started(small_batch=short, lanes=3)
    good = {**source.row(7, "p@x", 1)}
    odd = {**good, column: RAW, "version": 2}
    marked = Undecodable(after=(column,))
    mended = {**good, column: "now fine", "version": 3}
    moved = {**source.row(3, "3@x", 1), column: RAW, "id": 30}
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(5)])
    bench.write(
        [
            source.event("c", None, {**odd, "id": 6}, undecodable=marked),
            source.put(good),
            source.event("u", good, odd, undecodable=marked),
            source.event("u", odd, mended, undecodable=Undecodable(before=(column,))),
            source.event("u", source.row(3, "3@x", 1), moved, undecodable=marked),
            source.put(source.row(8, "8@x", 1)),
        ]
    )
    report = bench.apply()
    assert (report.state, report.held) == ("ok", 4), report
    held = bench.target.state.held
    assert sorted(held) == [(6, 0), (10, 1)]
    assert held[6, 0].error.startswith(f"column {column}: its bytes at the source are not valid utf8mb4: ")
    assert json.loads(held[6, 0].event)["after"][column] == RAW, "as it is"
    assert held[10, 1].key == "[30]"
    assert {(row[0], row[4]) for row in bench.target.rows_of()} == {
        (0, 1), (1, 1), (2, 1), (4, 1), (7, 3), (8, 1)
    }, "the row that moved is gone from its old key"  # fmt: skip
    bench.write(
        [
            source.event(
                "d", {**source.row(4, "4@x", 1), column: RAW}, None, undecodable=Undecodable(before=(column,))
            )
        ]
    )
    assert bench.apply(len(bench.topic) - 1).state == "ok"
    assert 4 not in {row[0] for row in bench.target.rows_of()}, "a row that goes needs no value"


def test_a_row_with_a_value_that_cannot_be_decoded_comes_twice_and_counts_once() -> None:
    """Capture sends at least once: the second one is dropped as any other is, and not held again."""
    bench, source = started()
    odd = source.event(
        "c", None, {**source.row(1, None, 1), "note": RAW}, undecodable=Undecodable(after=("note",))
    )
    bench.write([odd, odd])
    report = bench.apply()
    assert (report.state, report.held, report.dropped) == ("ok", 1, 1)


def test_a_key_that_cannot_be_decoded_stops_the_unit() -> None:
    bench, source = started()
    bench.write([source.put(source.row(1, None, 1))])
    bench.write(
        [
            source.event(
                "c", None, {**source.row(2, None, 1), "id": RAW}, undecodable=Undecodable(after=("id",))
            )
        ]
    )
    report = bench.apply()
    assert report.state == "stopped"
    assert "offset 2: the value of key column id cannot be decoded at the source" in report.message
    assert len(bench.target.rows_of()) == 1, "what came before is applied"


def test_a_row_with_a_value_that_cannot_be_decoded_before_any_definition_stops_the_unit() -> None:
    bench, source = Bench(), FakeSource()
    marked = {**source.row(2, None, 1), "email": RAW}
    bench.write([source.event("c", None, marked, undecodable=Undecodable(after=("email",)))])
    report = bench.apply()
    assert (report.state, bench.offsets()) == ("stopped", [-1, -1, -1])
    assert "without a table definition" in report.message


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_truncate_ends_what_the_quarantine_holds(short: int, batches: int) -> None:
    """Else `retry` brings a deleted row back, and the key stays held for ever. In one batch, and over
    several."""
    bench, source = started(small_batch=short)
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    poison = {**source.row(7, "p@x", 1), "owner": "poison"}
    parts: list[list[EventEnvelope]] = [
        [source.put(poison), source.put({**poison, "version": 2}), source.put(source.row(1, None, 1))],
        [source.truncate()],
        [source.put(source.row(7, "p@x", 3)), source.put({**poison, "id": 8, "email": None})],
    ]
    reports = []
    for at, part in enumerate(parts):
        start = len(bench.topic)
        bench.write(part)
        if at + 1 > len(parts) - batches:
            reports.append(bench.apply(start if batches == 3 else 0))
    assert {report.state for report in reports} == {"ok"}
    assert sum(report.held for report in reports) == 3, "also what was held before the statement"
    assert [row[0] for row in bench.target.rows_of()] == [7], "the key is held no more"
    assert [entry.offset for entry in bench.target.state.held.values()] == [6], "what came later is held"
    assert [(entry.offset, why) for entry, why in bench.target.state.closed] == [
        (offset, "the source's table was emptied at offset 4") for offset in (1, 2)
    ], "kept as history"


@pytest.mark.parametrize(("replace", "displaced"), [(True, 1), (False, 0)])
def test_drift_is_displaced_or_quarantined(replace: bool, displaced: int) -> None:
    bench, source = started(replace=replace)
    bench.apply()
    stranger = (99, "a@x", "stranger", "1.00", 1, "2026-01-01 00:00:00.000000", "")
    bench.target.state.rows["public.acct"] = {(99,): stranger}
    bench.write([source.put(source.row(1, "a@x", 1))])
    with capture_logs() as logs:
        report = bench.apply(1)
    assert (report.state, report.displaced) == ("ok", displaced)
    assert [entry for entry in logs if "displaced" in entry["event"]] == [
        {
            "event": "rows displaced", "log_level": "warning", "pipeline": "p", "topic": "t",
            "table": "public.acct", "rows": 1, "first_event": "1.0", "event_keys": [(1,)], "remedy": ANY,
        }
    ][:displaced]  # fmt: skip
    assert len(bench.target.state.displaced) == displaced
    assert [row[0] for row in bench.target.rows_of()] == ([1] if replace else [99])
    assert len(bench.target.state.held) == (0 if replace else 1)


@pytest.mark.parametrize(
    "fault",
    [TransientError("deadlock"), CommitUnknownError("cut"), CommitUnknownError("cut, but it happened")],
)
def test_displaced_rows_count_once_and_only_when_committed(fault: Exception) -> None:
    bench, source = started()
    bench.apply()
    stranger = (99, "a@x", "stranger", "1.00", 1, "2026-01-01 00:00:00.000000", "")
    bench.target.state.rows["public.acct"] = {(99,): stranger}
    bench.target.faults = [fault]  # no transaction before the displacing one gets as far as its commit
    bench.target.unknown_happened = "happened" in str(fault)
    bench.write([source.put(source.row(1, "a@x", 1))])
    with capture_logs() as logs:
        report = bench.apply(1)
    assert bench.target.faults == []
    assert (report.state, report.displaced, len(bench.target.state.displaced)) == ("ok", 1, 1)
    assert len([entry for entry in logs if "displaced" in entry["event"]]) == 1


def test_rows_displaced_before_the_unit_stops_are_reported_with_the_stop() -> None:
    bench, source = started()
    bench.apply()
    stranger = (99, "a@x", "stranger", "1.00", 1, "2026-01-01 00:00:00.000000", "")
    bench.target.state.rows["public.acct"] = {(99,): stranger}
    bench.write([source.put(source.row(1, "a@x", 1))])
    bench.topic.append(b"no event")
    report = bench.apply(1)
    assert (report.state, report.displaced) == ("stopped", 1)


def test_another_number_of_lanes_first_finishes_with_the_stored_layout() -> None:
    bench, source = started(lanes=4)
    bench.apply()
    bench.write(source.history(random.Random(8), 60, keys=10))
    bench.target.faults = [None, None, TransientError("x"), *([TransientError("x")] * 200)]
    bench.more["small_batch"] = 0
    bench.more["limits"] = LaneLimits(max_gather=3, pause=0.001)
    assert bench.apply(1).state == "behind"
    assert len(set(bench.offsets())) > 1, "the lanes must stand apart for this test"
    bench.target.faults = []
    bench.lanes = 2
    bench.take_over()
    bench.write(source.history(random.Random(9), 20, keys=10))
    assert bench.apply(len(bench.topic) - 1).state == "ok"
    assert len(bench.offsets()) == 2
    assert bench.target.rows_of() == rows_of(source)


def test_a_snapshot_displaces_nothing_without_a_record() -> None:
    bench, source = started()
    bench.apply()
    bench.target.state.rows["public.acct"] = {
        (99,): (99, "a@x", "left over", "1.00", 1, "2026-01-01 00:00:00.000000", "")
    }
    bench.write([source.put(source.row(1, "a@x", 1), "r"), source.chunk_end(1)])
    with capture_logs() as logs:
        report = bench.apply(1)
    assert (report.state, report.displaced) == ("ok", 1)
    assert len([entry for entry in logs if "displaced" in entry["event"]]) == 1
    assert bench.target.rows_of() == rows_of(source)
    assert [row[0] for row in bench.target.state.displaced] == [99]


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("parts", [1, 2], ids=["one-chunk", "two-chunks-and-a-restart"])
def test_rows_of_one_snapshot_that_collide_at_the_target_are_all_kept_somewhere(
    short: int, parts: int
) -> None:
    """The source allows both (another collation, say), the target's unique index does not."""
    bench, source = started(small_batch=short)
    bench.apply()
    rows = [source.row(key, "a@x" if key in (2, 7) else f"{key}@x", 1) for key in range(1, 9)]
    size = len(rows) // parts
    for at in range(0, len(rows), size):
        begin = len(bench.topic)
        bench.write([source.put(row, "r") for row in rows[at : at + size]])
        bench.write([source.chunk_end(at // size + 1)])
        assert bench.apply(begin).state == "ok"
        bench.take_over()
    there = {row[0] for row in bench.target.rows_of()}
    kept = [row[0] for row in bench.target.state.displaced]
    assert (sorted([*there, *kept]), len(kept)) == (list(range(1, 9)), 1)


def test_an_envelope_of_a_newer_minor_version_is_applied() -> None:
    bench, source = started()
    rows = [encode_event_value(source.put(source.row(n, f"{n}@x", n))) for n in range(3)]
    bench.topic += [rows[0], rows[1].replace(b'"version":"1.0"', b'"version":"1.7"'), rows[2]]
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"version":"1.0"', b'"version":"4.0"', "4.0"),
        (b'"table":"acct"', b'"table":"other"', "rows of two tables in one topic cannot be distinguished"),
        (b'"owner":', b'"owned":', "without a definition event"),
    ],
)
def test_an_event_that_is_not_of_this_table_stops_the_unit_behind_what_came_before(
    old: bytes, new: bytes, why: str
) -> None:
    bench, source = started()
    first = encode_event_value(source.put(source.row(1, "1@x", 1)))
    before = rows_of(source)
    second = encode_event_value(source.put(source.row(2, "2@x", 2)))
    bench.topic += [first, second.replace(old, new)]
    report = bench.apply()
    assert (report.state, report.offset) == ("stopped", 1)
    assert "offset 2" in report.message
    assert why in report.message
    assert bench.target.rows_of() == before


def test_a_damaged_record_stops_the_unit_with_its_place() -> None:
    bench, _ = started()
    bench.topic.append(b"{not json")
    report = bench.apply()
    assert report.state == "stopped"
    assert "offset 1" in report.message


def test_a_target_table_without_the_sources_key_stops_the_unit() -> None:
    bench, source = started(routes=ROUTES)
    table = account_table()
    bench.target.tables["public.acct"] = Table(
        db="public", name="acct", columns=table.columns, key=table.unique[0], unique=(table.key,)
    )
    bench.write([source.put(source.row(1, "a@x", 1))])
    report = bench.apply()
    assert report.state == "stopped"
    assert "key" in report.message
