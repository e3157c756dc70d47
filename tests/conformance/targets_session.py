"""Guards, fences, take-over and bookkeeping of a session, on every kind of target."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs

from consumer.errors import CommitUnknownError, FencedError, TargetConfigError, TransientError
from consumer.ordering.model import ApplyUnit, KeptRows, NetChange, QuarantineEntry, UnitState
from consumer.targets.session import SqlSession
from rowlock.views.target import read_known_topics, read_known_units
from schemas.clock import read_clock_ms
from tests.kits.targets import LAYOUT, Lane, Target, as_target, people, rows_of
from tests.kits.waiting import until
from tests.servers.relay import CuttingProxy

UNIT = ApplyUnit("pipe", "topic")


def held(offset: int, part: int = 0) -> QuarantineEntry:
    return QuarantineEntry(
        offset, part, "s.t", "[1]", "31", '{"op":"u","after":{"name":"é\\u0000"}}', "refused: 50% of it", 1234
    )


def without_ages(entries: Sequence[QuarantineEntry]) -> list[QuarantineEntry]:
    """Return entries as they were written: a target adds their age when it reads them."""
    names = QuarantineEntry.__struct_fields__
    return [QuarantineEntry(*(getattr(each, name) for name in names)) for each in entries]


def test_a_target_without_bookkeeping_has_no_units(target: Target) -> None:
    session = cast(SqlSession, target.open())
    assert (read_known_topics(session, "pipe"), read_known_units(session, "pipe")) == (set(), {})


def test_take_over_makes_the_rows_and_raises_the_epoch(target: Target) -> None:
    session = target.open()
    session.ensure_bookkeeping()
    session.ensure_bookkeeping()
    epoch, rows, state = session.take_over(UNIT, "id1", LAYOUT, 3)
    assert (epoch, [row.lane for row in rows], {row.offset for row in rows}) == (1, [0, 1, 2], {-1})
    assert state == UnitState(None, None, None)
    again, rows, _ = target.open().take_over(UNIT, "id2", "other", 5)
    assert (again, len(rows)) == (2, 3)
    assert {(row.topic_id, row.layout, row.epoch) for row in rows} == {("id1", LAYOUT, 2)}
    assert session.read_progress(UNIT)[0] == rows
    assert session.list_unit_topics("pipe") == ["topic"]


def test_a_restored_row_never_gives_an_epoch_again(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row goes back with a backup; a worker of before the restore may still hold the epoch that came
    after."""
    monkeypatch.undo()  # the real clock
    session = target.open()
    session.ensure_bookkeeping()
    backup, _, _ = session.take_over(UNIT, "id", LAYOUT, 2)
    given = session.take_over(UNIT, "id", LAYOUT, 2)[0]
    target.put_back(UNIT, backup)
    until(lambda: read_clock_ms() > given, "the clock's next millisecond: no server is restored within one")
    assert session.take_over(UNIT, "id", LAYOUT, 2)[0] > given > backup


def test_an_assignment_is_fenced_by_a_later_one_alone(target: Target) -> None:
    session = target.open()
    session.ensure_bookkeeping()
    first, _, _ = session.take_over(UNIT, "id", LAYOUT, 2, assigned=5)
    again, _, _ = session.take_over(UNIT, "id", LAYOUT, 2, assigned=5, above=first)
    assert (first, again) == (5 << 16, (5 << 16) + 1)
    later, _, _ = target.open().take_over(UNIT, "id", LAYOUT, 2, assigned=6)
    with pytest.raises(FencedError, match="assigned to another process"):
        session.take_over(UNIT, "id", LAYOUT, 2, assigned=5, above=again)
    assert {row.epoch for row in session.read_progress(UNIT)[0]} == {later} == {6 << 16}
    assert session.take_over(UNIT, "id", LAYOUT, 2)[0] == later + 1, "without one, the row's next"


def test_begin_raises_the_attempt_and_refuses_any_other_epoch(target: Target) -> None:
    session = target.open()
    session.ensure_bookkeeping()
    with pytest.raises(FencedError):
        session.begin_attempt(UNIT, 1)
    session.take_over(UNIT, "id", LAYOUT, 2)
    first, _, _ = session.begin_attempt(UNIT, 1)
    second, _, _ = session.begin_attempt(UNIT, 1)
    assert ([row.attempt for row in first], [row.attempt for row in second]) == ([1, 1], [2, 2])
    for epoch in (0, 2):
        with pytest.raises(FencedError):
            session.begin_attempt(UNIT, epoch)
    assert session.read_progress(UNIT)[0] == second


@pytest.mark.parametrize(
    "changed", [{"epoch": 2}, {"epoch": 0}, {"attempt": 2}, {"attempt": 0}, {"offset": 5}, {"lane": 7}]
)
def test_a_guard_that_does_not_hold_exactly_is_fenced(target: Target, changed: dict[str, Any]) -> None:
    session = target.open()
    session.ensure_bookkeeping()
    session.take_over(UNIT, "id", LAYOUT, 1)
    [row], _, _ = session.begin_attempt(UNIT, 1)
    with pytest.raises(FencedError), session.begin_transaction(UNIT, [structs.replace(row, **changed)]):
        pytest.fail("the guard passed")
    with session.begin_transaction(UNIT, [row]) as tx:
        tx.write_progress([structs.replace(row, offset=1)])
    with pytest.raises(FencedError), session.begin_transaction(UNIT, [row]):
        pytest.fail("an offset that was left behind passed")


def test_a_row_that_is_gone_is_fenced_and_never_made(target: Target) -> None:
    session = target.open()
    lane = Lane.start(session)
    target.forget(lane.unit)
    with pytest.raises(FencedError), session.begin_transaction(UNIT, [lane.row]):
        pytest.fail("the guard passed")
    assert session.read_progress(UNIT)[0] == []


def test_progress_is_written_whole_for_busy_and_idle_lanes(target: Target) -> None:
    session = target.open()
    session.ensure_bookkeeping()
    session.take_over(UNIT, "id", LAYOUT, 4)
    rows, _, _ = session.begin_attempt(UNIT, 1)
    wrote = [
        structs.replace(row, offset=9, position=(1, 2, 3, -(2**53)), gen=4, commit_ts_ms=5) for row in rows
    ]
    wrote[2] = structs.replace(wrote[2], offset=7, position=(1, 2, 2, 0))
    with session.begin_transaction(UNIT, rows) as tx:
        tx.write_progress(wrote)
    assert session.read_progress(UNIT)[0] == wrote


def test_a_row_is_never_written_for_another_attempt(target: Target) -> None:
    session = target.open()
    lane = Lane.start(session)
    with pytest.raises(FencedError), session.begin_transaction(UNIT, [lane.row]) as tx:
        tx.write_progress([structs.replace(lane.row, attempt=99, offset=10)])
    assert session.read_progress(UNIT)[0] == [lane.row]


def test_an_error_inside_rolls_everything_back(target: Target) -> None:
    session = target.open()
    table = people(target.schema)
    session.create_table(table)
    lane = Lane.start(session)
    with pytest.raises(ZeroDivisionError), session.begin_transaction(UNIT, [lane.row]) as tx:  # noqa: PT012
        tx.apply_net_change(NetChange(as_target(table), replaces=[(1, "a", None, None, None)]))
        tx.write_progress([structs.replace(lane.row, offset=3)])
        raise ZeroDivisionError
    assert rows_of(session, as_target(table)) == []
    assert session.read_progress(UNIT)[0] == [lane.row]
    lane.apply_net_change(NetChange(as_target(table), replaces=[(1, "a", None, None, None)]))


def test_unit_state_and_stop(target: Target) -> None:
    session = target.open()
    lane = Lane.start(session)
    state = UnitState('{"columns":["ü"]}', "RUNNING:[0,1,2,3]", None)
    with session.begin_transaction(UNIT, [lane.row]) as tx:
        tx.write_unit(state)
    assert session.read_progress(UNIT, lanes=False) == ([], state)
    session.stop_unit(UNIT, 99, "not mine")
    assert session.read_progress(UNIT)[1] == state
    began = time.time_ns() // 1_000_000
    session.stop_unit(UNIT, 1, "a gap")
    since = stopped_since(session, "a gap")
    assert abs(since - began) < 60_000, "since now, by whatever clock and time zone"
    epoch, _, before = session.take_over(UNIT, "id", LAYOUT, 1)
    assert before == structs.replace(state, stopped="a gap", since_ms=since)
    assert session.read_progress(UNIT)[1] == state
    time.sleep(0.01)
    session.stop_unit(UNIT, epoch, "a gap", was=before.stopped)
    assert stopped_since(session, "a gap") == since, "a try that changed nothing does not count"
    epoch, _, before = session.take_over(UNIT, "id", LAYOUT, 1)
    session.stop_unit(UNIT, epoch, "another", was=before.stopped)
    assert stopped_since(session, "another") > since


def stopped_since(session: SqlSession, why: str) -> int:
    state = session.read_progress(UNIT)[1]
    assert state is not None
    assert state.stopped == why
    assert state.since_ms is not None
    return state.since_ms


def test_quarantine_entries_come_back_in_order(target: Target) -> None:
    session = target.open()
    lane = Lane.start(session)
    entries = [held(7), held(3, 1), held(3, 0)]
    with session.begin_transaction(UNIT, [lane.row]) as tx:
        tx.write_quarantine(entries)
        tx.write_quarantine([])
    expected = [held(3, 0), held(3, 1), held(7)]
    assert without_ages(session.read_quarantine(UNIT)) == expected
    assert without_ages(session.begin_attempt(UNIT, 1)[2]) == expected
    row = session.read_progress(UNIT)[0][0]
    with session.begin_transaction(UNIT, [row]) as tx:
        tx.close_held([(3, 1), (7, 0)], "why")
        tx.close_held([], "why")
    assert without_ages(session.read_quarantine(UNIT)) == [held(3, 0)]
    found = session.read_resolved_entries(UNIT, 9)
    assert [(each.entry, each.closed) for each in found] in (
        [(held(7), "why"), (held(3, 1), "why")],
        [(held(3, 1), "why"), (held(7), "why")],  # one statement moved both
    )
    assert all(0 <= each.closed_at_ms - each.held_at_ms < 600_000 for each in found)
    assert session.read_resolved_entries(UNIT, 1) == found[:1]
    assert session.read_resolved_entries(ApplyUnit("pipe", "other"), 9) == []
    with session.begin_transaction(UNIT, [row]) as tx:
        tx.drop_held([(3, 0)])
        tx.drop_held([])
        tx.write_quarantine([structs.replace(held(3, 0), error="another")])
    assert [each.error for each in session.read_quarantine(UNIT)] == ["another"]
    assert session.read_resolved_entries(UNIT, 9) == found
    assert session.read_quarantine(ApplyUnit("pipe", "other")) == []


def test_expired_entries_of_the_history_are_deleted(target: Target) -> None:
    """By the server's clock, in pieces, and those of this pipeline alone."""
    session = cast(SqlSession, target.open())
    session.ensure_bookkeeping()
    many = 501
    for pipeline in ("pipe", "other"):
        unit = ApplyUnit(pipeline, "topic")
        epoch, _, _ = session.take_over(unit, "id", LAYOUT, 1)
        row = session.begin_attempt(unit, epoch)[0][0]
        with session.begin_transaction(unit, [row]) as tx:
            tx.write_quarantine([held(offset) for offset in range(many)])
            tx.close_held([(offset, 0) for offset in range(many)], "why")
    assert session.delete_expired_entries("pipe", 3_600_000) == 0  # none is an hour old
    assert until(lambda: session.delete_expired_entries("pipe", 0), "the server's next millisecond") == 500
    assert session.delete_expired_entries("pipe", 0) == 1
    assert session.delete_expired_entries("pipe", 0) == 0
    assert session.read_resolved_entries(ApplyUnit("pipe", "topic"), 9) == []
    assert len(session.read_resolved_entries(ApplyUnit("other", "topic"), 999)) == many


def test_kept_rows_are_listed_by_unit_and_end_with_a_write_of_their_key(target: Target) -> None:
    """A key is longer than an index may be, and more than one statement takes are listed."""
    session = target.open()
    lane, other = Lane.start(session), ApplyUnit("pipe", "Topic")
    table = replace(as_target(people(target.schema)), has_kept_rows=True)
    session.create_table(table.table)
    name = f"{target.schema}.people"
    keys = [f"[{n}]" for n in range(1203)] + ['["' + "é" * 2000 + '"]']
    assert not session.has_kept_rows(UNIT)
    for _ in range(2):  # it may be repeated
        with session.begin_transaction(UNIT, [lane.row]) as tx:
            tx.record_kept_rows(KeptRows(name, keys, 7, "ALTER TABLE p DROP PARTITION 'ä'"))
    assert session.find_kept_keys(UNIT, name, [*keys, "[9999]"]) == keys
    assert session.find_kept_keys(UNIT, f"{name}2", keys) == []
    assert session.find_kept_keys(other, name, keys) == []
    assert (session.has_kept_rows(UNIT), session.has_kept_rows(other)) == (True, False)
    rows = [(n, None, None, None, "x") for n in range(4)]
    lane.apply_net_change(NetChange(table, deletes=[(5,)], replaces=[rows[1]], snapshot=[rows[2]]))
    lane.apply_net_change(NetChange(table, updates=[rows[3]]))
    lane.apply_net_change(NetChange(replace(table, has_kept_rows=False), deletes=[(6,)]))
    assert set(keys) - set(session.find_kept_keys(UNIT, name, keys)) == {"[5]", "[1]", "[2]"}
    with session.begin_transaction(UNIT, [lane.row]) as tx:
        tx.forget_kept_rows()
    assert not session.has_kept_rows(UNIT)


def test_relayout_replaces_all_lanes(target: Target) -> None:
    session = target.open()
    session.ensure_bookkeeping()
    session.take_over(UNIT, "id", LAYOUT, 2)
    rows, _, _ = session.begin_attempt(UNIT, 1)
    new = [structs.replace(rows[0], lane=lane, layout="new", offset=8) for lane in range(5)]
    with session.begin_transaction(UNIT, rows) as tx:
        tx.replace_lanes(new)
    assert session.read_progress(UNIT)[0] == new


def test_units_do_not_touch_each_other(target: Target) -> None:
    session = target.open()
    one, other = Lane.start(session, "a"), Lane.start(session, "A")
    with session.begin_transaction(one.unit, [one.row]) as tx:
        tx.write_progress([structs.replace(one.row, offset=5)])
    assert session.read_progress(other.unit)[0] == [other.row]


def test_a_commit_of_unknown_outcome_says_so(target: Target) -> None:
    Lane.start(target.open())
    with CuttingProxy(target.service.port) as proxy:
        session = target.open(port=proxy.port)
        rows, _, _ = session.begin_attempt(UNIT, 1)
        with pytest.raises(CommitUnknownError), session.begin_transaction(UNIT, rows) as tx:  # noqa: PT012
            tx.write_progress([structs.replace(rows[0], offset=1)])
            proxy.armed = True  # COMMIT comes next
        proxy.armed = False
        assert session.read_progress(UNIT)[0][0].offset == 1  # a new connection; the row decides
        session.close()


def test_a_lost_connection_is_transient_and_the_session_recovers(target: Target) -> None:
    session = target.open()
    lane = Lane.start(session)
    target.service.stop()
    with pytest.raises(TransientError), session.begin_transaction(UNIT, [lane.row]):
        pytest.fail("no server, no guard")
    assert not session.ping()
    target.start_again()
    with session.begin_transaction(UNIT, [lane.row]) as tx:
        tx.write_progress([structs.replace(lane.row, offset=1)])
    assert session.ping()


def test_two_take_overs_at_once_get_two_epochs(target: Target) -> None:
    session = target.open()
    session.ensure_bookkeeping()
    sessions = [target.open() for _ in range(4)]
    epochs: list[int] = []

    def run(each: int) -> None:
        while len(epochs) < 4:
            try:
                epochs.append(sessions[each].take_over(UNIT, "id", LAYOUT, 2)[0])
            except TransientError:
                continue  # as every worker does; a target may have done it all the same, and the next epoch is higher then  # noqa: E501
            return

    threads = [threading.Thread(target=run, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(epochs)) == 4
    assert session.read_progress(UNIT)[0][0].epoch == max(epochs) >= 4


def test_a_wrong_password_and_a_closed_port_are_told_apart(target: Target) -> None:
    if target.kind != "postgres":  # the test server trusts everybody there
        with pytest.raises(TargetConfigError, match="correct the user or the password"):
            target.open(password="nonsense")
    with pytest.raises(TargetConfigError):
        target.open(database="no_such_database")
    with CuttingProxy(1) as proxy:
        closed = proxy.port
    with pytest.raises(TransientError):
        target.open(port=closed)


def test_a_commit_that_readers_see_survives_a_crash(target: Target) -> None:
    """The tests' PostgreSQL has synchronous_commit = off, the tests' MySQL and MariaDB write their log once a
    second."""
    session = target.open()
    session.ensure_bookkeeping()
    risk = session.probe_durability()
    if target.kind == "postgres":
        assert target.sql("SHOW synchronous_commit") == [("off",)]
        assert session._link.execute("SHOW synchronous_commit", []) == [("on",)]
    assert (risk is not None) == (target.kind != "postgres")
    assert risk is None or "innodb_flush_log_at_trx_commit is 2" in risk.message
