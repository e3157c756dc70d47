"""Key sweeps of targets that order or show a key otherwise than the source: the table is compared as a whole
between batches, here a page at a time (docs/adr/0041-partition-retention.md)."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace as replaced

from consumer.attempt.copies import keys, keys_on_disk, table_sweep
from consumer.attempt.drivers import driver, threads
from schemas.table.model import ColumnType, Kind
from tests.kits.apply import FakeSource
from tests.kits.copy import CopyOf
from tests.kits.unit_apply import rows_of
from tests.kits.unit_copies import CopyBench, benched, copy_of, settle, show_keys_as_decimals, sweep_of

FORMS = pytest.mark.parametrize("form", ["text", "decimal"])
"""The target's key: a text, or a number that it shows with two digits more than the source."""


@pytest.fixture(autouse=True, params=[5, 10_000], ids=["on disk", "in memory"])
def small_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let pages be small, and keep at most so many keys in memory. Returns what does it again."""

    def shrink() -> None:
        _shrink_pages(monkeypatch, request.param)

    shrink()
    return shrink


def _shrink_pages(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    monkeypatch.setattr(driver, "ScratchKeys", partial(keys_on_disk.ScratchKeys, most=in_memory))
    monkeypatch.setattr(threads, "KEYS_PER_FETCH", 2)
    for module in (keys, keys_on_disk, table_sweep):
        monkeypatch.setattr(module, "KEYS_PER_PAGE", 1, raising=False)
    monkeypatch.setattr(table_sweep, "KEYS_PER_PIECE", 3)


def filled(
    monkeypatch: pytest.MonkeyPatch, form: str, count: int, **options: object
) -> tuple[CopyBench, FakeSource]:
    bench, source = benched(text=form == "text", sweep_s=0.0, **options)
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(count)])
    assert bench.apply().state == "ok"
    if form == "decimal":
        show_keys_as_decimals(bench, monkeypatch)
        bench.tables.clear()
        bench.take_over()
    return bench, source


def emails(bench: CopyBench) -> dict[int, object]:
    return {int(row[0]): row[1] for row in bench.target.rows_of()}


def is_settled(bench: CopyBench, source: FakeSource) -> bool:
    """Return whether the target is as the source, and the unit owes nothing."""
    return bench.target.rows_of() == rows_of(source) and not bench.has_debt and bench.sweep_since is None


@FORMS
def test_events_behind_the_last_marker_do_not_wait_for_the_comparison(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, source = filled(monkeypatch, form, 40)
    bench.write([source.remove_rows(*range(30))])
    sweep_of(source, bench.topic, limit=50).all()
    bench.write([source.put(source.row(35, "35@y", 2))])
    report = bench.apply()
    assert report.trial_in_s > 0, "and the rest of the comparison needs no further record"
    assert (emails(bench)[35], len(emails(bench))) == ("35@y", 40)
    assert bench.has_debt
    assert settle(bench) > 20
    assert is_settled(bench, source)


@FORMS
@pytest.mark.parametrize("remembers", [True, False])
def test_rows_written_while_the_table_is_compared_stay(
    form: str, remembers: bool, small_pages: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are written at each point of the comparison. `remembers`: whether the process does; otherwise
    another one has begun in between."""
    for moment in range(1, 60, 1 if remembers else 9):
        bench, source = filled(monkeypatch, form, 12)
        bench.write([source.remove_rows(*range(9))])
        sweep_of(source, bench.topic, limit=30).all()
        for _ in range(moment):
            assert bench.apply().state == "ok"
        if not remembers:
            bench.key_sweeps.clear()
        bench.write([source.put(source.row(key, f"{key}@again", 2)) for key in (0, 4, 8)])
        bench.write([source.delete(4), source.put(source.row(20, "20@x", 1))])
        settle(bench)
        assert is_settled(bench, source), moment
        monkeypatch.undo()
        small_pages()


def test_the_keys_of_a_sweep_that_capture_gave_up_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, source = filled(monkeypatch, "text", 20)
    given_up = sweep_of(source, bench.topic, limit=6)
    given_up.begin()
    given_up.emit()
    bench.write([source.remove_rows(*range(15))])
    assert bench.apply().state == "ok"
    sweep_of(source, bench.topic, limit=30).all()
    settle(bench)
    assert is_settled(bench, source)


def test_a_sweep_that_begins_during_the_comparison_of_the_last_one_is_compared_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, source = filled(monkeypatch, "text", 20)
    bench.write([source.remove_rows(*range(5))])
    sweep_of(source, bench.topic, limit=30).all()
    for _ in range(4):
        assert bench.apply().state == "ok"
    bench.write([source.remove_rows(*range(5, 9))])
    sweep_of(source, bench.topic, limit=30).all()
    settle(bench)
    assert is_settled(bench, source)


@pytest.mark.parametrize("what", ["truncated", "altered", "copied"])
@pytest.mark.parametrize("ended", [True, False], ids=["last marker passed", "not passed"])
def test_an_event_that_ends_the_comparison_finds_no_row_too_many_or_too_few(
    what: str, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, source = filled(monkeypatch, "text", 20)
    bench.write([source.remove_rows(*range(15))])
    sweep = sweep_of(source, bench.topic, limit=6)
    sweep.begin()
    sweep.emit()
    while ended and not sweep.done:
        sweep.emit()
    assert bench.apply().state == "ok"
    if what == "copied":
        copy_of(source, bench.topic).all()
    else:
        bench.write([source.truncate() if what == "truncated" else source.definition()])
    bench.write([source.put(source.row(3, "3@again", 2))])
    while not sweep.done:
        sweep.emit()
    settle(bench)
    assert is_settled(bench, source)


def test_an_impatient_attempt_does_not_compare_the_table_before_such_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, source = filled(monkeypatch, "text", 20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    bench.write([source.definition()])
    bench.patient = False
    assert bench.apply().state == "behind"
    bench.patient = True
    bench.take_over()
    settle(bench)
    assert is_settled(bench, source)


def test_a_sweep_without_its_last_marker_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, source = filled(monkeypatch, "text", 8)
    bench.write([source.remove_rows(0)])
    sweep = sweep_of(source, bench.topic, limit=3)
    sweep.begin()
    sweep.emit()
    settle(bench)
    monkeypatch.setattr(table_sweep, "QUIET_S", -1.0)
    assert bench.apply().state == "ok"
    assert bench.sweep_since is None
    while not sweep.done:
        sweep.emit()
    settle(bench)
    assert is_settled(bench, source), "the table is compared at the last marker"


@pytest.mark.parametrize("at_its_begin", [True, False])
def test_a_target_that_shows_keys_otherwise_in_the_middle_of_a_sweep(
    at_its_begin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`at_its_begin`: no range is compared, so all keys can be read again. Otherwise a copy is needed."""
    bench, source = benched(sweep_s=0.0 if at_its_begin else 60.0)
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(20)])
    bench.write([source.remove_rows(*range(15))])
    sweep = sweep_of(source, bench.topic, limit=2)
    sweep.begin()
    assert bench.apply().state == "ok"
    sweep.emit()
    assert bench.apply().state == "ok"
    show_keys_as_decimals(bench, monkeypatch)
    bench.tables.clear()
    bench.take_over()
    while not sweep.done:
        sweep.emit()
    if at_its_begin:
        settle(bench)
        assert is_settled(bench, source)
        return
    report = bench.apply()
    assert (report.state, report.copy and report.copy.cause) == ("stopped", "rows-replaced")
    assert {row[0] for row in rows_of(source)} <= emails(bench).keys()
    assert bench.has_debt


def test_a_target_whose_table_was_altered_is_compared_from_the_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was found of its keys may have another form now."""
    bench, source = filled(monkeypatch, "text", 20)
    bench.write([source.remove_rows(*range(15))])
    sweep_of(source, bench.topic, limit=30).all()
    for _ in range(6):
        assert bench.apply().state == "ok"
    table = bench.target.tables["public.acct"]
    longer = ColumnType(kind=Kind.VARCHAR, length=99, charset="utf8mb4", collation="utf8mb4_bin")
    key = replaced(table.columns[0], type=longer)
    bench.target.tables["public.acct"] = replaced(table, columns=(key, *table.columns[1:]))
    bench.tables.clear()
    reads = bench.reads
    assert bench.apply().state == "ok"
    assert bench.reads > reads
    settle(bench)
    assert is_settled(bench, source)


@FORMS
def test_random_histories_of_processes_end_as_the_source(
    form: str, small_pages: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        bench, source = filled(monkeypatch, form, 12, lanes=rng.choice((1, 4)))
        sweep: CopyOf | None = None
        for _ in range(60):
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
            elif step < 0.55:
                sweep = None  # capture gives it up
            elif sweep is None and step < 0.8:
                sweep = sweep_of(source, bench.topic, limit=rng.randrange(1, 9))
                sweep.begin()
            elif sweep is not None:
                sweep.emit()
                sweep = None if sweep.done else sweep
            if rng.random() < 0.05:
                bench.key_sweeps.clear()
                bench.take_over()
            for _ in range(rng.choice((0, 0, 1, 4))):
                assert bench.apply().state == "ok"
                missing = {int(row[0]) for row in rows_of(source)} - emails(bench).keys()
                assert not missing, (seed, missing, "no row that the source has is ever missing")
        sweep_of(source, bench.topic).all()
        settle(bench)
        assert is_settled(bench, source), seed
        monkeypatch.undo()
        small_pages()
