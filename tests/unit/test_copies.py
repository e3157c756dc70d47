"""Copies that are asked for: what becomes of a request, of the table meanwhile, and of what a start finds."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from producer.copies.book import (
    MAX_COPY_RESTARTS,
    CopyBook,
    DiscardChunks,
    JudgeRequest,
    KnownTable,
    RestoreStop,
)
from producer.copies.limits import HOUR_MS, MINUTE_MS, explain_unbalanced_condition
from producer.copies.recreated_tables import get_default_limits, judge_recreated_table, make_repair_limits
from producer.copies.states import DAY_MS
from producer.decoders.envelope import TopicTail
from producer.tables import BegunCopy, TableState, TopicState
from schemas.config.model import Config
from schemas.problems import Problem, decode_problem
from schemas.table.model import Column, ColumnType, Kind, Table, UniqueIndex
from schemas.wire.copies import CopyMark, CopyRequest, CopyState, RemovedRows, RepairLimits
from schemas.wire.position import Position

ACCT = "bank.acct"
LIMITS = RepairLimits(max_rows=1000, max_per_day=2)
AT: Position = (0, 3, 700, -5)


def request(
    number: int,
    table: str = "acct",
    *,
    by: str = "operator",
    cause: str = "",
    limits: RepairLimits | None = None,
    after: int | None = None,
    where: str | None = None,
    cancel: bool = False,
    requested_ms: int = 0,
) -> CopyRequest:
    return CopyRequest(
        id=f"r{number}", db="bank", table=table, by=by, requested_ms=requested_ms, cause=cause, limits=limits,
        after=after, where=where, cancel=cancel,
    )  # fmt: skip


def repair(
    number: int, table: str = "acct", *, cause: str = "value", after: int = 0, ms: int = 0
) -> CopyRequest:
    return request(
        number, table, by="pipeline p", cause=cause, limits=LIMITS, after=after, requested_ms=ms
    )  # fmt: skip


def begun(number: int, offset: int = 10, *, ended: str = "", position: Position = AT) -> BegunCopy:
    return BegunCopy(CopyMark(id=f"r{number}"), position, offset, ended)


def running(ended: str = "", *, book: CopyBook | None = None) -> CopyBook:
    """A book in which r1 runs."""
    book = book or CopyBook()
    assert book.accept_request(request(1), KnownTable(stopped=ended, estimate=7), 100) == []
    book.states.mark_begun(ACCT, begun(1, ended=ended), 200)
    return book


def state(book: CopyBook) -> CopyState:
    return book.states.all[ACCT]


def test_from_request_to_end() -> None:
    book = running("dropped")
    now = state(book)
    assert (now.phase, now.offset, now.begin, now.began_ms, now.estimate) == ("running", 10, AT, 200, 7)
    book.states.add_sent_rows(ACCT, "r1", 3)
    book.states.add_sent_rows(ACCT, "another", 3)
    book.states.add_sent_rows(ACCT, "r1", 2)
    assert state(book).rows == 5
    book.mark_copy_ended(ACCT, "another", 300)
    assert state(book).phase == "running"
    book.mark_copy_ended(ACCT, "r1", 300)
    now = state(book)
    assert (now.phase, now.ended_ms, now.ended, now.ended_stop) == ("done", 300, ((300, ""),), "")
    assert not book.states.busy


def test_one_copy_runs_at_a_time_and_the_oldest_begins_first() -> None:
    book = CopyBook()
    for number, table in enumerate(("b", "a", "c")):
        book.accept_request(request(number, table), KnownTable(), number)
    assert [each.table for each in book.states.waiting] == ["b", "a", "c"]
    book.states.mark_begun("bank.b", begun(0), 10)
    assert (book.states.waiting, book.states.busy) == ([], True)
    book.mark_copy_ended("bank.b", "r0", 20)
    assert [each.table for each in book.states.waiting] == ["a", "c"]


def test_a_request_is_taken_once() -> None:
    book = running()
    revision = book.states.revision
    assert book.accept_request(request(1), KnownTable(), 300) == []
    assert book.states.revision == revision


@pytest.mark.parametrize(("after", "done"), [(9, True), (10, False), (11, False), (None, False)])
@pytest.mark.parametrize("ended", [True, False])
def test_what_began_behind_an_event_is_what_is_asked_for_it(
    after: int | None, done: bool, ended: bool
) -> None:
    book = running()
    if ended:
        book.mark_copy_ended(ACCT, "r1", 300)
    effects = book.accept_request(request(2, after=after), KnownTable(), 400)
    assert (state(book).id == "r1") == done
    assert effects == ([] if done or ended else [DiscardChunks(ACCT)])


def test_what_waits_begins_behind_any_event() -> None:
    book = CopyBook()
    book.accept_request(request(1), KnownTable(), 1)
    book.accept_request(repair(2, after=10**9), KnownTable(), 2)
    assert state(book).id == "r1"
    book.accept_request(request(3, where="v > 1"), KnownTable(), 2)
    book.accept_request(repair(4, after=10**9), KnownTable(), 2)
    assert state(book).id == "r4", "a part of a table heals nothing"


def test_a_person_begins_a_copy_anew_and_it_knows_what_stop_was_ended() -> None:
    book = running("value")
    assert book.accept_request(request(2), KnownTable(), 300) == [DiscardChunks(ACCT)]
    assert (state(book).phase, state(book).id, state(book).ended_stop) == ("waiting", "r2", "value")
    assert book.accept_request(request(3, cancel=True), KnownTable(), 400) == [
        RestoreStop(
            ACCT, "value", f"{ACCT} is stopped again (value): the copy that had ended this stop was cancelled"
        )
    ]


def test_nobody_begins_a_copy_anew_by_itself() -> None:
    book = running()
    assert book.accept_request(repair(2, cause="value", after=50), KnownTable(), 300) == []
    assert state(book).id == "r1"
    book.mark_copy_ended(ACCT, "r1", 400)
    assert book.next_requests
    assert book.settle_changes(500) == [JudgeRequest(repair(2, cause="value", after=50))]
    assert not book.next_requests
    assert state(book).next_request is None


def test_what_was_asked_meanwhile_is_not_forgotten_by_a_restart() -> None:
    book = running()
    book.accept_request(repair(2, after=50), KnownTable(), 300)
    book.mark_copy_ended(ACCT, "r1", 400)
    again = CopyBook(book.states.all, book.requests)
    assert again.settle_changes(500) == [JudgeRequest(repair(2, after=50))]


# --- refusals


def refused(book: CopyBook, asked: CopyRequest, seen: KnownTable | None = None, now: int = 1000) -> str:
    book.accept_request(asked, seen or KnownTable(), now)
    found = book.states.all[f"bank.{asked.table}"]
    return str(decode_problem(found.reason)) if found.id == asked.id and found.phase == "refused" else ""


def ended(*times: tuple[int, str], by: str = "operator") -> CopyBook:
    """A book in which copies ended at these times, for these causes."""
    book = CopyBook()
    for number, (at, cause) in enumerate(times):
        book.accept_request(request(100 + number, by=by, cause=cause), KnownTable(), at)
        book.states.mark_begun(ACCT, begun(100 + number, number), at)
        book.mark_copy_ended(ACCT, f"r{100 + number}", at)
    return book


def test_a_larger_table_is_not_copied_by_itself() -> None:
    assert refused(CopyBook(), repair(1), KnownTable(estimate=1000)) == ""
    assert refused(CopyBook(), request(1), KnownTable(estimate=10**9)) == ""
    reason = refused(CopyBook(), repair(1), KnownTable(estimate=1001))
    assert (
        reason == f"{ACCT} has about 1001 rows, and `repair` copies up to 1000 by itself: rowlock "
        f"copy {ACCT} (about 1001 rows)"
    )


def test_so_many_copies_a_day_and_no_more() -> None:
    day = 10 * DAY_MS
    one, two = (day - DAY_MS + 1, "a"), (day - 2 * HOUR_MS, "b")
    assert refused(ended(one), repair(9, after=99), now=day) == ""
    assert "2 times within a day" in refused(ended(one, two), repair(9, after=99), now=day)
    assert refused(ended((day - DAY_MS, "a"), two), repair(9, after=99), now=day) == "", "the day is over"


def test_the_same_cause_again_within_an_hour_is_a_loop() -> None:
    hour = 100 * HOUR_MS
    reason = refused(ended((hour - HOUR_MS + 1, "value")), repair(9, after=99), now=hour)
    assert "same cause (value) within an hour" in reason
    assert refused(ended((hour - HOUR_MS, "value")), repair(9, after=99), now=hour) == ""
    assert refused(ended((hour - 1, "size")), repair(9, after=99), now=hour) == ""


def test_the_same_cause_in_another_pipeline_is_no_loop() -> None:
    """A route that was changed for two pipelines stops their units at different times."""
    hour = 100 * HOUR_MS
    own = repair(9, cause="definition", after=99)
    first = (hour - 1, "definition")
    assert refused(ended(first, by="pipeline p"), replace(own, by="pipeline q"), now=hour) == ""
    assert "same cause (definition)" in refused(ended(first, by="pipeline p"), own, now=hour)


def test_the_same_stop_of_the_table_is_a_loop_whoever_asks() -> None:
    book, hour = CopyBook(), 100 * HOUR_MS
    book.accept_request(repair(1, cause="dropped"), KnownTable(), hour - 2)
    book.states.mark_begun(ACCT, begun(1, ended="dropped"), hour - 2)
    book.mark_copy_ended(ACCT, "r1", hour - 1)
    other = replace(repair(9, cause="dropped", after=99), by="pipeline q")
    for asked in (replace(other, by="capture"), other):
        assert "same cause (dropped)" in refused(
            copy.deepcopy(book), asked, KnownTable(stopped="dropped"), now=hour
        )


def test_more_than_three_tables_at_once_wait_for_each_other() -> None:
    book = CopyBook()
    book.accept_request(request(0, "by hand"), KnownTable(), 0)
    for number, table in enumerate("abc"):
        assert refused(book, repair(number + 1, table, ms=number)) == ""
    assert "more than 3 tables of the source" in refused(book, repair(4, "d", ms=5))
    book.states.prune_ended(1001 + DAY_MS)  # a source without a transaction for a day
    assert judged_at(book, 1000 + MINUTE_MS, "bank.d") == "refused", "the three still wait"
    for number, table in enumerate("abc"):
        book.states.mark_begun(f"bank.{table}", begun(number + 1, number), 2000)
        book.mark_copy_ended(f"bank.{table}", f"r{number + 1}", 3000)
    assert judged_at(book, 1000 + 2 * MINUTE_MS, "bank.d") == "waiting"


# --- copies that a limit postpones


def judged_at(book: CopyBook, now: int, table: str = ACCT, seen: KnownTable | None = None) -> str:
    """Let the book judge what is due at `now`; return the phase of the table's copy."""
    book.queue_postponed(now)
    book.queue_postponed(now)  # it is called more often than the requests are judged
    for effect in book.settle_changes(now):
        assert isinstance(effect, JudgeRequest)
        book.accept_request(effect.request, seen or KnownTable(), now)
    return book.states.all[table].phase


NOW = 100 * HOUR_MS
HOUR_IS_OVER = NOW - 1 + HOUR_MS


def postponed() -> CopyBook:
    """A book in which a copy needs an hour's pause because of its cause."""
    book = ended((NOW - 1, "value"))
    assert refused(book, repair(9, after=99), now=NOW) == (
        f"{ACCT} needs a copy for the same cause (value) within an hour after one: the copy is postponed "
        f"until 1970-01-05 05:00 UTC: nothing to do; to begin it earlier: rowlock copy {ACCT}"
    )
    assert state(book).retry_ms == HOUR_IS_OVER
    return book


def stored_again(book: CopyBook) -> CopyBook:
    """The book of the next process."""
    stored = msgspec.json.encode(book.states.all)
    return CopyBook(msgspec.json.decode(stored, type=dict[str, CopyState]))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_postponed_copy_begins_when_the_limit_allows_it(restarted: bool) -> None:
    book = postponed()
    if restarted:
        book = stored_again(book)
        assert judged_at(book, NOW + 5) == "refused", "it is judged at the start, for limits may have changed"
    book.queue_postponed(HOUR_IS_OVER - 1)
    assert book.next_requests == []
    assert state(book).retry_ms == HOUR_IS_OVER
    assert judged_at(book, HOUR_IS_OVER) == "waiting"
    assert (state(book).id, state(book).retry_ms, state(book).next_request) == ("r9", None, None)


def test_a_postponed_copy_waits_until_the_oldest_copy_of_the_day_is_a_day_old() -> None:
    book = ended((NOW - 9 * HOUR_MS, "a"), (NOW - 5 * HOUR_MS, "b"), (NOW - 2 * HOUR_MS, "c"))
    assert refused(book, repair(9, after=99), now=NOW)
    assert state(book).retry_ms == NOW - 5 * HOUR_MS + DAY_MS, "then one of LIMITS' two copies is left"
    assert judged_at(book, NOW - 5 * HOUR_MS + DAY_MS) == "waiting"


def test_only_a_person_begins_the_copy_of_a_table_that_is_too_large() -> None:
    book = postponed()
    assert judged_at(book, HOUR_IS_OVER, seen=KnownTable(estimate=1001)) == "refused"
    assert (state(book).retry_ms, state(book).next_request) == (None, None)
    assert judged_at(book, HOUR_IS_OVER + DAY_MS) == "refused"


def test_a_person_need_not_wait_for_a_postponed_copy_and_it_is_made_once() -> None:
    book = postponed()
    book.accept_request(request(10), KnownTable(), NOW + 10)
    assert (state(book).id, state(book).phase) == ("r10", "waiting")
    book.states.mark_begun(ACCT, begun(10, 200), NOW + 20)
    book.mark_copy_ended(ACCT, "r10", NOW + 30)
    assert judged_at(book, HOUR_IS_OVER) == "done", "it began after the cause of the postponed one"
    assert state(book).next_request is None


def test_of_several_postponed_requests_one_is_kept() -> None:
    book = postponed()
    book.accept_request(replace(repair(11, after=120), by="pipeline q"), KnownTable(), NOW + 10)
    assert (state(book).id, state(book).retry_ms) == ("r9", HOUR_IS_OVER)
    assert judged_at(book, HOUR_IS_OVER) == "waiting"
    book.states.mark_begun(ACCT, begun(9, 200), HOUR_IS_OVER)
    assert book.accept_request(replace(repair(11, after=120), by="pipeline q"), KnownTable(), NOW) == []
    assert (state(book).id, state(book).phase) == ("r9", "running")


def test_a_postponed_copy_can_be_cancelled() -> None:
    book = postponed()
    book.accept_request(request(12, cancel=True), KnownTable(), NOW + 10)
    assert (state(book).phase, state(book).retry_ms, state(book).next_request) == ("cancelled", None, None)
    assert judged_at(book, HOUR_IS_OVER) == "cancelled"


def test_a_key_sweep_does_not_end_the_wait_of_a_postponed_copy() -> None:
    book = postponed()
    removed = RemovedRows(id="d", offset=300, ddl="ALTER TABLE acct DROP PARTITION p", since_ms=1)
    book.note_removed_rows(("bank", "acct"), removed)
    assert state(book).keys
    assert judged_at(book, HOUR_IS_OVER - 1) == "waiting"
    assert (state(book).keys, state(book).retry_ms) == (True, HOUR_IS_OVER)
    assert judged_at(book, HOUR_IS_OVER) == "waiting"
    assert (state(book).keys, state(book).id, state(book).removed) == (False, "r9", removed)


def test_a_copy_beside_a_key_sweep_is_postponed_as_well() -> None:
    book = ended((NOW - 1, "value"))
    removed = RemovedRows(id="d", offset=300, ddl="ALTER TABLE acct DROP PARTITION p", since_ms=1)
    book.note_removed_rows(("bank", "acct"), removed)
    book.accept_request(repair(9, after=99), KnownTable(), NOW)
    last = state(book).last_copy
    assert last is not None
    assert (last.id, last.phase, state(book).retry_ms) == ("r9", "refused", HOUR_IS_OVER)
    assert judged_at(book, HOUR_IS_OVER) == "waiting"
    assert (state(book).keys, state(book).id) == (False, "r9")


@pytest.mark.parametrize("estimate", [None, 1001], ids=["postponed", "refused"])
def test_a_request_that_comes_while_a_copy_of_some_rows_waits_is_not_lost(estimate: int | None) -> None:
    """The unit sends it once only, and a copy of some rows does not continue the unit."""
    book = ended((NOW - 1, "value"))
    book.accept_request(request(3, where="id > 1"), KnownTable(), NOW)
    book.accept_request(repair(9, after=99), KnownTable(estimate=estimate), NOW)
    assert (state(book).id, state(book).phase) == ("r3", "waiting")
    book.states.mark_begun(ACCT, begun(3, 200), NOW)
    book.mark_copy_ended(ACCT, "r3", NOW + 1)
    assert judged_at(book, NOW + 2, seen=KnownTable(estimate=estimate)) == "refused"
    postponed_until = (
        NOW - 1 + DAY_MS if estimate is None else None
    )  # the copy counts for the limit of the day
    assert (state(book).id, state(book).retry_ms) == ("r9", postponed_until)


def test_a_request_that_comes_again_changes_no_postponed_copy() -> None:
    book = postponed()
    before = state(book)
    book.accept_request(repair(9, after=99), KnownTable(), NOW + 100)
    assert (state(book).id, state(book).retry_ms, state(book).next_request) == (
        before.id, before.retry_ms, before.next_request,
    )  # fmt: skip


# --- a table that was dropped and is there again


def again(
    number: int, *, table: str = "acct", limits: RepairLimits | None = LIMITS, ms: int = 0
) -> CopyRequest:
    return request(number, table, by="capture", cause="dropped", limits=limits, requested_ms=ms)


DROPPED = KnownTable(stopped="dropped", estimate=7)


def test_what_is_there_again_is_copied_within_the_limits_alone() -> None:
    book = CopyBook()
    assert judge_recreated_table(book, again(1), DROPPED, 100) is None
    assert (state(book).phase, state(book).estimate) == ("waiting", 7)
    for limits, seen, reported in (
        (None, DROPPED, "prevents an automatic copy: rowlock copy bank.acct"),
        (
            LIMITS,
            KnownTable(stopped="dropped", estimate=1001),
            "up to 1000 by itself: rowlock copy bank.acct (about 1001 rows)",
        ),
    ):
        book = CopyBook()
        problem = judge_recreated_table(book, again(1, limits=limits), seen, 100)
        assert str(problem).endswith(reported)
        assert (state(book).phase, decode_problem(state(book).reason)) == ("refused", problem)
    often = judge_recreated_table(ended((10, "a"), (20, "b")), again(9), DROPPED, 30)
    assert "2 times within a day" in str(often)
    soon = judge_recreated_table(ended((10, "dropped")), again(9), DROPPED, HOUR_MS)
    assert "same cause (dropped) within an hour" in str(soon)


def test_a_person_copies_what_is_not_copied_by_itself() -> None:
    book = CopyBook()
    assert judge_recreated_table(book, again(1, limits=None), DROPPED, 100)
    book.accept_request(request(2), DROPPED, 200)
    assert (state(book).phase, state(book).reason) == ("waiting", "")


def test_a_database_that_is_made_again_is_a_persons_business() -> None:
    book = CopyBook()
    reported = [
        judge_recreated_table(book, again(n, table=table, ms=n), DROPPED, 0) for n, table in enumerate("abcd")
    ]
    assert reported[:3] == [None, None, None]
    assert "more than 3 tables of the source" in str(reported[3])


def test_a_copy_that_waits_goes_on_with_what_is_there_again() -> None:
    book = running()
    book.handle_table_stop(ACCT, "dropped", "gone", 300)
    assert judge_recreated_table(book, again(2, limits=None), DROPPED, 400) is None, (
        "somebody has asked for it"
    )
    assert (state(book).id, state(book).phase, state(book).restarts) == ("r1", "waiting", 1)
    part = CopyBook()
    part.accept_request(request(1, where="id > 1"), KnownTable(), 100)
    assert judge_recreated_table(part, again(2), DROPPED, 400) is None
    assert state(part).id == "r2", "a part of the table ends no stop"


def test_a_table_that_is_dropped_in_the_middle_of_its_copies_is_not_copied_for_ever() -> None:
    book = CopyBook()
    for turn in range(MAX_COPY_RESTARTS):
        assert judge_recreated_table(book, again(turn), DROPPED, 100) is None
        book.states.mark_begun(ACCT, begun(turn), 200)
        book.handle_table_stop(ACCT, "dropped", "it is gone", 300)
        book.refuse_copy(ACCT, Problem("it is not there", "rowlock copy bank.acct"), 300)
        assert state(book).restarts == turn + 1
    for turn in (7, 8):
        problem = judge_recreated_table(book, again(turn), DROPPED, 400)
        assert problem == Problem(
            "bank.acct was dropped during 3 copies in a row",
            "rowlock copy bank.acct, once it is no longer dropped",
        )
        assert (state(book).phase, decode_problem(state(book).reason)) == ("refused", problem)
    assert judge_recreated_table(book, again(9), DROPPED, 401 + DAY_MS) is None, "that was yesterday"
    assert state(book).restarts == 0


def config(**repairs: tuple[str, object]) -> Config:
    """Pipelines by name → (pattern of their routes, `repair`)."""
    raw = {
        "kafka": {"bootstrap": "h:1"},
        "sources": {"s": {"type": "mysql", "host": "h", "user": "u", "password": "", "tables": ["*.*"]}},
        "targets": {name: {"type": "postgres", "host": "h", "port": 1, "user": "u", "password": "",
         "database": name} for name in repairs},
        "pipelines": {
            name: {"sources": ["s"], "target": name, "routes": [{"from": where, "to": "x.{table}"}],
            "repair": how}
            for name, (where, how) in repairs.items()
        },
    }  # fmt: skip
    return Config.model_validate(raw)


def test_the_pipelines_that_take_a_table_say_whether_it_is_copied_by_itself() -> None:
    small = {"mode": "copy", "max_rows": 9, "max_per_day": 1}
    limits = make_repair_limits(
        config(a=("bank.*", small), b=("bank.acct", "stop"), c=("*.*", {"max_rows": 5, "max_per_day": 2})),
        "s",
    )
    assert limits(("bank", "acct")) == RepairLimits(max_rows=9, max_per_day=2), "each would ask for itself"
    assert limits(("other", "t")) == RepairLimits(max_rows=5, max_per_day=2)
    assert (
        make_repair_limits(config(b=("bank.acct", "stop"), a=("other.*", small)), "s")(("bank", "acct"))
        is None
    )
    default = RepairLimits(max_rows=50_000_000, max_per_day=3)
    assert (
        make_repair_limits(config(a=("other.*", "stop")), "s")(("bank", "acct"))
        == default
        == get_default_limits(("bank", "acct"))
    )


# --- by hand


def test_what_to_do_by_hand_names_the_table_as_the_configuration_does() -> None:
    """Also where it stands in a database whose name has a dot."""
    name, command = "`bank.2024`.acct", "rowlock copy '`bank.2024`.acct'"
    book = CopyBook()

    def notified(asked: CopyRequest, seen: KnownTable) -> str:
        book.accept_request(replace(asked, db="bank.2024"), seen, 1)
        return str(decode_problem(book.states.all[name].reason))

    assert command in notified(repair(1), KnownTable(estimate=1001))
    assert command in notified(request(2, where="v > 1"), KnownTable(stopped="value"))
    notified(request(3), KnownTable())
    assert notified(request(4, cancel=True), KnownTable()).endswith(f": {command}")
    for ends in (_stop, _alter):
        book = CopyBook()
        notified(request(5), KnownTable())
        for _ in range(MAX_COPY_RESTARTS + 1):
            book.states.mark_begun(name, begun(5, 20), 600)
            ends(book, name)
        assert command in book.states.all[name].reason


def test_two_tables_that_a_dot_makes_alike_have_their_own_copies() -> None:
    book = CopyBook()
    for number, (db, table) in enumerate((("a.b", "c"), ("a", "b.c"))):
        book.accept_request(replace(request(number), db=db, table=table), KnownTable(), number)
    assert [each.id for each in book.states.waiting] == ["r0", "r1"]
    book.accept_request(replace(request(2, cancel=True), db="a", table="b.c"), KnownTable(), 5)
    assert [each.id for each in book.states.waiting] == ["r0"]


def _stop(book: CopyBook, table: str) -> None:
    book.handle_table_stop(table, "rows-replaced", "it has other rows now", 700)


def _alter(book: CopyBook, table: str) -> None:
    book.mark_table_altered(table)
    book.settle_changes(700)


def test_a_part_of_a_table_ends_no_stop() -> None:
    assert f"rowlock copy {ACCT}" in refused(
        CopyBook(), request(1, where="v > 1"), KnownTable(stopped="value")
    )
    assert refused(CopyBook(), request(1, where="v > 1")) == ""
    book = running("value")
    book.accept_request(request(2, where="v > 1"), KnownTable(), 300)
    assert state(book).id == "r1", "the stop comes back if the copy does not end"


def test_what_cannot_be_copied_is_refused_and_a_running_copy_stays() -> None:
    assert refused(CopyBook(), request(1), KnownTable(refusal=Problem("no", "do it"))) == "no: do it"
    book = running()
    book.accept_request(request(2), KnownTable(refusal=Problem("no", "do it")), 300)
    assert (state(book).id, state(book).phase) == ("r1", "running")


def test_a_refused_request_keeps_what_is_known_of_the_last_copy() -> None:
    book = running()
    book.mark_copy_ended(ACCT, "r1", 300)
    assert refused(book, repair(2, cause="", after=50))
    assert (state(book).offset, state(book).ended) == (10, ((300, ""),))


# --- given up, stopped, altered


@pytest.mark.parametrize("ended_stop", ["", "dropped"])
def test_a_copy_that_is_taken_back_leaves_the_table_as_it_was(ended_stop: str) -> None:
    book = running(ended_stop)
    effects = book.accept_request(request(2, cancel=True), KnownTable(), 300)
    again = [
        RestoreStop(
            ACCT,
            "dropped",
            f"{ACCT} is stopped again (dropped): the copy that had ended this stop was cancelled",
        )
    ]
    assert effects == [DiscardChunks(ACCT), *(again if ended_stop else [])]
    assert (state(book).phase, state(book).ended_ms, state(book).ended_stop) == ("cancelled", 300, "")
    assert decode_problem(state(book).reason).remedy == f"rowlock copy {ACCT}"
    assert book.accept_request(request(3, cancel=True), KnownTable(), 300) == []


def test_a_copy_that_waits_is_taken_back() -> None:
    book = CopyBook()
    assert book.accept_request(request(9, cancel=True), KnownTable(), 0) == []
    assert book.states.all == {}
    book.accept_request(request(1), KnownTable(stopped="value"), 1)
    assert book.accept_request(request(2, cancel=True), KnownTable(stopped="value"), 2) == []
    assert (state(book).phase, book.states.busy) == ("cancelled", False)


@pytest.mark.parametrize("waits", [True, False])
def test_a_copy_goes_on_at_another_rate(waits: bool) -> None:
    book = CopyBook() if waits else running("value")
    if waits:
        book.accept_request(request(1, where="v > 1"), KnownTable(), 100)
    before = state(book)
    for rate in (500, None):
        faster = replace(request(2), rate_only=True, max_rows_per_second=rate)
        assert book.accept_request(faster, KnownTable(), 300) == []
        assert state(book) == replace(before, max_rows_per_second=rate)


def test_a_copy_without_a_rate_has_the_sources_and_zero_is_no_limit() -> None:
    """The changes of other tables wait until a copy's rows are sent, so a copy runs without any limit only on
    request."""
    for given, rate in ((None, 10), (7, 7), (0, None)):
        book = CopyBook(rate=10)
        book.accept_request(replace(request(1), max_rows_per_second=given), KnownTable(), 100)
        assert state(book).max_rows_per_second == rate
    book = CopyBook(rate=10)
    book.accept_request(request(1), KnownTable(), 100)
    book.accept_request(replace(request(2), rate_only=True, max_rows_per_second=0), KnownTable(), 200)
    assert state(book).max_rows_per_second is None


def test_a_rate_without_a_copy_is_nothing() -> None:
    book = CopyBook()
    asked = replace(request(1), rate_only=True, max_rows_per_second=5)
    assert book.accept_request(asked, KnownTable(), 100) == []
    assert book.states.all == {}
    book = running()
    book.mark_copy_ended(ACCT, "r1", 200)
    assert book.accept_request(asked, KnownTable(), 300) == []
    assert (state(book).phase, state(book).max_rows_per_second) == ("done", None)


def stop(book: CopyBook) -> None:
    book.handle_table_stop(ACCT, "rows-replaced", "bank.acct has other rows now", 500)


def alter(book: CopyBook) -> None:
    book.mark_table_altered(ACCT)
    assert book.settle_changes(500) == [DiscardChunks(ACCT)]


@pytest.mark.parametrize("happens", [stop, alter])
def test_a_copy_begins_anew_three_times(happens: Callable[[CopyBook], None]) -> None:
    book = running()
    for number in range(MAX_COPY_RESTARTS):
        happens(book)
        assert (state(book).phase, state(book).restarts) == ("waiting", number + 1)
        book.states.mark_begun(ACCT, begun(1, 20 + number), 600)
    if happens is stop:
        book.handle_table_stop(ACCT, "rows-replaced", "bank.acct has other rows now", 700)
    else:
        book.mark_table_altered(ACCT)
        assert book.settle_changes(700) == [DiscardChunks(ACCT)]
    assert state(book).phase == "refused"
    assert f"rowlock copy {ACCT}" in state(book).reason


def test_after_too_many_alterations_the_stop_is_there_again() -> None:
    book = running("value")
    for number in range(MAX_COPY_RESTARTS):
        alter(book)
        book.states.mark_begun(ACCT, begun(1, 20 + number), 600)
    book.mark_table_altered(ACCT)
    assert [type(each) for each in book.settle_changes(700)] == [DiscardChunks, RestoreStop]


def test_what_no_copy_gets_around_refuses_it_at_once() -> None:
    book = running("dropped")
    book.handle_table_stop(ACCT, "size", "a row is too large", 500)
    assert (state(book).phase, state(book).ended_stop) == ("refused", "")
    assert state(book).reason.startswith("a row is too large")


def test_a_stop_of_a_table_whose_copy_waits_changes_nothing() -> None:
    book = CopyBook()
    book.handle_table_stop(ACCT, "value", "x", 0)
    book.accept_request(request(1), KnownTable(), 1)
    book.handle_table_stop(ACCT, "size", "x", 2)
    assert (state(book).phase, state(book).restarts) == ("waiting", 0)


def test_a_copy_that_cannot_be_made_is_refused() -> None:
    book = running("value")
    problem = Problem("seen", "remedy")
    assert [type(each) for each in book.refuse_copy(ACCT, problem, 300)] == [
        DiscardChunks,
        RestoreStop,
    ]
    assert (state(book).phase, decode_problem(state(book).reason)) == ("refused", problem)
    assert book.refuse_copy(ACCT, Problem("again", "x"), 400) == []


# --- at a start


def test_a_begin_that_the_record_does_not_know_is_taken_over() -> None:
    book = CopyBook()
    book.accept_request(request(1), KnownTable(stopped="value"), 1)
    book.recover_copy(ACCT, begun(1, ended="value"), 50, altered=False)
    assert (state(book).phase, state(book).offset, state(book).ended_stop) == ("running", 10, "value")
    assert book.states.should_resume(ACCT, begun(1))


def test_a_request_that_is_read_behind_its_begin_runs_already() -> None:
    book = CopyBook()
    assert book.states.should_resume(ACCT, begun(1)), "its request is read soon"
    book.accept_request(request(1), KnownTable(begun=begun(1, ended="value")), 1)
    assert (state(book).phase, state(book).ended_stop) == ("running", "value")


def test_a_copy_that_was_given_up_does_not_go_on_after_a_start() -> None:
    book = running()
    assert book.states.should_resume(ACCT, begun(1))
    book.accept_request(request(2, cancel=True), KnownTable(), 300)
    assert not CopyBook(book.states.all).states.should_resume(ACCT, begun(1))
    assert CopyBook(book.states.all).states.should_resume(ACCT, begun(8, 90, position=(0, 3, 950, -5))), (
        "another copy"
    )
    book.accept_request(repair(3, cause="a"), KnownTable(estimate=10**9), 400)
    assert not CopyBook(book.states.all).states.should_resume(ACCT, begun(1))


def test_a_copy_that_is_to_begin_anew_does_not_go_on_after_a_start() -> None:
    book = running()
    alter(book)
    again = CopyBook(book.states.all)
    again.recover_copy(ACCT, begun(1), 600, altered=True)
    assert not again.states.should_resume(ACCT, begun(1))
    assert state(again).phase == "waiting"
    later = begun(1, 30, position=(0, 3, 900, -5))
    again.recover_copy(ACCT, later, 700, altered=False)
    assert (state(again).phase, state(again).offset) == ("running", 30)


@pytest.mark.parametrize("altered", [False, True])
def test_a_copy_that_began_behind_one_that_ended_runs_after_a_start(altered: bool) -> None:
    """A predecessor stored neither the end of the first copy nor the begin of the second: the first ran for
    ever, and the second never ran."""
    book = running()
    book.accept_request(repair(2, after=50), KnownTable(estimate=3), 300)
    again = CopyBook(book.states.all)
    again.recover_copy(ACCT, begun(2, 60, position=(0, 3, 900, -5)), 600, altered=altered)
    assert (state(again).id, state(again).phase, state(again).offset) == (request(2).id, "running", 60)
    assert state(again).next_request is None
    assert state(again).ended[-1][0] == 600, "the first has come to its end"
    assert again.settle_changes(700) == ([DiscardChunks(ACCT)] if altered else [])
    assert state(again).phase == ("waiting" if altered else "running")


def test_a_copy_whose_end_was_stored_ends_once() -> None:
    """How many of a table ended within a day is what a repair is limited by."""
    book = running()
    book.accept_request(repair(2, after=50), KnownTable(estimate=3), 300)
    book.mark_copy_ended(ACCT, request(1).id, 400)
    again = CopyBook(book.states.all)
    again.recover_copy(ACCT, begun(2, 60, position=(0, 3, 900, -5)), 600, altered=False)
    assert (state(again).phase, [at for at, _ in state(again).ended]) == ("running", [400])
    assert not again.next_requests


def test_an_alteration_is_noticed_by_a_start() -> None:
    book = running()
    book.recover_copy(ACCT, begun(1), 300, altered=True)
    assert book.settle_changes(400) == [DiscardChunks(ACCT)]
    assert (state(book).phase, state(book).restarts) == ("waiting", 1)


def test_copies_of_nobody_say_nothing() -> None:
    book = running()
    snapshot = BegunCopy(CopyMark(id="snapshot of era 1"), (1, 1, 4, -9), 77)
    book.recover_copy(ACCT, snapshot, 300, altered=True)
    assert (state(book).offset, book.altered, book.next_requests) == (10, [], [])


# --- shown and kept


def test_what_ended_is_shown_for_a_day_and_then_forgotten() -> None:
    book = running()
    assert list(book.states.select_visible(10 * DAY_MS)) == [ACCT]
    book.mark_copy_ended(ACCT, "r1", 300)
    assert list(book.states.select_visible(DAY_MS + 299)) == [ACCT]
    assert list(book.states.select_visible(DAY_MS + 300)) == []
    book.states.prune_ended(DAY_MS + 299)
    assert book.states.all
    book.states.prune_ended(DAY_MS + 300)
    assert not book.states.all


def test_a_copy_that_was_given_up_is_kept_as_long_as_its_topic_has_its_begin() -> None:
    book = running()
    book.accept_request(request(2, cancel=True), KnownTable(), 300)
    book.states.prune_ended(10 * DAY_MS)
    assert not book.states.should_resume(ACCT, begun(1))


def test_a_state_survives_its_record() -> None:
    book = running("value")
    assert CopyBook(book.states.all).states.all == {ACCT: replace(state(book))}


def test_a_copy_fulfils_the_request_that_it_was_made_for_and_no_other() -> None:
    """Another one waits for its own begin: it gives no condition and no pace to the copy that runs in the
    topic."""
    book = running()
    column = Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False)
    table = Table(db="bank", name="acct", columns=(column,), key=UniqueIndex(name="", parts=()))
    seen = TableState(("bank", "acct"), TopicState("t", TopicTail()), table, AT)
    assert book.states.find_fulfilled_request(seen) is None, "no copy has begun"
    seen.begun = begun(1)
    assert book.states.find_fulfilled_request(seen) == state(book)
    book.accept_request(request(2), KnownTable(), 300)
    assert book.states.find_fulfilled_request(seen) is None


# --- conditions


@pytest.mark.parametrize(
    "where",
    ["v > 1", "(v > 1) OR (v < 0)", "v = ')'", "v = \"(\"", "`)` = 1", "v LIKE '5%'", "v IN (SELECT 1)", "v = 1 -- (", "v /* ) */ = 1"],  # noqa: E501
)  # fmt: skip
def test_a_condition_is_whole_in_itself(where: str) -> None:
    assert explain_unbalanced_condition(where) is None


@pytest.mark.parametrize(
    "where", ["", "  ", "v > 1)", "1) OR (1", "(v > 1", "v > 1; DROP TABLE t", "v = 'x", "v = `x", "1=1) -- "]
)  # fmt: skip
def test_what_is_not_whole_is_no_condition(where: str) -> None:
    problem = explain_unbalanced_condition(where)
    assert problem is not None
    assert problem.remedy == "give one complete SQL condition with balanced parentheses"
