"""The figures of lanes: how they waited for each other, what they wrote, and what is in quarantine."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.attempt import applier, lane_group
from consumer.attempt.drivers.batches import SingleThreadSignals
from consumer.attempt.durations import NO_DURATIONS, DurationCounter, Durations
from consumer.attempt.effects import Await, Machine
from consumer.attempt.lane_group import LaneGroup
from consumer.attempt.reports import LaneFigures
from consumer.errors import RefusedError
from consumer.ordering.dispatch import Dispatcher
from consumer.ordering.lanes.batches import LaneBatch
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress, RowChange
from consumer.ordering.tickets import TicketTable
from consumer.reporting.protocol import LineWriter
from consumer.reporting.status_lines import STATUS_INTERVAL_S, StatusWriter
from consumer.units.supervision import WatchedUnit
from schemas.table.model import Row
from schemas.wire.event import Undecodable
from schemas.wire.position import ZERO
from tests.kits.history import target_table
from tests.kits.unit_apply import started
from tests.kits.unit_copies import benched, copy_of

LANES = 3
END = (99, (0, 1, 99, 0), 1, 0)


class Group:
    """Three lanes whose machines the test advances. `now`: the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(lane_group, "monotonic", lambda: self.now)
        locks = TicketTable(LANES)
        text = Layout(lanes=LANES).encode()
        rows = [LaneProgress(n, 1, 1, "id", -1, ZERO, 0, text) for n in range(LANES)]
        dispatcher = Dispatcher(Layout(lanes=LANES), locks, rows)
        self.plan = dispatcher.plan_table(target_table())
        self.group = LaneGroup(
            dispatcher, locks, self._commit, limits=LaneLimits(), signals=SingleThreadSignals()
        )
        self._machines = [self.group.run_lane(number) for number in range(LANES)]
        self._at: list[Any] = [next(machine) for machine in self._machines]

    def _commit(self, _lane: int, _batch: LaneBatch) -> Machine[None]:
        yield from ()

    def key_in(self, lane: int) -> int:
        lane_of = {key: self.plan.lane_of(self.plan.fold_key((key, None, None, 0))) for key in range(99)}
        return next(key for key, number in lane_of.items() if number == lane)

    def give(self, *changes: tuple[Row | None, Row | None]) -> None:
        events = [RowChange((offset, 0), *change) for offset, change in enumerate(changes)]
        next(self.group.submit_changes(self.plan, events), None)
        next(self.group.drain(END))

    def advance(self, lane: int) -> None:
        """Advance a lane until it waits."""
        while not isinstance(self._at[lane], Await) or self._at[lane].ready():
            self._at[lane] = next(self._machines[lane])


@pytest.mark.parametrize(
    ("order", "waits", "longest"),
    [((2, 1), 2, 2), ((1, 2), 2, 2), ((2, 0, 1), 1, 1), ((1, 0, 2), 2, 1)],
)
def test_chain_is_as_long_as_lanes_wait_one_for_the_next(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...], waits: int, longest: int
) -> None:
    """Lane 1 takes a value over from lane 0, and lane 2 from lane 1."""
    group = Group(monkeypatch)
    first, second, third = (group.key_in(lane) for lane in range(LANES))
    group.give(
        ((first, "x", None, 0), (first, None, None, 0)),
        (None, (second, "x", None, 0)),
        ((second, "x", None, 0), (second, None, None, 0)),
        (None, (third, "x", None, 0)),
    )
    for lane in order:
        group.advance(lane)
    group.now = 2.0
    for lane in range(LANES):
        group.advance(lane)
    found = group.group.lock_waits
    assert (found.count, found.longest_chain, found.seconds) == (waits, longest, 2.0 * waits)


def test_lane_that_may_go_on_is_no_part_of_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lane 1, for which lane 2 waited, has committed that event, and waits for lane 0 now."""
    group = Group(monkeypatch)
    first, second, third = (group.key_in(lane) for lane in range(LANES))
    group.give(
        ((first, "x", None, 0), (first, None, None, 0)),
        ((second, "y", None, 0), (second, None, None, 0)),
        (None, (third, "y", None, 0)),
        ((second, None, None, 0), (second, "x", None, 0)),
    )
    group.advance(2)
    group.advance(1)
    assert (group.group.lock_waits.count, group.group.lock_waits.longest_chain) == (2, 1)


def test_lanes_without_a_common_value_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(monkeypatch)
    group.give(*((None, (group.key_in(lane), f"{lane}", None, 0)) for lane in range(LANES)))
    for lane in range(LANES):
        group.advance(lane)
    assert (group.group.lock_waits.count, group.group.lock_waits.longest_chain) == (0, 0)


@pytest.mark.parametrize("small_batch", [0, 100])
def test_report_has_what_was_written(small_batch: int) -> None:
    """By lanes, and in one transaction of all lanes."""
    bench, source = started(small_batch=small_batch)
    bench.write([source.put(source.row(key, None, 1)) for key in range(4)])
    assert without_times(bench.apply().lanes) == LaneFigures(upserted=4, open_quarantine=0)
    bench.write([source.put(source.row(1, None, 2)), source.delete(2), source.delete(3)])
    later = without_times(bench.apply(5).lanes)
    assert later == LaneFigures(upserted=1, deleted=2, open_quarantine=0)


def without_times(figures: LaneFigures) -> LaneFigures:
    return replace(figures, transactions=NO_DURATIONS, visible=NO_DURATIONS)


@pytest.mark.parametrize("small_batch", [0, 100])
def test_report_has_the_times_of_transactions_and_events(
    monkeypatch: pytest.MonkeyPatch, small_batch: int
) -> None:
    """By lanes, and in one transaction of all lanes: all events are as old as the first one."""
    bench, source = started(small_batch=small_batch)
    clock = itertools.count()
    bench.write([source.put(source.row(key, None, 1)) for key in range(4)])
    events = [json.loads(record) for record in bench.topic if record]
    committed = [event["source"]["ts_ms"] for event in events if event.get("op") in {"c", "u"}]
    monkeypatch.setattr(applier, "monotonic", lambda: 2.0 * next(clock))
    monkeypatch.setattr(applier, "time", lambda: committed[0] / 1000 + 40)
    found = bench.apply().lanes
    transactions = sum(found.transactions.counts)
    assert 1 <= transactions <= (1 if small_batch else LANES)
    if small_batch:
        assert found.transactions == durations((2.0, 1))
        assert found.visible == durations((40.0, 4))
    assert sum(found.visible.counts) == 4
    assert bench.apply(5).lanes.visible == NO_DURATIONS


def durations(*pairs: tuple[float, int]) -> Durations:
    counter = DurationCounter()
    for seconds, number in pairs:
        counter.add(seconds, number)
    return counter.durations


def test_durations_are_counted_up_to_their_bounds() -> None:
    counted = durations((-3.0, 1), (0.005, 2), (0.3, 1), (9999.0, 1))
    assert counted.total_ms == 9_999_310
    buckets = dict(counted.list_buckets())
    assert (buckets["0.005"], buckets["0.25"], buckets["0.5"], buckets["3600.0"]) == (3, 3, 4, 4)
    assert buckets["+Inf"] == 5


def test_durations_add_up_in_whatever_order() -> None:
    """Reports leave out the empty buckets at the end."""
    short, long = durations((0.001, 3)), durations((0.001, 1), (2.0, 5))
    assert short.counts == (3,)
    assert short.merge(long) == long.merge(short) == durations((0.001, 4), (2.0, 5))
    assert short.merge(NO_DURATIONS) == short


def test_report_has_what_is_in_quarantine_at_its_end() -> None:
    bench, source = started()
    bench.target.refuse = lambda row: RefusedError("too long") if row[0] == 1 else None
    bench.write([source.put(source.row(1, None, 1)), source.put(source.row(2, None, 1))])
    refused = bench.apply()
    assert (refused.held, refused.lanes.open_quarantine) == (1, 1)
    bench.write([source.put(source.row(2, None, 2))])
    assert bench.apply(3).lanes.open_quarantine == 1, "it is known without a new one"
    bench.write([source.put(source.row(1, None, 2)), source.delete(1)])
    assert bench.apply(4).lanes.open_quarantine == len(bench.target.state.held)


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("small_batch", [0, 100])
@pytest.mark.parametrize(
    "how", ["recovery", "recovery after a delete", "delete", "truncate", "copy's row", "copy's end"]
)
def test_report_counts_what_has_left_the_quarantine(how: str, small_batch: int, lanes: int) -> None:
    """Once, by lanes or beside them; not the entries that a later one of their key has replaced."""
    bench, source = benched(lanes=lanes, small_batch=small_batch)
    bench.target.refuse = lambda row: RefusedError("too long") if row[6] == "bad" else None
    bench.write([source.put(source.row(key, None, 1, "bad")) for key in (1, 2)])
    bench.write([source.put(source.row(1, None, version, "bad")) for version in range(2, 9)])
    assert bench.apply().lanes.resolved == 0
    assert len(bench.target.state.held) == 3, "two of key 1, one of key 2"
    start = len(bench.topic)
    if how == "truncate":
        bench.write([source.truncate()])
    elif how in {"delete", "recovery after a delete"}:
        bench.write([source.delete(1)])
    if how.startswith("recovery"):
        bench.write([source.put(source.row(1, None, 9))])
    if how.startswith("copy"):
        source.rows.pop(1)
        source.rows |= {1: source.row(1, None, 9)} if how == "copy's row" else {}
        copy_of(source, bench.topic).all()
    report = bench.apply(start)
    closed = {(entry.offset, entry.part) for entry, _ in bench.target.state.closed}
    assert (report.state, report.lanes.open_quarantine) == ("ok", len(bench.target.state.held))
    written_before = {place for place in closed if place[0] < start}
    assert report.lanes.resolved == len(written_before) + (how == "recovery")
    assert len(written_before) == (3 if how == "truncate" or how.startswith("copy") else 2)
    assert bench.apply(len(bench.topic)).lanes.resolved == 0


def test_report_counts_no_event_that_comes_and_goes_in_one_batch() -> None:
    bench, source = started()
    odd = {**source.row(1, None, 1), "note": {"undecodable": "qqE="}}
    bench.write([source.event("c", None, odd, undecodable=Undecodable(after=("note",)))])
    bench.write([source.event("d", odd, None, undecodable=Undecodable(before=("note",)))])
    report = bench.apply()
    assert (report.held, report.lanes.open_quarantine, report.lanes.resolved) == (0, 0, 0)
    assert [entry.offset for entry, _ in bench.target.state.closed] == [1]


def test_last_figures_of_a_unit_are_written_before_it_is_left_out() -> None:
    out = io.StringIO()
    writer = StatusWriter("p", LineWriter(out))
    writer.write_changes(0.0, {"a": WatchedUnit(1, applied=1), "b": WatchedUnit(1)})
    writer.write_changes(0.1, {"a": WatchedUnit(1, applied=2), "b": WatchedUnit(1)})
    writer.write_changes(0.2, {"b": WatchedUnit(1)})
    writer.write_changes(STATUS_INTERVAL_S, {"b": WatchedUnit(1)})
    lines = [json.loads(line)["units"] for line in out.getvalue().splitlines()]
    assert [{topic: unit["applied"] for topic, unit in line.items()} for line in lines] == [
        {"a": 1, "b": 0},
        {"a": 2},
    ]
    writer.write_changes(2 * STATUS_INTERVAL_S, {"a": WatchedUnit(1, applied=2), "b": WatchedUnit(1)})
    assert set(json.loads(out.getvalue().splitlines()[-1])["units"]) == {"a"}, "it has come back"
