"""With `conflicts: quarantine` a key that was refused because another row has its unique value is tried again
as soon as that value may have been given up."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from msgspec.structs import replace as altered

from consumer.errors import CommitUnknownError, RefusedError, UniqueViolationError
from consumer.ordering import recovery
from consumer.ordering.model import QuarantineEntry, build_aged_entry
from consumer.ordering.reasons import WAITS_FOR_VALUE, find_trial_offset, format_refusal
from consumer.ordering.recovery import (
    TRIAL_INTERVAL_S,
    WAITING_KEYS_PER_INTERVAL,
    HeldKey,
    choose_pause,
    list_keys_tried_in_vain,
    list_untried_keys,
    record_reason,
    select_due_keys,
)
from schemas.wire.event import EventEnvelope
from tests.kits.unit_apply import Bench, apply, poisoned, refusing, rows_of

LANES = pytest.mark.parametrize("lanes", [1, 4])
IN_ONE = pytest.mark.parametrize("in_one", [True, False], ids=["one attempt", "several"])
refusing_unit = partial(refusing, replace=False)
"""Return a unit with `conflicts: quarantine` whose target refuses the owner "poison"."""


def apply_all(bench: Bench, events: list[EventEnvelope], *, in_one: bool) -> None:
    for some in [events] if in_one else [[event] for event in events]:
        assert apply(bench, *some) == "ok"


def held_keys(bench: Bench) -> set[str]:
    return {entry.key for entry in bench.target.state.held.values()}


@LANES
@IN_ONE
@pytest.mark.parametrize("how", ["update", "delete"])
def test_a_row_that_was_never_quarantined_gives_up_the_value(how: str, lanes: int, in_one: bool) -> None:
    """The unique index is in the target alone."""
    bench, source = refusing_unit(lanes)
    events = [source.put(source.row(1, "a@x", 1)), source.put(source.row(2, "a@x", 1))]
    apply_all(bench, events, in_one=in_one)
    assert held_keys(bench) == {"[2]"}
    assert apply(bench, source.put(source.row(3, None, 1))) == "ok", "another event changes nothing"
    assert held_keys(bench) == {"[2]"}
    gives_up = source.delete(1) if how == "delete" else source.put(source.row(1, "b@x", 2))
    assert apply(bench, gives_up) == "ok"
    assert (bench.target.rows_of(), held_keys(bench)) == (rows_of(source), set())
    assert bench.target.state.displaced == []


@LANES
@IN_ONE
@pytest.mark.parametrize("how", ["recovery", "delete"])
def test_a_quarantined_key_gives_up_the_value_of_its_stale_row(how: str, lanes: int, in_one: bool) -> None:
    bench, source = refusing_unit(lanes)
    events = [
        source.put(source.row(1, "a@x", 1)),
        source.put(poisoned(source, 1, "b@x", 2)),
        source.put(source.row(2, "a@x", 1)),
    ]
    apply_all(bench, events, in_one=in_one)
    assert held_keys(bench) == {"[1]", "[2]"}
    gives_up = source.delete(1) if how == "delete" else source.put(source.row(1, "b@x", 3))
    assert apply(bench, gives_up) == "ok"
    assert (bench.target.rows_of(), held_keys(bench)) == (rows_of(source), set())


@LANES
def test_values_pass_along_a_chain_of_waiting_keys(lanes: int) -> None:
    bench, source = refusing_unit(lanes)
    good = [source.put(source.row(key, f"{key}@x", 1)) for key in range(1, 6)]
    assert apply(bench, *good, source.put(poisoned(source, 1, "0@x", 2))) == "ok"
    for key in range(2, 6):  # each takes the value that the key before has just given up
        assert apply(bench, source.put(source.row(key, f"{key - 1}@x", 2))) == "ok"
    assert held_keys(bench) == {f"[{key}]" for key in range(1, 6)}
    assert apply(bench, source.put(source.row(1, "0@x", 3))) == "ok"
    assert (bench.target.rows_of(), held_keys(bench)) == (rows_of(source), set())


@LANES
@pytest.mark.parametrize(("replace", "in_one"), [(False, True), (False, False), (True, True)])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_keys_that_wait_for_each_others_values_recover_together(
    size: int, replace: bool, lanes: int, in_one: bool
) -> None:
    bench, source = refusing(lanes, replace=replace)
    keys = range(1, size + 1)
    apply_all(bench, [source.put(source.row(key, f"{key}@x", 1)) for key in keys], in_one=in_one)
    bench.target.refuse = lambda _row: RefusedError("too long")
    moved = [source.put(source.row(key, f"{key}@y", 2)) for key in keys]
    moved += [source.put(source.row(key, f"{key % size + 1}@x", 3)) for key in keys]
    apply_all(bench, moved, in_one=in_one)
    assert held_keys(bench) == {f"[{key}]" for key in keys}
    bench.target.refuse = lambda _row: None
    apply_all(bench, [source.put(source.row(key, f"{key % size + 1}@x", 4)) for key in keys], in_one=in_one)
    assert (bench.target.rows_of(), held_keys(bench)) == (rows_of(source), set())
    assert bench.target.state.displaced == []


@LANES
def test_a_cycle_that_meets_another_row_too_stays_as_it_was(lanes: int) -> None:
    """Key 3, which another program wrote, has the value that key 2 needs first."""
    bench, source = refusing_unit(lanes)
    assert apply(bench, *(source.put(source.row(key, f"{key}@x", 1)) for key in (1, 2))) == "ok"
    bench.target.refuse = lambda _row: RefusedError("too long")
    assert apply(bench, *(source.put(source.row(key, f"{key}@y", 2)) for key in (1, 2))) == "ok"
    bench.target.refuse = lambda row: UniqueViolationError("taken") if row[0] == 2 else None
    assert apply(bench, *(source.put(source.row(key, f"{3 - key}@x", 3)) for key in (1, 2))) == "ok"
    assert held_keys(bench) == {"[1]", "[2]"}
    assert [(row[0], row[1]) for row in bench.target.rows_of()] == [(1, "1@x"), (2, "2@x")]
    tried = len(bench.target.nets)
    assert (bench.apply(len(bench.topic)).trial_in_s, len(bench.target.nets)) == (0.0, tried)


def test_a_waiting_key_is_not_tried_without_a_new_event() -> None:
    bench, source = refusing_unit(2)
    assert apply(bench, source.put(source.row(1, "a@x", 1)), source.put(source.row(2, "a@x", 1))) == "ok"
    tried = len(bench.target.nets)
    report = bench.apply(len(bench.topic))
    assert (report.trial_in_s, len(bench.target.nets)) == (0.0, tried)
    [held] = bench.target.state.held.values()
    assert (held.error[: len(WAITS_FOR_VALUE)], find_trial_offset(held)) == (WAITS_FOR_VALUE, 2)


@LANES
def test_a_waiting_key_is_tried_at_last_although_it_was_refused_just_now(lanes: int) -> None:
    bench, source = refusing_unit(lanes, trial_interval_s=3600.0)
    bench.target.age_ms = 0
    assert apply(bench, source.put(source.row(1, "a@x", 1)), source.put(source.row(2, "a@x", 1))) == "ok"
    start = len(bench.topic)
    bench.write([source.delete(1)])
    assert bench.apply(start).trial_in_s == TRIAL_INTERVAL_S
    assert held_keys(bench) == {"[2]"}
    bench.target.age_ms = 3_600_000
    assert bench.apply(len(bench.topic)).trial_in_s == 0.0
    assert (bench.target.rows_of(), held_keys(bench)) == (rows_of(source), set())


@LANES
def test_a_value_given_up_before_a_crash_is_found_by_the_next_attempt(lanes: int) -> None:
    bench, source = refusing_unit(lanes)
    assert apply(bench, source.put(source.row(1, "a@x", 1)), source.put(source.row(2, "a@x", 1))) == "ok"
    bench.target.refuse = lambda row: bench.target.faults.append(CommitUnknownError("lost"))  # type: ignore[func-returns-value]
    assert apply(bench, source.delete(1)) == "behind"
    bench.target.refuse, bench.target.faults = lambda _row: None, []
    bench.target.drop_connection(0)
    bench.take_over()
    assert bench.apply(len(bench.topic)).state == "ok"
    assert (bench.target.rows_of(), held_keys(bench)) == (rows_of(source), set())


@LANES
def test_a_key_tried_in_vain_is_tried_again_once_another_one_recovers(lanes: int) -> None:
    """No event comes between the two: the other key was not due when the first one was tried."""
    bench, source = refusing_unit(lanes)
    events = [source.put(source.row(1, "a@x", 1)), source.put(poisoned(source, 1, "b@x", 2))]
    assert apply(bench, *events, source.put(source.row(2, "a@x", 1))) == "ok"
    state, offset = bench.target.state, len(bench.topic) - 1
    [waiting] = [entry for entry in state.held.values() if entry.key == "[2]"]
    assert find_trial_offset(waiting) == offset
    [first] = [entry for entry in state.held.values() if entry.key == "[1]"]
    event = msgspec.json.decode(first.event)
    event["after"]["owner"] = "fine"
    error, text = "held behind offset 0", msgspec.json.encode(event).decode()
    state.held[first.offset, first.part] = altered(first, error=error, event=text)
    assert bench.apply(len(bench.topic)).trial_in_s == TRIAL_INTERVAL_S
    assert held_keys(bench) == {"[2]"}
    assert bench.apply(len(bench.topic)).trial_in_s == 0.0
    assert held_keys(bench) == set()
    assert [row[0] for row in bench.target.rows_of()] == [1, 2]


@LANES
def test_a_queued_key_that_meets_a_value_gets_that_reason_and_is_not_tried_for_ever(lanes: int) -> None:
    bench, source = refusing_unit(lanes)
    assert apply(bench, source.put(source.row(1, "a@x", 1)), source.put(poisoned(source, 2, None, 1))) == "ok"
    start = len(bench.topic)
    bench.write([source.put(source.row(2, "a@x", 2))])
    assert bench.apply(start).trial_in_s == 0.0
    held = sorted(bench.target.state.held.items())
    assert [(place[0], find_trial_offset(entry)) for place, entry in held] == [(2, -1), (3, 3)]
    assert [entry.error[: len(WAITS_FOR_VALUE)] for _, entry in held] == ["too long", WAITS_FOR_VALUE]
    assert apply(bench, source.delete(1)) == "ok"
    assert (bench.target.rows_of(), held_keys(bench)) == (rows_of(source), set())


def test_a_slow_target_is_asked_for_each_waiting_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "MAX_SECONDS", -1.0)
    bench, source = refusing_unit(2)
    taken = [source.put(source.row(key, f"{key}@x", 1)) for key in range(1, 4)]
    assert (
        apply(bench, *taken, *(source.put(source.row(key + 10, f"{key}@x", 1)) for key in (1, 2, 3))) == "ok"
    )
    start = len(bench.topic)
    bench.write([source.delete(3)])
    pauses = [bench.apply(start).trial_in_s]
    while pauses[-1]:
        pauses.append(bench.apply(len(bench.topic)).trial_in_s)
        assert len(pauses) < 8
    assert held_keys(bench) == {"[11]", "[12]"}
    assert {find_trial_offset(each) for each in bench.target.state.held.values()} == {start}


# --- the entries alone


def entry(offset: int, key: int, error: str, table: str = "public.t") -> QuarantineEntry:
    return QuarantineEntry(offset, 0, table, f"[{key}]", str(key), "{}", error, 0)


def waiting(offset: int, key: int, level: int | None) -> QuarantineEntry:
    return entry(offset, key, format_refusal(UniqueViolationError("taken"), level))


@pytest.mark.parametrize(("level", "untried"), [(None, True), (8, True), (9, False), (10, False)])
def test_a_key_is_untried_once_its_unit_has_applied_a_later_event(level: int | None, untried: bool) -> None:
    assert bool(list_untried_keys([waiting(3, 1, level)], 9)) == untried


def test_other_refusals_do_not_wait() -> None:
    assert list_untried_keys([entry(3, 1, format_refusal(RefusedError("too long"), 3))], 9) == []


def test_a_recovery_makes_the_keys_untried_that_were_tried_where_it_happens() -> None:
    held = [
        waiting(1, 1, 9),
        waiting(2, 2, 8),
        altered(waiting(3, 3, 9), table="public.older"),
        waiting(4, 4, 9),
        entry(5, 4, "held behind offset 4"),
        entry(6, 5, "too long"),
    ]
    assert list_keys_tried_in_vain(held, "public.t", 9) == [waiting(1, 1, None)]


@pytest.mark.parametrize("waiters", [1, WAITING_KEYS_PER_INTERVAL, 5 * WAITING_KEYS_PER_INTERVAL])
def test_many_waiting_keys_are_tried_less_often(waiters: int) -> None:
    intervals = max(1, waiters // WAITING_KEYS_PER_INTERVAL)

    def due(seconds: float) -> list[HeldKey]:
        ages = build_aged_entry(entry(0, -1, "held behind offset 0"), 0)
        keys = [ages, *(build_aged_entry(waiting(at, at, 1), int(seconds * 1000)) for at in range(waiters))]
        return select_due_keys(list_untried_keys(keys, 9), 1.0)

    assert len(due(intervals - 0.01)) == 1, "a key that queues does not wait for them"
    assert len(due(intervals)) == 1 + waiters
    assert choose_pause(due(intervals)) == TRIAL_INTERVAL_S
    assert choose_pause(due(intervals)[1:]) == intervals * TRIAL_INTERVAL_S
    assert choose_pause([]) == 0.0


def test_the_reason_of_a_refused_trial_has_its_offset() -> None:
    [key] = list_untried_keys([waiting(3, 1, None)], 9)
    assert record_reason(key, UniqueViolationError("taken"), 9) == ([(3, 0)], [waiting(3, 1, 9)])


def test_a_first_entry_that_only_queued_gets_the_reason_of_the_later_row() -> None:
    """The key that it queued after may have left."""
    [key] = list_untried_keys([entry(3, 1, "held behind offset 1"), entry(7, 1, "held behind offset 1")], 9)
    ids, added = record_reason(key, RefusedError("too long"), 9)
    first = entry(3, 1, "its later row of offset 7 was refused: too long")
    assert (ids, added) == ([(3, 0), (7, 0)], [first, entry(7, 1, "too long")])
    [again] = list_untried_keys([first, entry(7, 1, "too long"), entry(8, 1, "held behind offset 3")], 9)
    ids, added = record_reason(again, RefusedError("too wide"), 9)
    assert (ids, added) == ([(7, 0), (8, 0)], [entry(8, 1, "too wide")])
