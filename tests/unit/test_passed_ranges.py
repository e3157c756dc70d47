"""The ranges of a key sweep that a unit has passed: they are compared between two batches, here a page at a
time (docs/adr/0041-partition-retention.md)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from consumer.attempt.copies import key_sweep
from consumer.attempt.drivers import threads
from consumer.attempt.reports import CopyNeed
from consumer.tables.key_order import has_form
from schemas.table.model import ColumnType, IndexPart, Kind
from tests.kits.apply import FakeSource
from tests.kits.copy import CopyOf
from tests.kits.unit_apply import rows_of
from tests.kits.unit_copies import STOP, CopyBench, benched, copy_of, settle, show_keys_as_decimals, sweep_of

PAGE = 2
"""Number of keys of a page."""


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "KEYS_PER_FETCH", PAGE)
    monkeypatch.setattr(key_sweep, "KEYS_PER_PAGE", 1)


def filled(count: int = 8, **options: Any) -> tuple[CopyBench, FakeSource]:
    bench, source = benched(sweep_s=0.0, **options)
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(count)])
    return bench, source


def test_events_behind_a_marker_do_not_wait_for_its_range() -> None:
    bench, source = filled(40)
    bench.write([source.remove_rows(*range(30))])
    sweep_of(source, bench.topic, limit=50).all()
    bench.write([source.put(source.row(35, "35@y", 2))])
    report = bench.apply()
    assert report.trial_in_s > 0, "and the rest of the range needs no further record"
    rows = {row[0]: row for row in bench.target.rows_of()}
    assert rows[35][1] == "35@y"
    assert len(rows) == 39, "a page was compared, and a row deleted"
    assert bench.has_debt
    assert settle(bench) > 20
    assert bench.target.rows_of() == rows_of(source)
    assert not bench.has_debt
    assert bench.sweep_since is None


@pytest.mark.parametrize("remembers", [True, False])
def test_rows_written_while_a_range_is_compared_stay(remembers: bool) -> None:
    """`remembers`: whether the process does; otherwise it reads the topic again."""
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    for key in range(14, -1, -1):
        bench.write([source.put(source.row(key, f"{key}@again", 2))])
        if key % 3 == 0:
            bench.write([source.delete(key)])
        if not remembers:
            bench.key_sweeps.clear()
        assert bench.apply().state == "ok"
    settle(bench)
    assert bench.target.rows_of() == rows_of(source)
    assert not bench.has_debt


def test_a_remembered_range_is_not_believed_at_another_offset() -> None:
    """The unit was applied by another process meanwhile."""
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    assert bench.apply().state == "ok"
    old = dict(bench.key_sweeps)
    assert old
    bench.key_sweeps.clear()
    bench.write([source.put(source.row(12, "12@again", 2))])
    assert bench.apply().state == "ok"
    bench.key_sweeps.clear()
    bench.key_sweeps.update(old)
    settle(bench)
    assert bench.target.rows_of() == rows_of(source)


def test_what_a_process_remembers_spares_reading_the_topic_again() -> None:
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    assert bench.apply().state == "ok"
    assert bench.reads == 0
    settle(bench)
    assert bench.reads == 0


def test_ranges_whose_keys_are_too_many_to_keep_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sweep, "MAX_KEYS_IN_MEMORY", 25)
    bench, source = filled(60)
    bench.write([source.remove_rows(*range(0, 60, 3))])
    sweep_of(source, bench.topic, limit=10).all()
    assert bench.apply().state == "ok"
    (sweep,) = bench.key_sweeps.values()
    assert [each.keys is None for each in sweep.ranges].count(True) >= 1
    settle(bench)
    assert bench.reads == 1, "several ranges are read at once"
    assert bench.target.rows_of() == rows_of(source)
    assert not bench.has_debt


def test_later_rows_that_are_too_many_to_keep_end_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sweep, "MAX_KEYS_IN_MEMORY", 25)
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(10))])
    sweep = sweep_of(source, bench.topic, limit=5)
    sweep.begin()
    sweep.emit()
    bench.write([source.put(source.row(n, None, 1)) for n in range(100, 140)])
    assert bench.apply().state == "ok"
    assert bench.sweep_since is None, "ranges that come later are compared at their markers"
    while not sweep.done:
        sweep.emit()
    settle(bench)
    assert bench.target.rows_of() == rows_of(source)
    assert not bench.has_debt


@pytest.mark.parametrize("what", ["truncated", "altered", "copied"])
def test_ranges_are_compared_before_an_event_that_ends_them(what: str) -> None:
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    if what == "truncated":
        bench.write([source.truncate()])
    elif what == "altered":
        bench.write([source.definition()])
    else:
        copy_of(source, bench.topic).all()
    bench.write([source.put(source.row(3, "3@again", 2))])
    assert bench.apply().state == "ok"
    assert bench.sweep_since is None
    assert bench.target.rows_of() == rows_of(source)
    assert not bench.has_debt


def test_an_impatient_attempt_does_not_compare_all_ranges_before_such_an_event() -> None:
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    bench.write([source.truncate()])
    bench.patient = False
    report = bench.apply()
    assert report.state == "behind"
    bench.patient = True
    bench.take_over()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == []
    assert not bench.has_debt


def test_a_restart_compares_no_range_twice() -> None:
    bench, source = filled(40)
    bench.write([source.remove_rows(*range(10))])
    sweep = sweep_of(source, bench.topic, limit=10)
    sweep.all()
    marks = []
    for _ in range(200):
        if not bench.apply().trial_in_s:
            break
        marks.append(bench.sweep_since)
    assert sorted({*marks} - {None}) == [sweep.begins, *sweep.markers[2:-1]]


def test_a_sweep_that_begins_before_the_last_one_is_compared_needs_no_marker_to_wait() -> None:
    bench, source = filled(8)
    bench.write([source.remove_rows(0)])
    sweep_of(source, bench.topic, limit=30).all()
    bench.write([source.remove_rows(1)])
    later = sweep_of(source, bench.topic, limit=30)
    later.begin()
    settle(bench)
    assert bench.sweep_since is not None
    while not later.done:
        later.emit()
    assert bench.apply().trial_in_s > 0
    settle(bench)
    assert bench.target.rows_of() == rows_of(source)


def test_a_unit_that_skips_to_a_copy_leaves_the_ranges_to_it() -> None:
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    assert bench.apply().state == "ok"
    assert bench.sweep_since is not None
    source.put(source.row(3, "3@lost", 2))  # a gap, which no reader passes
    bench.write([source.event("m", stop=STOP)])
    copy_of(source, bench.topic).all()
    bench.key_sweeps.clear()
    bench.take_over()
    settle(bench)
    assert bench.sweep_since is None
    assert bench.target.rows_of() == rows_of(source)
    assert not bench.has_debt


def test_a_range_whose_events_kafka_has_deleted_needs_a_copy() -> None:
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(15))])
    sweep = sweep_of(source, bench.topic, limit=30)
    sweep.all()
    assert bench.apply().state == "ok"
    bench.key_sweeps.clear()
    bench.expired = len(bench.topic)
    report = bench.apply(len(bench.topic))
    assert report.state == "stopped"
    assert isinstance(report.copy, CopyNeed)
    assert report.copy.cause == "gap"


def test_the_next_sweep_begins_while_ranges_of_the_last_one_are_left() -> None:
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(8))])
    sweep_of(source, bench.topic, limit=30).all()
    assert bench.apply().state == "ok"
    bench.write([source.remove_rows(*range(8, 14))])
    sweep_of(source, bench.topic, limit=4).all()
    settle(bench)
    assert bench.target.rows_of() == rows_of(source)
    assert not bench.has_debt
    assert bench.sweep_since is None


def test_keys_of_a_chunk_without_a_marker_do_not_count_for_the_next_sweep() -> None:
    """Capture ended between a chunk's keys and its marker; then a statement removed one of them."""
    bench, source = filled(8)
    bench.write([source.remove_rows(0)])
    broken = sweep_of(source, bench.topic, limit=30)
    broken.begin()
    broken._add(broken._snapshot(source.event("k", keys=((1,), (2,)))))
    bench.write([source.remove_rows(1)])
    sweep_of(source, bench.topic, limit=30).all()
    settle(bench)
    assert bench.target.rows_of() == rows_of(source)


def test_a_sweep_that_capture_gives_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rowlock copy --cancel` ends it, and the topic does not say so: otherwise Kafka would delete the offset
    from which the unit would read the topic again."""
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(10))])
    sweep = sweep_of(source, bench.topic, limit=5)
    sweep.begin()
    sweep.emit()
    settle(bench)
    assert bench.sweep_since is not None
    monkeypatch.setattr(key_sweep, "QUIET_S", -1.0)
    bench.write([source.put(source.row(30, None, 1))])
    report = bench.apply()
    assert (report.trial_in_s, bench.sweep_since) == (0.0, None)
    assert bench.has_debt
    while not sweep.done:
        sweep.emit()
    settle(bench)
    assert bench.target.rows_of() == rows_of(source), (
        "capture only rested: ranges are compared at their markers"
    )
    assert not bench.has_debt


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("remembers", [True, False])
def test_every_row_stays_if_the_key_of_the_target_is_altered_while_ranges_are_left(
    known: bool, remembers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`known`: the table is read again, as at a start; otherwise the process goes on."""
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(0, 20, 3))])
    sweep = sweep_of(source, bench.topic, limit=3)
    sweep.begin()
    begun = len(bench.topic) - 1
    for _ in range(2):
        sweep.emit()
    assert bench.apply().state == "ok"
    while bench.sweep_since == begun:  # until a range is compared
        assert bench.apply().state == "ok"
    for _ in range(2):
        sweep.emit()
    assert bench.apply().state == "ok"
    show_keys_as_decimals(bench, monkeypatch)
    if known:
        bench.tables.clear()
    if not remembers:
        bench.key_sweeps.clear()
    bench.write([source.put(source.row(3, "3@again", 2))])
    while not sweep.done:
        sweep.emit()
    at = len(bench.topic) - 1
    report = bench.apply()
    assert (report.state, report.copy) == ("stopped", CopyNeed(at, "rows-replaced"))
    assert {row[0] for row in rows_of(source)} <= {row[0] for row in bench.target.rows_of()}
    assert bench.has_debt


@pytest.mark.parametrize(
    ("of", "formed", "others"),
    [
        (ColumnType(kind=Kind.INT, bits=64), [-5, 2**64 - 1], ["5", "5.00", 5.0]),
        (ColumnType(kind=Kind.DECIMAL, precision=9, scale=2), ["-5.00"], ["5", "5.000", "5.0"]),
        (ColumnType(kind=Kind.DECIMAL, precision=9), ["5"], ["5.00"]),
        (ColumnType(kind=Kind.DECIMAL), ["5", "5.25"], []),
        (ColumnType(kind=Kind.DATE), ["2026-01-02", "0000-00-00"], ["2026-01-02 00:00:00"]),
        (ColumnType(kind=Kind.DATETIME), ["2026-01-02 03:04:05"], ["2026-01-02 03:04:05.000"]),
        (ColumnType(kind=Kind.DATETIME, fsp=3), ["2026-01-02 03:04:05.000"], ["2026-01-02 03:04:05"]),
        (ColumnType(kind=Kind.TIMESTAMP, fsp=3), ["2026-01-02T03:04:05.000Z"], ["2026-01-02T03:04:05Z"]),
    ],
    ids=str,
)
def test_the_form_of_a_key_tells_an_altered_column(
    of: ColumnType, formed: list[object], others: list[object]
) -> None:
    assert [has_form(of, value) for value in formed] == [True] * len(formed)
    assert [has_form(of, value) for value in others] == [False] * len(others)


def test_a_unit_whose_target_gets_a_wider_key_while_ranges_are_left_stops_for_a_copy() -> None:
    bench, source = filled(20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    assert bench.apply().state == "ok"
    assert bench.sweep_since is not None
    key = source.table.key
    wider = replaced(key, parts=(*key.parts, IndexPart(column="opened")))
    bench.target.tables["public.acct"] = replaced(source.table, db="public", key=wider)
    rows = bench.target.state.rows["public.acct"]
    bench.target.state.rows["public.acct"] = {(row[0], row[5]): row for row in rows.values()}
    bench.tables.clear()
    bench.key_sweeps.clear()
    bench.take_over()
    at = len(bench.topic) - 1
    report = bench.apply(at + 1)
    assert (report.state, report.copy) == ("stopped", CopyNeed(at, "rows-replaced"))
    assert bench.has_debt
    copy_of(source, bench.topic).all()
    bench.take_over()
    assert bench.apply(at + 1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert not bench.has_debt
    assert bench.sweep_since is None


def test_random_histories_of_processes_end_as_the_source() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        bench, source = filled(12, lanes=rng.choice((1, 4)))
        sweep: CopyOf | None = None
        for _ in range(40):
            step = rng.random()
            if step < 0.12 and len(source.rows) > 3:
                bench.write([source.remove_rows(*rng.sample(sorted(source.rows), 3))])
            elif step < 0.4:
                key = rng.randrange(16)
                bench.write([source.put(source.row(key, f"{key}@{rng.random()}", rng.randrange(99)))])
            elif step < 0.5 and source.rows:
                bench.write([source.delete(rng.choice(sorted(source.rows)))])
            elif step < 0.53 and sweep is None:
                bench.write([source.truncate() if rng.random() < 0.5 else source.definition()])
            elif sweep is None:
                sweep = sweep_of(source, bench.topic, limit=rng.randrange(1, 9))
                sweep.begin()
            else:
                sweep.emit()
                sweep = None if sweep.done else sweep
            if rng.random() < 0.1:
                bench.key_sweeps.clear()
                bench.take_over()
            if rng.random() < 0.4:
                assert bench.apply().state == "ok"
                missing = {row[0] for row in rows_of(source)} - {row[0] for row in bench.target.rows_of()}
                assert not missing, "no row that the source has is ever missing"
        while sweep is not None and not sweep.done:
            sweep.emit()
        sweep_of(source, bench.topic).all()
        settle(bench)
        assert bench.target.rows_of() == rows_of(source), seed
        assert not bench.has_debt
        assert bench.sweep_since is None
