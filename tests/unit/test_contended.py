"""Events that wait for each other's unique values: one transaction of all lanes applies them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.attempt.lane_group import LaneGroup
from consumer.errors import RefusedError, TransientError
from consumer.ordering.lanes.lane import LaneLimits
from schemas.wire.event import EventEnvelope
from tests.kits.apply import FakeSource
from tests.kits.unit_apply import poisoned, refusing, rows_of, started

NEVER = 1.0


def limits(gather: int = 100, *, waits: float = 0.02, size: int = 1 << 24) -> LaneLimits:
    return LaneLimits(max_gather=gather, max_waits=waits, max_bytes=size, pause=0.001, max_pause=0.002)


def hand_over(source: FakeSource, count: int, *, keys: int = 7) -> list[EventEnvelope]:
    """Return `count` events, in pairs: one row gives the only e-mail address up, the next one takes it."""
    out: list[EventEnvelope] = []
    for number in range(count // 2):
        giver, taker = number % keys, (number + 1) % keys
        out.append(source.put(source.row(giver, None, number)))
        out.append(source.put(source.row(taker, "one@x", number)))
    return out


def alone(source: FakeSource, count: int, *, first: int = 100) -> list[EventEnvelope]:
    """Return events that wait for no other one."""
    return [source.put(source.row(first + key, f"e{key}@x", 1)) for key in range(count)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of lanes, each time that lanes are started."""
    found: list[int] = []
    start = LaneGroup.start
    monkeypatch.setattr(LaneGroup, "start", lambda group: (found.append(group.count), start(group))[1])
    return found


def test_contended_events_are_applied_as_many_as_a_lane_gathers(opened: list[int]) -> None:
    bench, source = started(small_batch=20, limits=limits(100))
    bench.write(hand_over(source, 400))
    report = bench.apply()
    assert (report.state, report.applied, opened) == ("ok", 401, [])
    assert bench.target.rows_of() == rows_of(source)
    assert bench.target.log[-4:] == [(0, 1, 2)] * 4, "each of 100 events"
    assert bench.offsets() == [400] * 3


def test_others_are_applied_by_lanes(opened: list[int]) -> None:
    bench, source = started(small_batch=20, limits=limits(100))
    bench.write(alone(source, 200) + hand_over(source, 4))
    assert bench.apply().state == "ok"
    assert opened == [3]
    assert bench.target.rows_of() == rows_of(source)


def test_a_few_that_wait_are_no_contention(opened: list[int]) -> None:
    bench, source = started(small_batch=20, limits=limits(100))
    bench.write([*alone(source, 950), *hand_over(source, 8)])
    report = bench.apply()
    assert (report.state, opened, bench.target.rows_of()) == ("ok", [3], rows_of(source))
    assert set(map(len, bench.target.log[-3:])) == {1}, "lanes apply also the last ones"


def test_keys_that_move_between_lanes_are_contended(opened: list[int]) -> None:
    """The new row of each waits for the deletion of the old one."""
    bench, source = started(small_batch=20, limits=limits(100))
    bench.write([source.put(source.row(1, None, 0))])
    bench.write([source.move(key, source.row(key + 1, None, key)) for key in range(1, 200)])
    assert bench.apply().state == "ok"
    assert (opened, bench.target.rows_of()) == ([], rows_of(source))


def test_lanes_end_where_contention_begins(opened: list[int]) -> None:
    bench, source = started(small_batch=20, limits=limits(100))
    bench.write(alone(source, 100) + hand_over(source, 200))
    report = bench.apply()
    assert (report.state, opened, bench.target.log[-1]) == ("ok", [3], (0, 1, 2))
    assert bench.target.rows_of() == rows_of(source)
    assert report.lanes.lock_waits > 0, "what the lanes have waited before is reported"


def test_lanes_begin_again_where_contention_ends(opened: list[int]) -> None:
    bench, source = started(small_batch=20, limits=limits(100))
    bench.write(hand_over(source, 200) + alone(source, 300))
    assert bench.apply().state == "ok"
    assert opened == [3]
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("change", ["small batches", "every event"])
def test_lanes_alone_apply_them_if_they_are_to(opened: list[int], change: str) -> None:
    given = {"small_batch": 0} if change == "small batches" else {"limits": limits(waits=NEVER)}
    bench, source = started(**{"small_batch": 20, "limits": limits(), **given})
    bench.write(hand_over(source, 60))
    assert bench.apply().state == "ok"
    assert (opened, bench.target.rows_of()) == ([3], rows_of(source))


def test_a_transaction_has_no_more_bytes_than_a_lane_gathers() -> None:
    bench, source = started(small_batch=20, limits=limits(1000))
    bench.write(hand_over(source, 400))
    size = sum(map(len, bench.topic[1:]))
    bench.more["limits"] = limits(1000, size=size // 3)
    assert bench.apply(slice_size=100).state == "ok"
    assert bench.target.log.count((0, 1, 2)) == 1 + 4, "the definition, and a slice each"
    assert bench.target.rows_of() == rows_of(source)


def test_a_refused_event_is_found_by_halves(opened: list[int]) -> None:
    """One event of 400 goes through the lanes with its neighbours, and is quarantined alone."""
    bench, source = refusing(3, small_batch=20, limits=limits(400))
    bench.write([*hand_over(source, 200), source.put(poisoned(source, 50, None, 1)), *hand_over(source, 199)])
    report = bench.apply()
    assert (report.state, opened) == ("ok", [3])
    assert [entry.key for entry in bench.target.state.held.values()] == ["[50]"]
    whole = [row for row in rows_of(source) if row[0] != 50]
    assert bench.target.rows_of() == whole
    assert 3 <= bench.target.log.count((0, 1, 2)) <= 12


def test_a_later_event_of_a_quarantined_key_is_held_in_the_next_transaction() -> None:
    """The lanes quarantined the key within the same attempt. The row fits only after later events."""
    bench, source = refusing(3, small_batch=20, limits=limits(100), trial_interval_s=3600.0)
    seen: list[object] = []
    refuse = bench.target.refuse
    bench.target.refuse = lambda row: (seen.append(row[4]) if row[0] == 50 else None, refuse(row))[1]
    bench.write([*hand_over(source, 80), source.put(poisoned(source, 50, None, 1)), *hand_over(source, 100)])
    bench.write([source.put(poisoned(source, 50, None, 2)), *hand_over(source, 100)])
    assert bench.apply().state == "ok"
    assert [entry.key for entry in bench.target.state.held.values()] == ["[50]", "[50]"]
    assert seen.count(2) <= 1, "only its trial at the end asks for it"


def test_a_transient_error_is_left_to_the_lanes(opened: list[int]) -> None:
    bench, source = started(small_batch=20, limits=limits(400))
    assert bench.apply().state == "ok"
    bench.write(hand_over(source, 200))
    bench.target.faults.append(TransientError("deadlock"))
    assert bench.apply(1).state == "ok"
    assert opened == [3]
    assert bench.target.rows_of() == rows_of(source)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    lanes=st.integers(2, 4),
    gather=st.sampled_from([8, 30, 5000]),
    poison=st.sampled_from([0.0, 0.05]),
    slice_size=st.sampled_from([3, 17, 50]),
)
def test_both_ways_leave_the_same(seed: int, lanes: int, gather: int, poison: float, slice_size: int) -> None:
    left = []
    for waits in (NEVER, 0.02):
        draw = random.Random(seed)
        bench, source = started(
            lanes=lanes, small_batch=5, limits=limits(gather, waits=waits), trial_interval_s=3600.0
        )
        bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
        events = source.history(draw, 150, keys=6)
        for event in events:
            if event.after is not None and draw.random() < poison:
                event.after["owner"] = "poison"  # type: ignore[index]
        bench.write(events)
        report = bench.apply(slice_size=slice_size)
        assert (report.state, set(bench.offsets())) == ("ok", {150 if len(events) == 150 else len(events)})
        held = {entry.key for entry in bench.target.state.held.values()}
        # A held key's last row has the values that the source has given to others: it may be displaced.
        left.append(([row for row in bench.target.rows_of() if f"[{row[0]}]" not in held], held))
    assert left[0] == left[1]
