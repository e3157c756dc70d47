"""Rows that a statement removed: what capture sends and owes, and when a key sweep pays it
(docs/adr/0041-partition-retention.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from producer.copies.book import CopyBook, DiscardChunks, JudgeRequest, KnownTable, RestoreStop
from producer.copies.limits import explain_sweep_refusal
from producer.copies.states import DAY_MS
from producer.errors import TableStoppedError
from producer.start.table_topics import TableTopics
from producer.tables import BegunCopy
from schemas.problems import Problem, decode_problem
from schemas.wire.codec import decode_stored_position, encode_stored_position
from schemas.wire.copies import CopyMark, CopyRequest, CopyState, RemovedRows, RepairLimits, select_copy
from schemas.wire.event import EventEnvelope
from tests.kits.barriers import Stage, T, U
from tests.kits.capture_story import Events, Story

BOTH = pytest.mark.parametrize("mysql", [False, True])
DROP = "ALTER TABLE acct DROP PARTITION p0"
ACCT, NAME = "bank.acct", ("bank", "acct")

NEEDED = CopyRequest(
    id="r1", db="bank", table="acct", by="pipeline p", requested_ms=0, cause="value", after=5,
    limits=RepairLimits(max_rows=10, max_per_day=1),
)  # fmt: skip

WHOLE = CopyRequest(id="r1", db="bank", table="acct", by="operator", requested_ms=0)


def removed(number: int, offset: int) -> RemovedRows:
    return RemovedRows(id=f"d{number}", offset=offset, ddl=f"statement {number}", since_ms=number)


def begin(book: CopyBook, offset: int, table: str = ACCT) -> CopyState:
    (state, *_) = book.states.waiting
    begun = BegunCopy(CopyMark(id=state.id, keys=state.keys), (0, 1, offset, -5), offset)
    book.states.mark_begun(table, begun, 0)
    return book.states.all[table]


def state(story: Story) -> CopyState:
    return story.broker.stored[-1].record.copies[ACCT]


def find(story: Story, op: str) -> list[EventEnvelope]:
    return [event for event in story.broker.events() if event.op == op]


# --- the statement


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t DROP PARTITION p0",
        "ALTER TABLE t DROP PARTITION IF EXISTS p0, p1",
        "ALTER TABLE t TRUNCATE PARTITION p0",
        "ALTER TABLE t TRUNCATE PARTITION p0sp1",
        "ALTER TABLE t TRUNCATE PARTITION ALL",
        "ALTER TABLE t WAIT 5 DROP PARTITION p0",
        "ALTER TABLE t CONVERT PARTITION p0 TO TABLE other.x",
    ],
)
def test_a_statement_that_only_removes_rows_stops_nothing(sql: str) -> None:
    stage = Stage()
    assert stage.carry_out(sql) == {}
    (event,) = stage.writer.events()
    assert (event.op, event.ddl, event.definition, event.source.version) == ("p", sql, None, "3.0")
    assert stage.changed == [T], "chunks that were read before it do not count"


@pytest.mark.parametrize(
    ("sql", "stopped"),
    [
        ("ALTER TABLE t CONVERT PARTITION p0 TO TABLE u", {U: "rows-replaced"}),
        (
            "ALTER TABLE t CONVERT TABLE u TO PARTITION p0 VALUES LESS THAN (9)",
            {T: "rows-replaced", U: "dropped"},
        ),
        ("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u", {T: "rows-replaced", U: "rows-replaced"}),
        ("ALTER TABLE t DROP PARTITION p0, ADD COLUMN x INT", {T: "rows-replaced"}),
        ("ALTER IGNORE TABLE t DROP PARTITION p0", {T: "rows-replaced"}),
        ("ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION p0 VALUES IN (1))", {T: "rows-replaced"}),
        ("ALTER TABLE t DISCARD PARTITION p0 TABLESPACE", {T: "rows-replaced"}),
    ],
)  # fmt: skip
def test_what_also_brings_or_may_change_rows_stops_its_tables(sql: str, stopped: dict[Any, str]) -> None:
    assert Stage().carry_out(sql) == stopped


# --- the book


def test_a_debt_waits_for_a_key_sweep_and_its_end_pays_it() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    (waiting,) = book.states.waiting
    assert (waiting.keys, waiting.by, waiting.cause, waiting.id) == (True, "capture", "rows-removed", "d1")
    begin(book, 20)
    book.mark_copy_ended(ACCT, "d1", 5)
    ended = book.states.all[ACCT]
    assert (ended.phase, ended.removed, ended.ended) == ("done", None, ()), "limits do not count it"


def test_statements_before_the_begin_become_one_and_those_after_it_one_more() -> None:
    book = CopyBook()
    for number in range(1, 4):
        book.note_removed_rows(NAME, removed(number, number))
    begin(book, 20)
    for number in range(4, 9):
        book.note_removed_rows(NAME, removed(number, 20 + number))
    assert book.states.all[ACCT].phase == "running", "it goes on: else it might never end"
    book.mark_copy_ended(ACCT, "d1", 5)
    (waiting,) = book.states.waiting
    assert (waiting.id, waiting.restarts) == ("d8", 0)
    assert waiting.removed is not None
    assert (waiting.removed.statements, waiting.removed.since_ms) == (8, 1)
    begin(book, 40)
    book.mark_copy_ended(ACCT, "d8", 6)
    assert book.states.all[ACCT].removed is None
    assert not book.states.busy


def test_the_same_statement_read_again_is_the_same_debt() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    book.note_removed_rows(NAME, removed(1, 30))
    assert book.states.all[ACCT].removed == removed(1, 10)


@pytest.mark.parametrize("later", [False, True])
def test_a_copy_of_the_whole_table_pays_what_was_owed_at_its_begin(later: bool) -> None:
    book = CopyBook()
    if not later:
        book.note_removed_rows(NAME, removed(1, 10))
    whole = CopyRequest(id="r1", db="bank", table="acct", by="operator", requested_ms=0)
    book.accept_request(whole, KnownTable(), 0)
    begin(book, 20)
    if later:
        book.note_removed_rows(NAME, removed(1, 30))
    book.mark_copy_ended(ACCT, "r1", 5)
    now = book.states.all[ACCT]
    assert (now.keys, now.phase) == ((True, "waiting") if later else (False, "done"))
    assert (now.removed is not None) == later


def test_a_partial_copy_pays_nothing() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    part = CopyRequest(id="r1", db="bank", table="acct", by="operator", requested_ms=0, where="id < 5")
    book.accept_request(part, KnownTable(), 0)
    begin(book, 20)
    book.mark_copy_ended(ACCT, "r1", 5)
    assert (book.states.all[ACCT].keys, book.states.all[ACCT].phase) == (True, "waiting")


@pytest.mark.parametrize("phase", ["waiting", "running"])
def test_a_copy_that_a_unit_needs_takes_the_place_of_a_key_sweep(phase: str) -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    if phase == "running":
        begin(book, 20)
    effects = book.accept_request(NEEDED, KnownTable(), 0)
    assert effects == ([DiscardChunks(ACCT)] if phase == "running" else [])
    now = book.states.all[ACCT]
    assert (now.id, now.keys, now.removed) == ("r1", False, removed(1, 10))


def test_a_refused_copy_leaves_the_key_sweep_that_waits() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    book.accept_request(NEEDED, KnownTable(estimate=11), 0)
    assert book.states.all[ACCT].keys


def test_a_key_sweep_of_a_table_that_stops_waits_and_ends_no_stop() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    begin(book, 20)
    book.handle_table_stop(ACCT, "value", "…", 1)
    now = book.states.all[ACCT]
    assert (now.phase, now.ended_stop, now.restarts) == ("waiting", "", 0)


def test_key_sweeps_wait_for_copies_and_are_restarted_without_a_limit() -> None:
    book = CopyBook()
    book.note_removed_rows(("bank", "other"), removed(1, 10))
    whole = CopyRequest(id="r1", db="bank", table="acct", by="operator", requested_ms=0)
    book.accept_request(whole, KnownTable(), 0)
    assert [each.id for each in book.states.waiting] == ["r1", "d1"]
    begin(book, 20)
    book.mark_copy_ended(ACCT, "r1", 1)
    for offset in range(30, 40):
        begin(book, offset, "bank.other")
        book.mark_table_altered("bank.other")
        assert book.settle_changes(1) == [DiscardChunks("bank.other")]
    assert book.states.all["bank.other"].phase == "waiting"


@pytest.mark.parametrize("phase", ["waiting", "running"])
def test_a_cancelled_key_sweep_leaves_the_debt_visible_until_the_next_statement(phase: str) -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    if phase == "running":
        begin(book, 20)
    cancel = CopyRequest(id="r1", db="bank", table="acct", by="operator", requested_ms=0, cancel=True)
    effects = book.accept_request(cancel, KnownTable(), 0)
    assert not [each for each in effects if isinstance(each, RestoreStop)]
    now = book.states.all[ACCT]
    assert (now.phase, now.removed) == ("cancelled", removed(1, 10))
    assert ACCT in book.states.select_visible(3 * DAY_MS)
    book.states.prune_ended(3 * DAY_MS)
    assert ACCT in book.states.all
    book.note_removed_rows(NAME, removed(2, 50))
    (waiting,) = book.states.waiting
    assert waiting.removed is not None
    assert waiting.removed.statements == 2


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("first", ["sweep", "copy"])
def test_a_sweep_that_began_without_a_record_ends_what_ran_before(known: bool, first: str) -> None:
    book = CopyBook()
    if first == "copy":
        whole = CopyRequest(id="r1", db="bank", table="acct", by="operator", requested_ms=0)
        book.accept_request(whole, KnownTable(), 0)
    else:
        book.note_removed_rows(NAME, removed(1, 10))
    begin(book, 20)
    if known:
        book.note_removed_rows(NAME, removed(2, 30))
    book = CopyBook(book.states.all)
    begun = BegunCopy(CopyMark(id="d2", keys=True), (0, 1, 40, -5), 40)
    book.recover_copy(ACCT, begun, 5, altered=False)
    now = book.states.all[ACCT]
    if known:
        assert (now.id, now.keys, now.phase, now.offset) == ("d2", True, "running", 40)
        book.mark_copy_ended(ACCT, "d2", 6)
        assert book.states.all[ACCT].removed is None
    else:
        assert (now.phase, now.removed) == ("done", None)
        book.note_removed_rows(NAME, removed(2, 30))
        assert [each.id for each in book.states.waiting] == ["d2"]


def test_a_copy_that_took_the_place_of_a_key_sweep_waits_after_a_start() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    swept = begin(book, 20)
    book.accept_request(NEEDED, KnownTable(), 0)
    assert swept.begin is not None
    begun = BegunCopy(CopyMark(id="d1", keys=True), swept.begin, 20)
    book.recover_copy(ACCT, begun, 5, altered=False)
    assert [each.id for each in book.states.waiting] == ["r1"]


# --- a run of capture


@BOTH
def test_a_key_sweep_beside_live_changes(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1), (2, None, 1), (3, None, 1)])
        yield story.statement(DROP)
        story.tick()
        yield []
        assert state(story).phase == "running"
        assert [each.table.column_names for each in story.readers[0].asked] == [("id",)]
        yield story.transaction([(2, 1, 2)])
        story.readers[0].answers.append(answer(story, [(1,), (2,)], low=2))
        yield story.transaction([(4, None, 2)])
        yield []
        story.tick()
        yield []

    story.notify(telling())
    events = story.broker.events()
    assert [event.op for event in events] == ["c", "c", "c", "p", "k", "u", "c", "k", "m"]
    begun, chunk, marker = events[4], events[7], events[8]
    assert begun.copy is not None
    assert (begun.copy.keys, begun.definition is not None, begun.keys) == (True, True, None)
    assert chunk.keys == ((1,),), "2 was changed meanwhile"
    assert marker.copy is not None
    assert marker.chunk is not None
    assert (marker.copy.keys, marker.copy.begins, marker.chunk.last) == (True, 4, True)
    now = state(story)
    assert (now.phase, now.keys, now.removed, now.rows) == ("done", True, None, 1)


@pytest.mark.parametrize(
    ("most", "events"),
    [(1_000_000, [[1, 2, 3, 4, 5]]), (13, [[1, 2], [3, 4, 5]]), (1, [[1], [2], [3], [4], [5]])],
)
def test_keys_of_a_chunk_become_events_of_limited_size(
    monkeypatch: pytest.MonkeyPatch, most: int, events: list[list[int]]
) -> None:
    monkeypatch.setattr("producer.kafka.control_events._KEY_BYTES", most)
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.statement(DROP)
        story.tick()
        yield []
        story.readers[0].answers.append(answer(story, [(n,) for n in range(1, 6)], low=1))
        yield []
        story.tick()
        yield []

    story.notify(telling())
    _, *sent = find(story, "k")
    assert [[key for (key,) in event.keys or ()] for event in sent] == events


def test_a_chunk_without_keys_is_its_marker_alone() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.statement(DROP)
        story.tick()
        yield []
        story.readers[0].answers.append(answer(story, [], low=1))
        yield []
        story.tick()
        yield []

    story.notify(telling())
    assert [event.op for event in story.broker.events()][-2:] == ["k", "m"]
    assert len(find(story, "k")) == 1


def answer(story: Story, keys: list[tuple[int]], low: int) -> Any:
    rows: list[Any] = [(key, 0) for (key,) in keys]
    story.answer(rows, low)
    return story.readers[0].answers.pop()._replace(rows=keys)


@BOTH
def test_a_chunk_that_was_read_before_the_statement_is_discarded(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1), (2, None, 1)])
        yield story.statement(DROP)
        story.tick()
        yield []
        early = answer(story, [(1,), (2,)], low=2)
        yield story.statement("ALTER TABLE acct DROP PARTITION p1")
        story.readers[0].answers.append(early)
        yield []
        assert find(story, "k")[1:] == []
        story.tick()
        yield []
        story.readers[0].answers.append(answer(story, [(2,)], low=3))
        yield []
        yield []
        story.tick()
        yield []
        assert state(story).phase == "running", "the second statement came after the begin"
        story.readers[0].answers.append(answer(story, [(2,)], low=3))
        yield []
        story.tick()
        yield []

    story.notify(telling())
    assert [event.keys for event in find(story, "k")] == [None, ((2,),), None, ((2,),)]
    assert (state(story).phase, state(story).removed) == ("done", None)


@pytest.mark.parametrize("limits", [None, RepairLimits(max_rows=0, max_per_day=3)])
def test_a_debt_waits_for_a_person_where_repair_does_not_copy(limits: RepairLimits | None) -> None:
    story = Story(mysql=False)
    story.repair = limits

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        yield story.statement(DROP)
        story.tick()
        yield []
        yield story.transaction([(2, None, 1)])
        yield []

    story.notify(telling())
    now = state(story)
    assert [event.op for event in story.broker.events()] == ["c", "p", "c"]
    assert (now.phase, now.keys, now.removed is not None) == ("refused", True, True)
    assert "rowlock copy bank.acct" in decode_problem(now.reason).action


def test_a_key_sweep_without_a_topic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(mysql=False)

    def refuse(_self: object, name: tuple[str, str]) -> None:
        raise TableStoppedError(frozenset([name]), "topic", "Kafka has no topic for it", "create it")

    monkeypatch.setattr(TableTopics, "open_topic", refuse)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        yield story.statement(DROP)
        story.tick()
        yield []
        yield story.transaction([(2, None, 1)])
        story.tick()
        yield []

    story.notify(telling())
    now = state(story)
    assert [event.op for event in story.broker.events()] == ["c", "p", "c"], "capture goes on"
    assert (now.phase, now.removed is not None) == ("refused", True)
    assert "no topic" in decode_problem(now.reason).what


def test_many_statements_within_a_second_lead_to_one_more_key_sweep_at_most() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        yield [event for n in range(6) for event in story.statement(f"ALTER TABLE acct DROP PARTITION p{n}")]
        answered = 0
        for _ in range(8):
            story.tick()
            yield []
            for at in range(answered, story.reads):
                story.answer([], low=7, request=at)
            answered = story.reads

    story.notify(telling())
    assert len(find(story, "p")) == 6
    assert len([event for event in find(story, "k") if event.copy]) <= 2
    assert (state(story).phase, state(story).removed) == ("done", None)


def test_a_position_record_with_a_debt_is_refused_by_versions_that_would_forget_it() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.statement(DROP)
        story.tick()
        yield []

    story.notify(telling())
    raw = encode_stored_position(story.broker.stored[-1].record)
    assert raw.startswith(b'{"needs":3,')
    assert decode_stored_position(raw) == story.broker.stored[-1].record


# --- the end of a debt without a sweep


@pytest.mark.parametrize("cause", ["dropped", "deselected"])
@pytest.mark.parametrize("phase", ["waiting", "running", "refused", "cancelled", "copy"])
def test_a_table_that_is_dropped_or_not_selected_owes_nothing(cause: str, phase: str) -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    if phase == "running":
        begin(book, 20)
    elif phase == "refused":
        book.refuse_copy(ACCT, Problem("it is large"), 1)
    elif phase == "cancelled":
        book.accept_request(replace(WHOLE, cancel=True), KnownTable(), 1)
    elif phase == "copy":
        book.accept_request(WHOLE, KnownTable(), 1)
    book.handle_table_stop(ACCT, cause, "it is dropped", 2)
    now = book.states.all[ACCT]
    assert now.removed is None
    assert book.states.busy == (phase == "copy"), "a snapshot-only run ends"
    assert phase != "running" or "nothing to do" in decode_problem(now.reason).action
    book.states.prune_ended(3 * DAY_MS)
    assert (ACCT in book.states.all) == (phase in ("copy", "running")), "a begin without an end is kept"


def test_a_refused_key_sweep_is_judged_again_at_a_start_and_a_cancelled_one_is_not() -> None:
    book = CopyBook()
    for name in (NAME, ("bank", "other")):
        book.note_removed_rows(name, removed(1, 10))
    book.refuse_copy(ACCT, Problem("it is large"), 1)
    book.accept_request(replace(WHOLE, table="other", cancel=True), KnownTable(), 1)
    (waiting,) = CopyBook(book.states.all).states.waiting
    assert (waiting.table, waiting.reason, waiting.ended_ms) == ("acct", "", None)


@pytest.mark.parametrize(("estimate", "refused"), [(100, False), (101, True), (None, False)])
def test_a_key_sweep_may_read_more_rows_than_a_copy(estimate: int | None, refused: bool) -> None:
    problem = explain_sweep_refusal(NAME, RepairLimits(max_rows=10, max_per_day=1), estimate)
    assert (problem is not None) == refused


# --- the copy beside a key sweep


def copied(book: CopyBook, request: CopyRequest, offset: int, now: int) -> None:
    book.accept_request(request, KnownTable(), now)
    begin(book, offset)
    book.mark_copy_ended(ACCT, request.id, now)


def test_the_last_copy_is_known_beside_a_key_sweep() -> None:
    """A unit continues at its begin, and does not ask for it again."""
    book = CopyBook()
    copied(book, WHOLE, 20, 1)
    book.note_removed_rows(NAME, removed(1, 30))
    for offset in (40, None):
        copy = select_copy(book.states.all[ACCT])
        assert copy is not None
        assert (copy.id, copy.phase, copy.offset) == ("r1", "done", 20)
        assert book.accept_request(NEEDED, KnownTable(), 2) == []
        assert book.states.all[ACCT].keys, "the copy began after what the unit needs it for"
        if offset is not None:
            begin(book, offset)
            book.mark_copy_ended(ACCT, "d1", 3)


def test_the_begin_of_a_key_sweep_is_no_begin_of_the_copy_that_takes_its_place() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    begin(book, 20)
    book.accept_request(NEEDED, KnownTable(), 0)
    assert (book.states.all[ACCT].id, book.states.all[ACCT].offset) == ("r1", None)


def test_a_refused_copy_is_shown_beside_the_key_sweep() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, removed(1, 10))
    begin(book, 20)
    book.accept_request(NEEDED, KnownTable(estimate=11), 0)
    now, copy = book.states.all[ACCT], select_copy(book.states.all[ACCT])
    assert copy is not None
    assert (now.id, now.phase, copy.id, copy.phase) == ("d1", "running", "r1", "refused")
    assert "about 11 rows" in decode_problem(copy.reason).what


def test_statements_that_only_remove_rows_lead_to_one_copy_each_within_the_hour() -> None:
    book, limits = CopyBook(), RepairLimits(max_rows=10, max_per_day=3)
    first = replace(NEEDED, cause="rows-replaced", limits=limits)
    book.accept_request(first, KnownTable(), 0)
    begin(book, 20)
    for number in (2, 3):
        book.accept_request(replace(first, id=f"r{number}", after=20 + number), KnownTable(), 1)
    book.mark_copy_ended(ACCT, "r1", 5)
    (judged,) = book.settle_changes(6)
    assert isinstance(judged, JudgeRequest)
    book.accept_request(judged.request, KnownTable(), 6)
    (waiting,) = book.states.waiting
    assert waiting.id == "r3", "the last one covers the others"
    begin(book, 40)
    book.mark_copy_ended(ACCT, "r3", 7)
    book.accept_request(replace(first, id="r4", after=50), KnownTable(stopped="rows-replaced"), 8)
    assert book.states.all[ACCT].phase == "refused", "capture's own stop is limited by the hour"


def test_key_sweeps_count_for_no_copy() -> None:
    book = CopyBook()
    for each in "abcd":
        book.note_removed_rows(("bank", each), removed(0, 10))
    book.accept_request(NEEDED, KnownTable(), 0)
    assert book.states.all[ACCT].phase == "waiting"


def test_a_debt_of_a_topic_that_was_created_anew_is_paid() -> None:
    book = CopyBook()
    book.note_removed_rows(NAME, replace(removed(1, 10**6), position=(0, 1, 15, 0)))
    begin(book, 20)
    book.mark_copy_ended(ACCT, "d1", 5)
    assert book.states.all[ACCT].removed is None
    book.note_removed_rows(NAME, replace(removed(2, 3), position=(0, 1, 30, 0)))
    book.states.mark_begun(ACCT, BegunCopy(CopyMark(id="d2", keys=True), (0, 1, 29, -5), 40), 0)
    book.mark_copy_ended(ACCT, "d2", 5)
    assert book.states.all[ACCT].removed is not None
