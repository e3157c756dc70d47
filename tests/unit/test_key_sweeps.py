"""Rows that a statement of the source removed, applied: the debt, and the key sweep that pays it
(docs/adr/0041-partition-retention.md)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from consumer.attempt.copies.begin import decode_copy_begin
from consumer.attempt.reports import CopyNeed
from consumer.errors import CommitUnknownError, RefusedError, TransientError
from consumer.tables.router import TableRoute
from consumer.tables.stored import decode_stored
from schemas.table.model import IndexPart
from schemas.wire.codec import decode_event
from schemas.wire.copies import RemovedRows
from tests.kits.apply import FakeSource
from tests.kits.copy import CopyOf
from tests.kits.unit_apply import rows_of
from tests.kits.unit_copies import CopyBench, benched, copy_of, stopped_at, sweep_of

TEXT = pytest.mark.parametrize("text", [False, True])
"""Whether the key is text: the target's table is then compared as a whole."""


def debt_of(bench: CopyBench) -> RemovedRows | None:
    return decode_stored(bench.target.state.unit.definition or "").removed


def held_keys(bench: CopyBench) -> list[str]:
    return sorted(entry.key for entry in bench.target.state.held.values())


def filled(count: int = 8, *, text: bool = False, **options: Any) -> tuple[CopyBench, FakeSource]:
    bench, source = benched(text=text, **options)
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(count)])
    return bench, source


@TEXT
def test_removed_rows_leave_the_unit_running_with_a_debt_until_a_key_sweep(text: bool) -> None:
    bench, source = filled(text=text)
    at = len(bench.topic)
    bench.write([source.remove_rows(0, 1, 5), source.put(source.row(2, "2@y", 2))])
    assert bench.apply().state == "ok"
    debt = debt_of(bench)
    assert debt is not None
    assert (debt.offset, debt.ddl, debt.statements) == (at, "ALTER TABLE acct DROP PARTITION p0", 1)
    assert len(bench.target.rows_of()) == 8
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert debt_of(bench) is None


@TEXT
def test_rows_written_again_after_the_statement_survive_the_key_sweep(text: bool) -> None:
    bench, source = filled(text=text)
    bench.write([source.remove_rows(0, 1, 5), source.put(source.row(1, "1@again", 2))])
    sweep = sweep_of(source, bench.topic)
    sweep.begin()
    bench.write([source.put(source.row(5, "5@again", 3))])
    sweep.emit()
    bench.write([source.put(source.row(0, "0@again", 4)), source.delete(7)])
    while not sweep.done:
        sweep.emit()
    bench.write([source.put(source.row(9, "9@x", 1))])
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert debt_of(bench) is None


def test_a_sweep_that_began_before_the_statement_leaves_the_debt() -> None:
    bench, source = filled()
    bench.write([source.remove_rows(0)])
    sweep = sweep_of(source, bench.topic)
    sweep.begin()
    sweep.emit()
    bench.write([source.remove_rows(1, 6)])
    while not sweep.done:
        sweep.emit()
    assert bench.apply().state == "ok"
    debt = debt_of(bench)
    assert debt is not None
    assert debt.statements == 2
    assert len(bench.target.rows_of()) == 6, "1 was in a chunk before it was removed"
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert debt_of(bench) is None


def test_a_copy_that_begins_later_pays_the_debt_and_a_partial_one_does_not() -> None:
    bench, source = filled()
    bench.write([source.remove_rows(0)])
    copy_of(source, bench.topic, partial=True).all()
    assert bench.apply().state == "ok"
    assert debt_of(bench) is not None
    copy_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert debt_of(bench) is None


def test_no_stopped_unit_continues_at_the_begin_of_a_key_sweep() -> None:
    bench, source = benched()
    at = stopped_at(bench, source)
    sweep = sweep_of(source, bench.topic)
    sweep.all()
    bench.hint = sweep.begins
    report = bench.apply(at)
    assert (report.state, report.copy and report.copy.after) == ("stopped", at)
    assert decode_copy_begin(bench.topic[sweep.begins]) is None
    bench.take_over()
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_a_reader_of_old_versions_refuses_both_operations() -> None:
    bench, source = filled()
    bench.write([source.remove_rows(0)])
    sweep_of(source, bench.topic).all()
    new = [event for raw in bench.topic if (event := decode_event(raw)).op in ("p", "k")]
    assert [event.op for event in new] == ["p", "k", "k", "k", "k"]
    assert {event.source.version for event in new} == {"3.0"}


@pytest.mark.parametrize("happened", [True, False])
def test_a_crash_at_any_transaction_of_a_sweep_loses_nothing(happened: bool) -> None:
    for place in range(1, 14, 3):
        bench, source = filled()
        bench.write([source.remove_rows(0, 4), source.put(source.row(4, "4@y", 2))])
        sweep_of(source, bench.topic).all()
        bench.write([source.put(source.row(0, "0@y", 2))])
        bench.target.unknown_happened = happened
        bench.target.faults = [*[None] * place, CommitUnknownError("lost"), *[TransientError("down")] * 30]
        bench.apply()
        bench.target.faults = []
        bench.target.sessions.clear()
        bench.take_over()
        assert bench.apply().state == "ok", place
        assert bench.target.rows_of() == rows_of(source), place
        assert debt_of(bench) is None


def test_of_a_target_with_several_sources_only_the_rows_of_this_one_are_deleted() -> None:
    bench = CopyBench(routes=(TableRoute("bank.*", "public.{table}", add=(("branch", "b1"),)),))
    source = FakeSource()
    bench.write([source.definition(), *(source.put(source.row(n, None, 1)) for n in range(8))])
    assert bench.apply().state == "ok"
    rows = bench.target.state.rows["public.acct"]
    branch = bench.target.tables["public.acct"].column_names.index("branch")
    key, row = next(iter(rows.items()))
    other = tuple("b2" if at == branch else value for at, value in enumerate(row))
    rows[tuple("b2" if value == "b1" else value for value in key)] = other
    bench.write([source.remove_rows(0, 1)])
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    left = bench.target.rows_of()
    assert sorted(row[0] for row in left if row[branch] == "b1") == list(range(2, 8))
    assert [row for row in left if row[branch] == "b2"] == [other]


def test_random_histories_end_as_the_source() -> None:
    for seed in range(14):
        rng = random.Random(seed)
        bench, source = filled(12, text=bool(seed % 2))
        sweep: CopyOf | None = None
        owed = False
        for _ in range(25):
            step = rng.random()
            if step < 0.15 and len(source.rows) > 3:
                bench.write([source.remove_rows(*rng.sample(sorted(source.rows), 2))])
                owed = True
            elif step < 0.4:
                key = rng.randrange(16)
                bench.write([source.put(source.row(key, f"{key}@{rng.random()}", rng.randrange(99)))])
            elif step < 0.5 and source.rows:
                bench.write([source.delete(rng.choice(sorted(source.rows)))])
            elif sweep is None:
                sweep = sweep_of(source, bench.topic, limit=rng.randrange(1, 5))
                sweep.begin()
                owed = False
            else:
                sweep.emit()
                sweep = None if sweep.done else sweep
            if rng.random() < 0.2:
                assert bench.apply().state == "ok"
                missing = {row[0] for row in rows_of(source)} - {row[0] for row in bench.target.rows_of()}
                assert not missing, "no row that the source has is ever missing"
        while sweep is not None and not sweep.done:
            sweep.emit()
        if owed:
            assert bench.apply().state == "ok"
            assert debt_of(bench) is not None
        sweep_of(source, bench.topic).all()
        for _ in range(3):  # one for each sweep that has not ended
            assert bench.apply().state == "ok", seed
        assert bench.target.rows_of() == rows_of(source), seed
        assert debt_of(bench) is None


# --- the quarantine


def test_the_sweep_decides_on_quarantined_keys() -> None:
    """7 was rejected and is left at the source, 8 was rejected and removed."""
    bench, source = filled(4)
    bench.target.refuse = lambda row: RefusedError("too long") if row[6] == "bad" else None
    for key in (7, 8):
        bench.write([source.put(source.row(key, f"{key}@x", 1, "bad"))])
    assert bench.apply().held == 2
    assert held_keys(bench) == ["[7]", "[8]"]
    bench.write([source.remove_rows(8, 2)])
    assert bench.apply().state == "ok"
    assert held_keys(bench) == ["[7]", "[8]"], "the sweep decides"
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert held_keys(bench) == ["[7]"]
    assert sorted(row[0] for row in bench.target.rows_of()) == [0, 1, 3]


@TEXT
def test_a_quarantined_key_that_changes_after_the_statement_is_judged_by_its_change(text: bool) -> None:
    bench, source = filled(4, text=text)
    bench.target.refuse = lambda row: RefusedError("too long") if row[6] == "bad" else None
    bench.write([source.put(source.row(key, None, 1, "bad")) for key in (7, 8)])
    assert bench.apply().held == 2
    bench.write([source.remove_rows(7, 8), source.put(source.row(8, None, 2, "bad"))])
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert [key.strip('[]"') for key in held_keys(bench)] == ["8", "8"]


def test_a_key_sweep_supersedes_no_displaced_row() -> None:
    bench, source = filled()
    bench.write([source.remove_rows(0)])
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert bench.target.state.superseded == []


@TEXT
@pytest.mark.parametrize("displacing", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_rows_with_the_unique_values_of_removed_rows_are_in_the_target_after_the_sweep(
    text: bool, displacing: bool, whole: bool
) -> None:
    """`displacing`: `conflicts: replace`; otherwise they wait in the quarantine until the removed rows have
    left the target."""
    bench, source = filled(4, text=text, replace=displacing)
    bench.write([source.remove_rows(1, 2)])
    bench.write([source.put(source.row(11, "1@x", 1)), source.put(source.row(12, "2@x", 1))])
    assert bench.apply().held == (0 if displacing else 2)
    (copy_of if whole else sweep_of)(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert held_keys(bench) == []


def test_a_row_that_is_refused_for_another_reason_keeps_its_reason_after_the_sweep() -> None:
    bench, source = filled(4)
    bench.target.refuse = lambda row: RefusedError("too long") if row[6] == "bad" else None
    bench.write([source.put(source.row(7, "7@x", 1, "bad")), source.remove_rows(0)])
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert [entry.error for entry in bench.target.state.held.values()] == ["too long"]


def held_by_the_unit_until_a_sweep_began(bench: CopyBench, source: FakeSource) -> CopyOf:
    """Let the target refuse a row of key 1, which the source then removes, and let a sweep pass the key."""
    bench.target.refuse = lambda row: RefusedError("too long") if row[6] == "bad" else None
    bench.write([source.put(source.row(1, "1@new", 2, "bad"))])
    assert bench.apply().held == 1
    bench.write([source.remove_rows(1)])
    sweep = sweep_of(source, bench.topic)
    sweep.begin()
    sweep.emit()
    assert bench.apply().state == "ok"
    assert held_keys(bench) == ["[1]"]
    return sweep


def test_no_entry_older_than_the_statement_is_tried_before_the_sweep_has_ended() -> None:
    bench, source = filled()
    sweep = held_by_the_unit_until_a_sweep_began(bench, source)
    bench.target.refuse = lambda _: None
    ((place, entry),) = bench.target.state.held.items()
    bench.target.state.held[place] = replaced(entry, error="held behind offset 3")
    bench.take_over()
    assert bench.apply().state == "ok"
    assert held_keys(bench) == ["[1]"]
    bench.write([source.put(source.row(1, "1@again", 3))])
    assert bench.apply().state == "ok"
    assert held_keys(bench) == [], "a change after the statement counts"
    while not sweep.done:
        sweep.emit()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_the_second_reading_of_a_long_sweep_counts_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    from consumer.attempt.copies import sweep

    bench, source = filled(12)
    bench.target.refuse = lambda row: RefusedError("too long") if row[6] == "bad" else None
    bench.write([source.put(source.row(77, None, 1, "bad")), source.remove_rows(0)])
    sweep_of(source, bench.topic).all()
    monkeypatch.setattr(sweep, "MAX_QUICK_SWEEP_KEYS", 10)
    bench.patient = False
    assert bench.apply().state == "behind"
    bench.patient = True
    bench.take_over()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == [row for row in rows_of(source) if row[0] != 77]


# --- targets that cannot be swept by keys


def test_a_unit_that_cannot_sweep_by_keys_stops_for_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    from consumer.attempt import attempt

    monkeypatch.setattr(attempt, "can_sweep_keys", lambda *_, **__: False)
    bench, source = filled()
    at = len(bench.topic)
    bench.write([source.remove_rows(0), source.put(source.row(2, "2@y", 2))])
    report = bench.apply()
    assert (report.state, report.copy) == ("stopped", CopyNeed(at, "rows-replaced"))
    bench.take_over()
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def widen_key(bench: CopyBench, source: FakeSource) -> None:
    """Give the target's table a column more in its primary key."""
    key = source.table.key
    wider = replaced(key, parts=(*key.parts, IndexPart(column="opened")))
    bench.target.tables["public.acct"] = replaced(source.table, db="public", key=wider)


def test_a_target_with_a_wider_key_than_the_source_stops_for_a_copy_which_heals_it() -> None:
    bench, source = benched()
    widen_key(bench, source)
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(6)])
    at = len(bench.topic)
    bench.write([source.remove_rows(1, 2)])
    report = bench.apply()
    assert (report.state, report.copy) == ("stopped", CopyNeed(at, "rows-replaced"))
    sweep_of(source, bench.topic).all()
    bench.take_over()
    assert bench.apply(at).state == "stopped"
    bench.take_over()
    copy_of(source, bench.topic).all()
    sweep_of(source, bench.topic).all()
    assert bench.apply(at).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_a_debt_of_a_target_whose_key_was_widened_meanwhile_stops_at_the_end_of_the_sweep() -> None:
    bench, source = filled()
    bench.write([source.remove_rows(0)])
    assert bench.apply().state == "ok"
    assert debt_of(bench) is not None
    widen_key(bench, source)
    rows = bench.target.state.rows["public.acct"]
    bench.target.state.rows["public.acct"] = {(row[0], row[5]): row for row in rows.values()}
    bench.tables.clear()
    bench.take_over()
    sweep_of(source, bench.topic).all()
    at = len(bench.topic) - 1
    report = bench.apply()
    assert (report.state, report.copy) == ("stopped", CopyNeed(at, "rows-replaced"))
    bench.take_over()
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert debt_of(bench) is None
