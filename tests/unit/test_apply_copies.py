"""A table that is copied again, applied: where a unit goes on, what is deleted, what becomes of held keys
(docs/adr/0026-applying-a-copy.md)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from consumer.attempt.copies import sweep as sweep_module
from consumer.attempt.copies.keys_on_disk import ScratchKeys
from consumer.attempt.drivers import driver
from consumer.attempt.reports import CopyNeed
from consumer.errors import CommitUnknownError, RefusedError, TransientError
from consumer.ordering.lanes.lane import LaneLimits
from schemas.problems import decode_problem
from schemas.table.model import Column, ColumnType, Kind
from schemas.wire.codec import encode_event_value
from tests.kits.apply import FakeSource
from tests.kits.copy import CopyOf
from tests.kits.unit_apply import Bench, rows_of
from tests.kits.unit_copies import STOP, CopyBench, benched, copy_of, stopped_at


def keys_of(bench: Bench) -> list[Any]:
    return sorted((row[0] for row in bench.target.rows_of()), key=lambda key: int(str(key)))


# --- where a unit goes on


def test_a_unit_goes_on_where_a_copy_begins_behind_what_it_cannot_follow() -> None:
    bench, source = benched()
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(6)])
    bench.write([source.event("m", stop=STOP)])
    stopped = bench.apply()
    assert (stopped.state, stopped.copy) == ("stopped", CopyNeed(7, "rows-replaced"))
    assert str(decode_problem(stopped.message)).endswith(
        "removed rows: look at it, then rowlock copy bank.acct"
    )
    for missing in (0, 1, 4):
        source.delete(missing)  # nobody says so in the topic
    bench.write([])
    copy_of(source, bench.topic).all()
    bench.take_over()
    report = bench.apply(7)
    assert (report.state, report.offset) == ("ok", len(bench.topic) - 1)
    assert bench.target.rows_of() == rows_of(source)
    assert set(bench.offsets()) == {len(bench.topic) - 1}


@pytest.mark.parametrize("hint", [None, 0, "begin", 5, 10_000])
def test_a_begin_is_found_by_its_hint_or_by_looking_for_it(hint: Any) -> None:
    bench, source = benched()
    at = stopped_at(bench, source)
    copy = copy_of(source, bench.topic)
    bench.hint = copy.begin() if hint == "begin" else hint
    if hint == "begin":
        copy.emit(), copy.emit()
    else:
        copy.all()
    assert bench.apply(at).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_who_has_no_time_looks_for_no_begin() -> None:
    bench, source = benched()
    at = stopped_at(bench, source)
    bench.patient = False
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "stopped"
    bench.take_over()
    bench.hint = at + 1
    assert bench.apply(at).state == "ok"


@pytest.mark.parametrize("what", ["before", "partial", "zombie", "nothing"])
def test_a_copy_that_does_not_heal_the_unit_is_none_to_go_on_at(what: str) -> None:
    bench, source = benched()
    if what == "before":
        copy_of(source, bench.topic).all()
    if what == "zombie":
        source.gen = 2
    at = stopped_at(bench, source)
    if what == "partial":
        copy_of(source, bench.topic, partial=True).all()
    if what == "zombie":
        CopyOf(FakeSource(rows=dict(source.rows), pos=source.pos), bench.topic).all()
    report = bench.apply(at)
    assert (report.state, report.copy and report.copy.after) == ("stopped", at)
    assert set(bench.offsets()) == {at - 1}


def test_a_begin_that_a_replaced_capture_wrote_behind_its_successor_is_passed_over() -> None:
    bench, source = benched()
    at = stopped_at(bench, source)
    zombie = FakeSource(rows=dict(source.rows), pos=5000)
    source.gen = 2
    bench.write([source.event("m", stop=STOP)])
    CopyOf(zombie, bench.topic, id="zombie").begin()
    copy = copy_of(source, bench.topic)
    copy.all()
    assert bench.apply(at).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_every_kind_of_gap_is_healed_by_a_copy() -> None:
    bench, source = benched()
    bench.write([source.put(source.row(1, "1@x", 1))])
    source.put(source.row(2, "2@x", 1))  # lost on the way
    bench.write([source.put(source.row(3, "3@x", 1))])
    report = bench.apply()
    assert (report.state, report.copy) == ("stopped", CopyNeed(2, "gap"))
    assert report.message.endswith("rowlock copy bank.acct")
    bench.take_over()
    copy_of(source, bench.topic).all()
    assert bench.apply(2).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_a_topic_without_its_beginning_is_taken_up_at_a_copy() -> None:
    bench, source = CopyBench(), FakeSource()
    bench.write([source.put(source.row(1, "1@x", 1))])
    assert bench.apply().copy == CopyNeed(0, "gap")
    bench.take_over()
    copy_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_the_definition_of_a_copy_counts_whatever_was_in_force() -> None:
    bench, source = benched()
    bench.write([source.put(source.row(1, None, 1))])
    old = source.table
    wider = replaced(old, columns=(*old.columns, Column(name="x", type=ColumnType(kind=Kind.INT, bits=32))))
    bench.write([source.definition("ALTER TABLE acct ADD x INT", wider)])
    assert bench.apply().copy == CopyNeed(2, "definition")
    bench.take_over()
    source.table = wider
    source.rows = {key: {**row, "x": 7} for key, row in source.rows.items()}
    bench.write([source.put({**source.row(2, None, 1), "x": 8})])
    bench.target.tables["public.acct"] = replaced(wider, db="public")  # a person has altered it
    there = bench.target.state.rows["public.acct"]
    bench.target.state.rows["public.acct"] = {key: (*row, None) for key, row in there.items()}
    copy_of(source, bench.topic).all()
    assert bench.apply(2).state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert [row[-1] for row in bench.target.rows_of()] == [7, 8]


def test_a_second_stop_behind_the_begin_is_healed_by_a_second_copy() -> None:
    bench, source = benched()
    at = stopped_at(bench, source)
    copy_of(source, bench.topic).begin()
    bench.write([source.event("m", stop=STOP)])
    source.delete(1)
    copy_of(source, bench.topic, id="copy-2").all()
    assert bench.apply(at).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("happened", [True, False])
def test_a_crash_at_the_jump_loses_nothing(happened: bool) -> None:
    bench, source = benched()
    at = stopped_at(bench, source)
    copy_of(source, bench.topic).all()
    bench.target.unknown_happened = happened
    bench.target.faults = [CommitUnknownError("lost"), *[TransientError("down")] * 500]
    assert bench.apply(at).state == "behind"
    bench.target.faults = []
    bench.take_over()
    assert bench.apply(at).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


# --- what is deleted


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("slice_size", [50, 4, 1])
def test_rows_that_the_source_has_no_more_are_deleted(short: int, text: bool, slice_size: int) -> None:
    bench, source = benched(text=text, small_batch=short)
    bench.target.order = lambda key: str(key[0]) if text else key
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(2, 20, 2)])
    assert bench.apply().state == "ok"
    bench.plant(-4, 3, 5, 11, 99, 100, text=text)
    start = len(bench.topic)
    copy_of(source, bench.topic).all()
    assert bench.apply(start, slice_size=slice_size).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_an_ordered_key_is_cleared_chunk_by_chunk_and_another_one_at_the_end() -> None:
    for text in (False, True):
        bench, source = benched(text=text)
        bench.write([source.put(source.row(n, None, 1)) for n in range(9)])
        assert bench.apply().state == "ok"
        bench.plant(1000, -5, text=text)
        for key in (0, 1, 4):
            source.delete(key)  # and no event of it
        source.previous = None
        copy = copy_of(source, bench.topic)
        start = copy.begin()
        copy.emit()
        assert bench.apply(start).state == "ok"
        there = {2, 3, 5, 6, 7, 8, 1000} if not text else {0, 1, 2, 3, 4, 5, 6, 7, 8, 1000, -5}
        assert {int(str(key)) for key in keys_of(bench)} == there
        copy.emit(), copy.emit()
        assert bench.apply(start).state == "ok"
        assert bench.target.rows_of() == rows_of(source)


def test_a_partial_copy_deletes_nothing() -> None:
    bench, source = benched()
    bench.write([source.put(source.row(n, None, 1)) for n in range(4)])
    bench.plant(77)
    copy = copy_of(source, bench.topic, partial=True)
    copy.all()
    assert bench.apply().state == "ok"
    assert 77 in keys_of(bench)


def test_only_rows_of_this_source_are_deleted() -> None:
    routes = (replaced_route(),)
    bench, source = benched(routes=routes)
    bench.write([source.put(source.row(n, None, 1)) for n in range(4)])
    assert bench.apply().state == "ok"
    rows = bench.target.state.rows["public.acct"]
    stale = next(iter(rows.values()))
    for branch in ("branch1", "branch2"):
        rows[branch, 77] = (77, *stale[1:-1], branch)
    start = len(bench.topic)
    copy_of(source, bench.topic).all()
    assert bench.apply(start).state == "ok"
    assert ("branch2", 77) in bench.target.state.rows["public.acct"]
    assert ("branch1", 77) not in bench.target.state.rows["public.acct"]
    assert len(bench.target.rows_of()) == 5


def replaced_route() -> Any:
    from consumer.tables.router import TableRoute

    return TableRoute("bank.*", "public.{table}", (("branch", "{source}"),))


def test_what_the_target_shows_otherwise_is_asked_for_and_stays() -> None:
    """A target whose keys look different when they are read (for example a padded CHAR): no row that lives is
    deleted."""
    bench, source = benched(text=True)
    bench.write([source.put(source.row(n, None, 1)) for n in range(7)])
    assert bench.apply().state == "ok"
    bench.plant(50, 51, text=True)
    session = bench.target.session()
    shown: Callable[[Any], Any] = lambda key: (f"{key[0]:<5}",)  # noqa: E731
    kind = type(session)
    fetch_rows, fetch_keys = kind.fetch_rows, kind.fetch_keys
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            kind, "fetch_rows", lambda *a, **k: [shown(key) for key in fetch_rows(*a, **k)], raising=True
        )
        patch.setattr(
            kind, "fetch_keys",
            lambda self, table,
            keys: [shown(key) for key in fetch_keys(self, table, [(k[0].rstrip(),) for k in keys])],
        )  # fmt: skip
        apply = _deletes_padded(patch)
        start = len(bench.topic)
        copy_of(source, bench.topic).all()
        assert bench.apply(start).state == "ok"
    assert apply
    assert bench.target.rows_of() == rows_of(source)


def _deletes_padded(patch: pytest.MonkeyPatch) -> list[Any]:
    """Let the target compare its keys without their padding, as it does when it is asked for them."""
    from tests.stands.fake_target import FakeTransaction

    apply, seen = FakeTransaction.apply_net_change, []

    def padded(self: Any, net: Any, *, displacing: str | None = None) -> int:
        if net.deletes:
            seen.append(list(net.deletes))
            net.deletes = [(str(key[0]).rstrip(),) for key in net.deletes]
        return apply(self, net, displacing=displacing)

    patch.setattr(FakeTransaction, "apply_net_change", padded)
    return seen


def test_the_window_is_read_once_and_then_remembered() -> None:
    bench, source = benched()
    bench.write([source.put(source.row(n, None, 1)) for n in range(30)])
    assert bench.apply().state == "ok"
    start = len(bench.topic)
    copy_of(source, bench.topic, late=True).all()
    bench.plant(100)
    assert bench.apply(start).state == "ok"
    assert bench.reads <= 2
    assert bench.target.rows_of() == rows_of(source)


def test_a_chunk_behind_its_neighbour_reads_nothing_again_so_kafka_need_not_hold_that_one() -> None:
    bench, source = benched()
    bench.plant(3)
    copy = copy_of(source, bench.topic)
    start = copy.begin()
    assert bench.apply().state == "ok"
    copy.emit()  # of a table without rows: the marker is all that follows
    assert (copy.done, len(bench.topic)) == (True, start + 2)
    bench.expired = start + 1
    bench.take_over()
    report = bench.apply(start + 1)
    assert (report.state, report.offset, bench.reads) == ("ok", start + 1, 0)
    assert bench.target.rows_of() == []


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("failing", [False, True])
def test_the_scratch_file_of_a_sweep_is_closed_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bool, failing: bool
) -> None:
    """The file has no name: until it is closed, nobody can free its room."""
    opened: list[ScratchKeys] = []

    def open_keys(_scratch: str) -> ScratchKeys:
        opened.append(ScratchKeys(tmp_path, most=0))  # and the list holds it: no end of a life closes it
        return opened[-1]

    monkeypatch.setattr(driver, "open_keys", open_keys)
    bench, source = benched(text=text)
    bench.write([source.put(source.row(n, None, 1)) for n in range(4)])
    bench.plant(77, text=text)
    copy_of(source, bench.topic).all()
    if failing:
        monkeypatch.setattr(type(bench.target.session()), "fetch_rows", _refuses)
    assert bench.apply().state == ("stopped" if failing else "ok")
    assert opened
    for keys in opened:
        with pytest.raises(TransientError, match="closed database"):
            keys.discard_doubts([(77,)])


def _refuses(*_: Any, **__: Any) -> Any:
    raise RefusedError("no right to read")


def test_a_task_leaves_to_a_hand_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "MAX_QUICK_SWEEP_KEYS", 10)
    bench, source = benched(text=True)
    bench.write([source.put(source.row(n, None, 1)) for n in range(30)])
    assert bench.apply().state == "ok"
    start = len(bench.topic)
    copy = copy_of(source, bench.topic)
    copy.all()
    bench.plant(1000, text=True)
    bench.patient = False
    report = bench.apply(start)
    assert (report.state, report.offset) == ("behind", copy.markers[-1] - 1)
    bench.patient = True
    assert bench.apply(start).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    text=st.booleans(),
    late=st.booleans(),
    short=st.sampled_from([0, 8, 500]),
    lanes=st.integers(1, 4),
    size=st.integers(1, 9),
)
def test_any_history_with_copies_crashes_and_stale_rows_ends_as_the_source(
    seed: int, text: bool, late: bool, short: int, lanes: int, size: int
) -> None:
    """Chunks of 3 among random changes; batches that begin anywhere; a target that fails again and again;
    rows that went away unseen."""
    rng = random.Random(seed)
    limits = LaneLimits(max_gather=rng.choice([1, 3, 5000]), pause=0.001, max_pause=0.001, tries=3)
    bench, source = benched(text=text, small_batch=short, lanes=lanes, limits=limits)
    bench.target.order = lambda key: str(key[0]) if text else key
    bench.write(source.history(rng, 20, keys=12))
    for number in range(rng.randint(1, 2)):
        if rng.random() < 0.7:
            bench.write([source.event("m", stop=STOP)])
            for key in list(source.rows):
                if rng.random() < 0.3:
                    source.rows.pop(key)
        copy = copy_of(source, bench.topic, id=f"copy-{number}", late=late)
        copy.begin()
        while not copy.done:
            bench.write(source.history(rng, rng.randint(0, 5), keys=12) if rng.random() < 0.8 else [])
            if rng.random() < 0.1:
                bench.write([source.truncate()])
            copy.emit()
    bench.write(source.history(rng, 5, keys=12))
    bench.plant(*rng.sample(range(30), 5), text=text)
    whole = bench.topic
    start, ended = 0, 0
    while ended < len(whole):
        ended = min(len(whole), ended + rng.randint(1, 15))
        bench.topic = whole[:ended]
        bench.target.faults = [
            rng.choice([None, TransientError("x"), CommitUnknownError("y")]) for _ in range(rng.randint(0, 6))
        ]
        bench.target.unknown_happened = rng.random() < 0.5
        bench.apply(max(0, start), slice_size=size)
        bench.target.sessions.clear()
        bench.take_over()
        start = ended - rng.randint(0, 5)
    bench.topic = whole
    bench.target.faults = []
    for _ in range(5):
        bench.take_over()
        report = bench.apply(len(whole) - 1, slice_size=size)
        assert report.state == "ok", report
    assert bench.target.rows_of() == rows_of(source)
    assert set(bench.offsets()) == {len(whole) - 1}


# --- held keys


def poisoned(bench: Bench) -> None:
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None


@pytest.mark.parametrize("text", [False, True])
def test_a_row_of_the_copy_replaces_what_is_held_for_its_key(text: bool) -> None:
    bench, source = benched(text=text)
    poisoned(bench)
    odd = {**source.row(7, "p@x", 1), "owner": "poison"}
    bench.write([source.put(odd), source.put({**odd, "version": 2}), source.put(source.row(8, None, 1))])
    assert bench.apply().held == 2
    source.rows[7] = source.row(7, "p@x", 3)  # mended at the source, and its statement changed rows unseen
    start = len(bench.topic)
    copy_of(source, bench.topic).all()
    assert bench.apply(start).state == "ok"
    assert bench.target.state.held == {}
    assert [entry.offset for entry, _ in bench.target.state.closed] == [1, 2]
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("how", ["whole", "partial", "not ended"])
def test_rows_that_had_made_room_are_superseded_where_a_copy_of_the_whole_table_ends(how: str) -> None:
    bench, source = benched()
    bench.write([source.put(source.row(n, None, 1)) for n in range(4)])
    copy = copy_of(source, bench.topic, partial=how == "partial")
    copy.begin()
    if how == "not ended":
        copy.emit()
    else:
        while not copy.done:
            copy.emit()
    end = len(bench.topic) - 1
    assert bench.apply().state == "ok"
    assert bench.target.state.superseded == (
        [("public.acct", copy.begins, f"by the copy from offset {copy.begins} to {end}")]
        if how == "whole"
        else []
    )


def test_a_row_of_the_copy_that_is_refused_again_is_what_is_held_then() -> None:
    bench, source = benched()
    poisoned(bench)
    odd = {**source.row(7, "p@x", 1), "owner": "poison"}
    bench.write([source.put(odd), source.put(source.row(8, None, 1))])
    assert bench.apply().held == 1
    source.rows[7] = {**odd, "version": 2}
    start = len(bench.topic)
    copy_of(source, bench.topic).all()
    assert bench.apply(start).state == "ok"
    assert [(entry.offset, entry.error) for entry in bench.target.state.held.values()] == [
        (start + 1, "too long")
    ]
    assert [row[0] for row in bench.target.rows_of()] == [8]


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("how", ["before", "within", "behind its chunk"])
def test_held_keys_that_the_source_has_no_more_are_let_go_at_the_end(text: bool, how: str) -> None:
    bench, source = benched(text=text)
    poisoned(bench)
    bench.write([source.put(source.row(n, None, 1)) for n in range(1, 9)])
    bench.write([source.put({**source.row(2, None, 2), "owner": "poison"})])
    assert bench.apply().held == 1
    if how == "before":
        source.rows.pop(2)
    start = len(bench.topic)
    copy = copy_of(source, bench.topic)
    copy.begin()
    if how == "within":
        bench.write([source.delete(2)])
    copy.emit()
    if how == "behind its chunk":
        bench.write([source.delete(2)])
    while not copy.done:
        copy.emit()
    assert bench.apply(start).state == "ok"
    assert bench.target.state.held == {}
    assert bench.target.rows_of() == rows_of(source)


def test_a_key_that_the_end_of_a_copy_let_go_is_free_for_the_row_behind_it() -> None:
    """In the same attempt, whose lanes knew the key as held."""
    bench, source = benched()
    poisoned(bench)
    bench.write([source.put(source.row(n, None, 1)) for n in range(1, 4)])
    bench.write([source.put({**source.row(2, None, 2), "owner": "poison"})])
    assert bench.apply().held == 1
    source.rows.pop(2)
    start = len(bench.topic)
    copy_of(source, bench.topic).all()
    bench.write([source.put(source.row(2, None, 3))])
    assert bench.apply(start).state == "ok"
    assert bench.target.state.held == {}
    assert bench.target.rows_of() == rows_of(source)
    assert [entry.offset for entry, _ in bench.target.state.closed] == [4], "the row behind it does not queue"


def test_a_held_key_that_is_changed_while_the_copy_runs_stays_held() -> None:
    bench, source = benched()
    poisoned(bench)
    odd = {**source.row(2, None, 1), "owner": "poison"}
    bench.write([source.put(source.row(1, None, 1)), source.put(odd)])
    copy = copy_of(source, bench.topic)
    copy.begin()
    bench.write([source.put({**odd, "version": 2})])
    copy.emit()
    assert copy.done
    assert bench.apply().state == "ok"
    assert sorted(bench.target.state.held) == [(2, 0), (4, 0)]


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("never", [{0}, {2}, {2, 5}, {5}, {8}, {7}, {2, 5, 8}])
def test_a_key_that_the_target_cannot_hold_hinders_no_copy(
    never: set[int], missing: bool, text: bool
) -> None:
    """It is a bound of chunks (2, 5, 8) or within one; its row lives, and is held, or is gone."""
    bench, source = benched(text=text)
    target, value = bench.target, str if text else int
    cannot = {value(key) for key in never}
    target.holds = lambda key: key[0] not in cannot
    target.refuse = lambda row: RefusedError("no such date") if row[0] in cannot else None
    bench.write([source.put(source.row(n, None, 1)) for n in range(10)])
    assert bench.apply().held == len(never)
    for key in (1, 4, 6):
        source.rows.pop(key)  # and no event of it
    start = len(bench.topic)
    copy = copy_of(source, bench.topic, order=lambda key: key)
    copy.begin()
    bench.plant(-5, 1000, text=text)
    copy.emit(), copy.emit()
    if missing:
        bench.write([source.delete(key) for key in sorted(never)])
    while not copy.done:
        copy.emit()
    report = bench.apply(start)
    assert report.state == "ok", report.message
    there = [row for row in rows_of(source) if row[0] not in cannot]
    assert target.rows_of() == there
    held = {entry.key for entry in target.state.held.values()}
    assert len(held) == (0 if missing else len(never))


@pytest.mark.parametrize("upto", [1, 2, 3])
def test_a_range_with_a_refused_bound_is_cleared_at_the_next_marker(upto: int) -> None:
    bench, source = benched()
    bench.target.holds = lambda key: key != (2,)
    bench.target.refuse = lambda row: RefusedError("no such date") if row[0] == 2 else None
    bench.write([source.put(source.row(n, None, 1)) for n in range(9)])
    assert bench.apply().held == 1
    start = len(bench.topic)
    copy = copy_of(source, bench.topic)
    copy.begin()
    bench.plant(-5, 1000)
    for _ in range(upto):
        copy.emit()
    assert bench.apply(start).state == "ok"
    keys = {0, 1, 3, 4, 5, 6, 7, 8, 1000}
    assert set(keys_of(bench)) == (keys | {-5} if upto == 1 else keys)


def test_markers_of_an_older_version_do_not_say_what_is_gone() -> None:
    bench, source = benched()
    bench.write([source.put(source.row(1, None, 1))])
    marker = source.chunk_end(1)
    assert marker.chunk is not None
    marker.chunk.repeated = True
    bench.topic.append(encode_event_value(marker))
    report = bench.apply()
    assert (report.state, decode_problem(report.message).remedy) == ("stopped", "rowlock copy bank.acct")
