"""Rows that stay in the target although a statement of the source removed them, applied (`partitions: keep`,
docs/adr/0042-kept-rows.md)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from consumer.errors import CommitUnknownError, RefusedError, TransientError
from consumer.tables.router import TableRoute
from consumer.tables.stored import decode_stored
from schemas.table.model import ColumnType, IndexPart, Kind
from schemas.wire.event import ColumnChanges
from schemas.wire.records import TableStop
from tests.kits.apply import FakeSource
from tests.kits.copy import CopyOf
from tests.kits.unit_apply import rows_of
from tests.kits.unit_copies import CopyBench, benched, copy_of

KEEP = (TableRoute("bank.*", "public.{table}", keeps_removed_rows=True),)
FOLLOW = (TableRoute("bank.*", "public.{table}"),)
TEXT = pytest.mark.parametrize("text", [False, True])
"""Whether the key is text: the target is then compared once, at the sweep's end."""


def sweep_of(source: FakeSource, topic: list[bytes], **options: Any) -> CopyOf:
    return copy_of(source, topic, keys=True, id="sweep-1", **options)


def filled(count: int = 8, *, text: bool = False, **options: Any) -> tuple[CopyBench, FakeSource]:
    bench, source = benched(text=text, routes=KEEP, **options)
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(count)])
    return bench, source


def dropped(bench: CopyBench, source: FakeSource, *keys: int) -> None:
    """Let the source remove rows, and a key sweep pay the debt."""
    bench.write([source.remove_rows(*keys)])
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"


def routed(bench: CopyBench, routes: tuple[TableRoute, ...]) -> None:
    """Let the next attempts have other routes."""
    bench.routes = routes
    bench.tables.clear()
    bench.take_over()


def kept_keys(bench: CopyBench) -> list[str]:
    return sorted(key.strip('[]"') for _, key in bench.target.state.kept)


def ids(bench: CopyBench) -> list[int]:
    return sorted(int(row[0]) for row in bench.target.rows_of())


def ids_of(source: FakeSource) -> list[int]:
    return sorted(int(str(row["id"])) for row in source.rows.values())


def kept_flag(bench: CopyBench) -> bool:
    return decode_stored(bench.target.state.unit.definition or "").has_kept_rows


def has_debt(bench: CopyBench) -> bool:
    return decode_stored(bench.target.state.unit.definition or "").removed is not None


@TEXT
def test_removed_rows_stay_and_are_recorded_by_the_key_sweep(text: bool) -> None:
    bench, source = filled(text=text)
    before = {row[0]: row for row in bench.target.rows_of()}
    at = len(bench.topic)
    dropped(bench, source, 0, 1, 5)
    assert ids(bench) == list(range(8))
    assert kept_keys(bench) == ["0", "1", "5"]
    assert {*bench.target.state.kept.values()} == {(at, "ALTER TABLE acct DROP PARTITION p0")}
    assert not has_debt(bench)
    assert kept_flag(bench)
    assert all(row == before.get(row[0], row) for row in bench.target.rows_of())


@TEXT
@pytest.mark.parametrize("whole", [True, False])
def test_kept_rows_survive_later_copies_and_key_sweeps_that_delete_other_rows(
    text: bool, whole: bool
) -> None:
    bench, source = filled(text=text)
    dropped(bench, source, 0, 1)
    bench.plant(77, text=text)
    (copy_of if whole else sweep_of)(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert ids(bench) == list(range(8))
    assert kept_keys(bench) == ["0", "1"]


@TEXT
def test_a_copy_while_the_debt_is_unpaid_records_instead_of_deleting(text: bool) -> None:
    bench, source = filled(text=text)
    bench.write([source.remove_rows(0, 1)])
    copy_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert ids(bench) == list(range(8))
    assert kept_keys(bench) == ["0", "1"]
    assert not has_debt(bench)


def test_a_copy_that_began_before_the_statement_keeps_what_its_later_chunks_lack() -> None:
    bench, source = filled()
    copy = copy_of(source, bench.topic)
    copy.begin()
    copy.emit()
    bench.write([source.remove_rows(1, 6)])
    while not copy.done:
        copy.emit()
    assert bench.apply().state == "ok"
    assert ids(bench) == list(range(8))
    assert kept_keys(bench) == ["6"]
    assert has_debt(bench)
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == ["1", "6"]


def test_a_kept_key_that_is_written_again_lives_and_is_deleted_like_any_other() -> None:
    bench, source = filled()
    dropped(bench, source, 0, 1)
    bench.write([source.put(source.row(1, "1@again", 2))])
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == ["0"]
    bench.write([source.delete(1)])
    assert bench.apply().state == "ok"
    assert ids(bench) == [0, *range(2, 8)]


def test_a_key_that_came_again_is_not_protected_when_its_delete_is_lost() -> None:
    """The source deletes it while events are lost, so only the copy shows that."""
    bench, source = filled()
    dropped(bench, source, 0, 1)
    bench.write([source.put(source.row(1, "1@again", 2))])
    assert bench.apply().state == "ok"
    del source.rows[1]
    copy_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert ids(bench) == [0, *range(2, 8)]


def test_a_row_of_a_copy_ends_the_entry_of_its_key() -> None:
    bench, source = filled()
    dropped(bench, source, 0, 1)
    source.rows[1] = source.row(1, "1@again", 2)  # its event is lost
    copy_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == ["0"]
    assert {row[0]: row[1] for row in bench.target.rows_of()}[1] == "1@again"


def test_a_recovered_row_ends_the_entry_of_its_key() -> None:
    bench, source = filled()
    dropped(bench, source, 0, 1)
    bench.target.refuse = lambda row: RefusedError("too long") if row[6] == "bad" else None
    bench.write([source.put(source.row(1, "1@a", 2, "bad"))])
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == ["0", "1"]
    bench.write([source.put(source.row(1, "1@b", 3))])
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == ["0"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_crash_at_any_transaction_of_a_sweep_keeps_all(happened: bool) -> None:
    for place in range(1, 16, 3):
        bench, source = filled()
        bench.write([source.remove_rows(0, 4), source.put(source.row(4, "4@y", 2))])
        sweep_of(source, bench.topic).all()
        bench.write([source.put(source.row(0, "0@y", 2)), source.delete(0)])
        bench.target.unknown_happened = happened
        bench.target.faults = [*[None] * place, CommitUnknownError("lost"), *[TransientError("down")] * 30]
        bench.apply()
        bench.target.faults = []
        bench.target.sessions.clear()
        bench.take_over()
        assert bench.apply().state == "ok", place
        assert bench.target.rows_of() == rows_of(source), place
        assert kept_keys(bench) == []


def test_random_histories_keep_every_removed_row_that_did_not_come_again() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        bench, source = filled(12, text=bool(seed % 2))
        sweep: CopyOf | None = None
        owed: set[int] = set()
        for _ in range(30):
            step = rng.random()
            if step < 0.15 and len(source.rows) > 3:
                gone = rng.sample(sorted(source.rows), 2)
                bench.write([source.remove_rows(*gone)])
                owed |= set(gone)
            elif step < 0.4:
                key = rng.randrange(16)
                bench.write([source.put(source.row(key, f"{key}@{rng.random()}", rng.randrange(99)))])
                owed.discard(key)
            elif step < 0.5 and source.rows:
                bench.write([source.delete(rng.choice(sorted(source.rows)))])
            elif sweep is None:
                make = copy_of if rng.random() < 0.3 else sweep_of
                sweep = make(source, bench.topic, limit=rng.randrange(1, 5))
                sweep.begin()
            else:
                sweep.emit()
                sweep = None if sweep.done else sweep
            if rng.random() < 0.2:
                assert bench.apply().state == "ok"
                assert set(ids(bench)) >= owed | set(ids_of(source)), seed
        while sweep is not None and not sweep.done:
            sweep.emit()
        sweep_of(source, bench.topic).all()
        copy_of(source, bench.topic).all()
        assert bench.apply().state == "ok", seed
        assert set(ids(bench)) == owed | set(ids_of(source)), seed
        assert kept_keys(bench) == sorted(map(str, owed)), seed


def test_of_a_target_with_several_sources_only_the_rows_of_this_one_are_kept() -> None:
    add = (("branch", "b1"),)
    bench, source = benched(
        routes=(TableRoute("bank.*", "public.{table}", add=add, keeps_removed_rows=True),)
    )
    bench.write([source.put(source.row(n, None, 1)) for n in range(8)])
    dropped(bench, source, 0, 1)
    copy_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert sorted(int(str(row[0])) for row in bench.target.rows_of()) == list(range(8))
    assert sorted(key for _, key in bench.target.state.kept) == ['["b1",0]', '["b1",1]']


# --- the quarantine


def test_entries_of_a_kept_key_are_closed_and_its_last_good_image_stays() -> None:
    bench, source = filled(4)
    bench.target.refuse = lambda row: RefusedError("too long") if row[6] == "bad" else None
    bench.write([source.put(source.row(2, "2@new", 2, "bad"))])
    assert bench.apply().held == 1
    dropped(bench, source, 2)
    assert not bench.target.state.held
    assert {row[0]: row[1] for row in bench.target.rows_of()}[2] == "2@x"
    assert kept_keys(bench) == ["2"]


# --- a unit that skips events


def stopped(bench: CopyBench, source: FakeSource, cause: str = "value") -> int:
    stop = TableStop(
        cause=cause, at=(0, 1, 500, -1), file="binlog.000001", pos=500, reason="bank.acct: a value",
        remedy="look at it", since_ms=7,
    )  # fmt: skip
    bench.write([source.event("m", stop=stop)])
    assert bench.apply().state == "stopped"
    bench.take_over()
    return len(bench.topic) - 1


@pytest.mark.parametrize("cause", ["value", "dropped"])
def test_a_copy_after_a_stop_of_capture_keeps_what_may_have_been_removed(cause: str) -> None:
    """Capture writes nothing of a stopped table, so a DROP PARTITION may be missing; after a DROP TABLE it
    removed nothing."""
    bench, source = filled()
    dropped(bench, source, 0, 1)
    at = stopped(bench, source, cause)
    del source.rows[3]
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "ok"
    assert ids(bench) == (list(range(8)) if cause == "value" else [0, 1, 2, 4, 5, 6, 7])
    assert kept_keys(bench) == (["0", "1", "3"] if cause == "value" else ["0", "1"])
    assert not has_debt(bench)


def misread(bench: CopyBench, source: FakeSource) -> int:
    """Let the unit stop at a definition that it cannot follow; the topic goes on."""
    bench.write([source.event("m", ddl="ALTER TABLE acct …")])
    assert bench.apply().state == "stopped"
    bench.take_over()
    return len(bench.topic) - 1


@pytest.mark.parametrize("removes", [True, False])
def test_skipped_events_are_searched_for_a_statement_that_removed_rows(removes: bool) -> None:
    bench, source = filled()
    at = misread(bench, source)
    bench.write([source.remove_rows(3) if removes else source.delete(3)])
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "ok"
    assert ids(bench) == (list(range(8)) if removes else [0, 1, 2, 4, 5, 6, 7])
    assert kept_keys(bench) == (["3"] if removes else [])


def test_a_copy_after_events_that_kafka_has_deleted_keeps_what_may_have_been_removed() -> None:
    bench, source = filled()
    at = misread(bench, source)
    bench.write([source.delete(3)])
    bench.expired = len(bench.topic) - 1
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "ok"
    assert kept_keys(bench) == ["3"]
    (about,) = {*bench.target.state.kept.values()}
    assert about[1].startswith("unknown: ")


def test_a_copy_after_a_gap_in_the_topic_keeps_what_may_have_been_removed() -> None:
    bench, source = filled()
    at = len(bench.topic)
    source.delete(3)  # its event is lost
    bench.write([source.put(source.row(4, "4@y", 2))])
    assert bench.apply().state == "stopped"
    bench.take_over()
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "ok"
    assert kept_keys(bench) == ["3"]


def test_a_task_leaves_a_long_search_to_a_patient_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    from consumer.attempt.copies import begin

    bench, source = filled()
    at = misread(bench, source)
    bench.write([source.put(source.row(n, None, 2)) for n in range(8)])
    copy = copy_of(source, bench.topic)
    copy.all()
    bench.hint, bench.patient = copy.begins, False
    monkeypatch.setattr(begin, "MAX_QUICK_SWEEP_KEYS", 5)
    assert bench.apply(at).state == "behind"
    bench.patient = True
    bench.take_over()
    assert bench.apply(at).state == "ok"


# --- TRUNCATE, DROP, another key


def test_a_truncate_deletes_all_rows_but_those_that_are_kept() -> None:
    bench, source = filled()
    dropped(bench, source, 0, 1)
    bench.write([source.truncate(), source.put(source.row(9, "9@x", 1))])
    assert bench.apply().state == "ok"
    assert ids(bench) == [0, 1, 9]


def test_a_truncate_before_the_key_sweep_has_ended_keeps_all_rows() -> None:
    bench, source = filled()
    bench.write([source.remove_rows(0, 1), source.truncate()])
    assert bench.apply().state == "ok"
    assert ids(bench) == list(range(8))
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == list("01234567")


@pytest.mark.parametrize("how", ["empty", "drop"])
@pytest.mark.parametrize("paid", [True, False])
def test_a_dropped_table_keeps_its_rows_at_the_target(how: str, paid: bool) -> None:
    bench, source = filled(on_drop=how)
    if paid:
        dropped(bench, source, 0, 1)
    else:
        bench.write([source.remove_rows(0, 1)])
    stopped(bench, source, "dropped")
    assert ids(bench) == list(range(8))


@pytest.mark.parametrize("how", ["empty", "drop"])
def test_on_drop_applies_to_a_table_without_kept_rows(how: str) -> None:
    bench, source = filled(on_drop=how)
    dropped(bench, source, 0)
    bench.write([source.put(source.row(0, "0@y", 1))])
    stopped(bench, source, "dropped")
    assert ids(bench) == []


def other_key(source: FakeSource) -> Any:
    table = source.table
    return replaced(table, key=replaced(table.key, parts=(IndexPart(column="version"), *table.key.parts)))


def test_a_copy_with_another_key_stops_the_unit_that_keeps_rows() -> None:
    bench, source = filled()
    dropped(bench, source, 0, 1)
    at = misread(bench, source)
    source.table = other_key(source)
    copy_of(source, bench.topic).all()
    report = bench.apply(at)
    assert report.state == "stopped"
    assert "partitions: keep" in report.message
    assert ids(bench) == list(range(8))


@pytest.mark.parametrize("keeps", [True, False])
def test_rows_are_not_deleted_for_an_alter_that_the_target_refuses(keeps: bool) -> None:
    """Without kept rows they are deleted first, and the copy brings them again."""
    bench, source = filled()
    dropped(bench, source, 0, 1)
    routed(bench, tuple(replace(each, policy="evolve", keeps_removed_rows=keeps) for each in KEEP))
    at = misread(bench, source)
    *others, note = source.table.columns
    number = replaced(note, type=ColumnType(kind=Kind.INT, bits=32))
    source.table = replaced(source.table, columns=(*others, number))
    copy_of(source, bench.topic).begin()
    bench.target.alter_faults = [RefusedError("a row does not fit")]
    assert bench.apply(at).state == ("stopped" if keeps else "ok")
    assert ids(bench) == (list(range(8)) if keeps else [])


def test_a_longer_key_column_is_followed_and_its_rows_stay_kept() -> None:
    bench, source = filled(text=True)
    dropped(bench, source, 0, 1)
    column = source.table.columns[0]
    longer = replaced(column, type=replaced(column.type, length=column.type.length * 2))
    source.table = replaced(source.table, columns=(longer, *source.table.columns[1:]))
    bench.write(
        [
            source.event(
                "m",
                definition=source.table,
                ddl="ALTER …",
                effect="kept",
                columns=ColumnChanges(modified=("id",)),
            )
        ]
    )
    copy_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == ["0", "1"]


# --- another route


@pytest.mark.parametrize("whole", [True, False])
def test_kept_rows_are_deleted_by_the_first_sweep_once_the_route_follows(whole: bool) -> None:
    bench, source = filled()
    dropped(bench, source, 0, 1)
    routed(bench, FOLLOW)
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == ["0", "1"], "until then they stay"
    (copy_of if whole else sweep_of)(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert ids(bench) == list(range(2, 8))
    assert kept_keys(bench) == []
    assert not kept_flag(bench)


def test_a_truncate_deletes_kept_rows_once_the_route_follows() -> None:
    bench, source = filled()
    dropped(bench, source, 0, 1)
    routed(bench, FOLLOW)
    bench.write([source.truncate()])
    assert bench.apply().state == "ok"
    assert ids(bench) == []
    assert kept_keys(bench) == []


def test_rows_are_kept_from_the_first_statement_after_the_route_keeps_them() -> None:
    bench, source = filled()
    routed(bench, FOLLOW)
    bench.write([source.remove_rows(0)])
    assert bench.apply().state == "ok"
    routed(bench, KEEP)
    sweep_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert ids(bench) == list(range(1, 8))
    dropped(bench, source, 1)
    assert ids(bench) == list(range(1, 8))


def test_a_unit_that_starts_over_finds_the_rows_that_it_keeps() -> None:
    bench, source = filled()
    dropped(bench, source, 0, 1)
    bench.target.state.lanes.clear()
    bench.target.state.unit = replaced(bench.target.state.unit, definition=None)
    bench.target.sessions.clear()
    bench.tables.clear()
    bench.take_over()
    del bench.topic[:]
    source.previous = None
    bench.write([source.definition()])
    assert bench.apply().state == "ok"
    assert kept_flag(bench)
    copy_of(source, bench.topic).all()
    assert bench.apply().state == "ok"
    assert kept_keys(bench) == ["0", "1"]
