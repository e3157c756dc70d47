"""What a start of capture takes over from the position record and the topics, and what it writes: short
histories, in memory."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from producer.copies.book import KnownTable
from producer.decoders.envelope import SourceContext
from producer.definitions.requests import UnprovenDefinition
from producer.errors import SourceRefusedError, SupersededError
from producer.start.positions import CaptureAssignment
from producer.start.started import StartedCapture
from producer.start.startup import WAITS, collect_published
from producer.start.topic_recovery import TableTail, TopicFindings
from producer.tables import CapturedTables
from schemas.clock import read_clock_ms
from schemas.findings import START_OVER
from schemas.problems import Problem
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.wire.copies import CopyMark, CopyRequest, CopyState, copy_topic
from schemas.wire.event import Chunk
from schemas.wire.position import DEFINITION_ROW, FIRST_SNAPSHOT_ROW, STOP_ROW, Position
from schemas.wire.records import Anchor
from tests.kits.start import ACCT, RECORD, Start, a_stop, event, table

DEFINED: Position = (0, 3, 100, DEFINITION_ROW)
LATER: Position = (0, 3, 700, DEFINITION_ROW)
NEW: Position = (0, 3, 500, DEFINITION_ROW)
MARK = CopyMark(id="r1")


def defined(at: Position = DEFINED, *more: str, gen: int = 4, name: str = "acct", **content: Any) -> bytes:
    return event(at, gen, name=name, definition=table(name, *more), **content)


def row(at: Position, gen: int = 4, name: str = "acct") -> bytes:
    return event(at, gen, op="c", name=name)


# --- the record


def test_a_first_start_begins_era_0_at_the_logs_end_under_gen_1() -> None:
    start = Start()
    started = start.begin()
    (record,) = start.claimed()
    assert record == started.record
    assert (record.gen, record.epoch, record.assigned, record.copy_requests) == (1, 0, 0, 0)
    assert (record.file, record.pos, record.ts_ms) == (RECORD.file, RECORD.pos, 50)
    assert started.fresh
    assert (started.published.captured_before, started.published.cut) == (False, set())
    (event,) = start.sent()
    assert (event.source.position, event.source.gen, event.definition, event.copy) == (NEW, 1, table(), None)
    assert start.captured.tables[ACCT].definition_offset == 0


def test_a_start_goes_on_where_the_record_stands_under_the_next_gen() -> None:
    start = Start()
    start.stored(assigned=3)
    start.has(defined())
    started = start.begin()
    names = {"bank.acct": start.topic()}
    claimed = msgspec.structs.replace(RECORD, gen=5, assigned=3, topics=names)
    assert start.claimed() == [claimed]
    assert not started.fresh
    assert started.published.captured_before
    (event,) = start.sent()
    assert (event.source.position, event.source.gen, event.definition, event.copy) == (
        DEFINED,
        5,
        table(),
        None,
    )


@pytest.mark.parametrize(
    ("snapshot", "mark"), [("initial", CopyMark(id="snapshot of era 1")), ("never", None)]
)
def test_a_new_snapshot_is_an_era_of_its_own_and_says_that_a_copy_begins(
    snapshot: str, mark: CopyMark | None
) -> None:
    start = Start(snapshot=snapshot)
    start.tables["bank", "new"] = table("new")
    start.stored()
    start.has(defined(), row((0, 3, 450, 0)))
    started = start.begin(new_snapshot=True)
    assert started.fresh
    assert (started.record.epoch, started.record.gen) == (1, 5)
    (event,) = start.sent()
    assert (event.source.position, event.source.prev) == ((1, *NEW[1:]), (0, 3, 450, 0))
    assert event.copy == mark
    assert [each.copy for each in start.sent("new")] == [None], (
        "of this table nothing is there to be copied again"
    )


@pytest.mark.parametrize(("record", "topics", "era"), [(6, 6, 7), (6, 2, 7), (None, 2, 3), (2, 6, 7)])
def test_a_new_snapshot_stands_above_all_that_record_and_topics_have(
    record: int | None, topics: int, era: int
) -> None:
    """The file's number is higher than any era: it must not be taken for one."""
    start = Start()
    if record is not None:
        start.stored(epoch=record)
    start.has(defined((topics, 30, 100, DEFINITION_ROW)))
    assert start.begin(new_snapshot=True).record.epoch == era


def test_topics_with_events_and_no_position_are_refused() -> None:
    start = Start()
    start.has(defined())
    with pytest.raises(
        SourceRefusedError, match=r"source b1 hold events, but rowlock\.b1\.position has no"
    ) as refused:
        start.begin()
    assert str(refused.value).endswith(START_OVER)
    assert start.claimed() == []
    assert start.sent() == []


def test_a_process_whose_source_was_assigned_elsewhere_writes_nothing() -> None:
    start = Start()
    start.stored(assigned=9)
    start.has(defined())
    start.term = CaptureAssignment(8)
    with pytest.raises(SupersededError):
        start.begin()
    assert start.claimed() == []
    assert start.sent() == []


def test_requests_of_before_a_new_beginning_are_fulfilled_by_it() -> None:
    start = Start()
    start.topics.put(copy_topic("rowlock", "b1"), b"1", b"2", b"3")
    assert start.begin().record.copy_requests == 3


def test_copies_keep_to_the_rate_of_the_configuration() -> None:
    for rate, kept in ((500, 500), (0, None)):
        book = Start(copy_rows_per_second=rate).begin().copies
        book.accept_request(
            CopyRequest(id="r", db="bank", table="acct", by="operator", requested_ms=1), KnownTable(), 1
        )
        assert book.states.all["bank.acct"].max_rows_per_second == kept


# --- definitions


def test_the_definition_in_force_is_repeated_and_those_behind_are_known() -> None:
    start = Start()
    start.stored()
    older: Position = (0, 2, 900, DEFINITION_ROW)
    start.has(
        defined(older),
        defined(DEFINED, "a"),
        defined((0, 3, 500, 0), "a", "b"),
        defined(LATER, "a", "b", "c"),
    )
    start.begin()
    (event,) = start.sent()
    assert (event.source.position, event.definition) == (DEFINED, table("acct", "a"))
    assert event.source.file == RECORD.file
    state = start.captured.tables[ACCT]
    assert (state.defined_at, state.table) == (DEFINED, table("acct", "a"))
    assert state.ahead == {(0, 3, 500, 0): table("acct", "a", "b"), LATER: table("acct", "a", "b", "c")}, (
        "the statement at 500 is not done at 500"
    )


def test_a_definition_of_an_earlier_file_is_repeated_there() -> None:
    start = Start()
    start.stored()
    start.has(defined((0, 2, 900, DEFINITION_ROW)))
    start.begin()
    (event,) = start.sent()
    assert (event.source.position, event.source.file, event.source.pos) == (
        (0, 2, 900, DEFINITION_ROW), "binlog.000002", 900,
    )  # fmt: skip


def test_a_copy_that_began_at_the_records_very_place_is_in_force_there_and_one_behind_it_begins_later() -> (
    None
):
    for at, begins in ((NEW, {}), ((0, 3, 500, 0), {ACCT: (0, 3, 500, 0)}), (LATER, {ACCT: LATER})):
        start = Start()
        start.stored()
        start.has(defined(), defined(at, "a", copy=MARK))
        started = start.begin()
        assert started.begins == begins
        state = start.captured.tables[ACCT]
        assert (state.defined_at, state.table, state.begun and state.begun.position) == (
            at,
            table("acct", "a"),
            at,
        )


def test_what_a_paused_process_writes_meanwhile_is_taken_in() -> None:
    """It wrote behind our look and before our claim counted: readers have taken it."""
    start = Start()
    start.stored()
    start.has(defined())
    chunk = Chunk(number=1, after=None, upto=None, first_row=FIRST_SNAPSHOT_ROW, rows=0, last=True)
    begin: Position = (0, 3, 800, FIRST_SNAPSHOT_ROW)
    start.meanwhile = lambda: start.has(
        defined(LATER, "a"),
        defined(begin, "a", copy=MARK),
        event((0, 3, 900, -5), chunk=chunk),
        row((0, 3, 950, 2)),
    )
    start.begin()
    topic, state = start.captured.get_topic(ACCT), start.captured.tables[ACCT]
    assert (topic.ceiling, topic.tail.last) == ((0, 3, 950, 2), (0, 3, 950, 2)), "the next event's `prev`"
    assert state.ahead == {LATER: table("acct", "a"), begin: table("acct", "a")}
    assert state.marker_offset == 3
    assert state.begun is not None
    assert (state.begun.mark, state.begun.position, state.begun.offset) == (MARK, begin, 2)
    assert state.definition_offset == 5


def test_what_is_below_the_topics_end_leaves_it_where_it_is() -> None:
    start = Start()
    start.stored()
    start.has(defined(), row((0, 3, 450, 0)))
    start.begin()
    topic = start.captured.get_topic(ACCT)
    assert (topic.ceiling, topic.tail.last) == ((0, 3, 450, 0), (0, 3, 450, 0))


@pytest.mark.parametrize("snapshot", ["initial", "never"])
def test_a_table_that_cannot_be_proven_waits_for_its_statement_or_for_its_first_row(snapshot: str) -> None:
    start = Start(snapshot=snapshot)
    start.proofs[ACCT] = UnprovenDefinition((3, 900))
    started = start.begin()
    assert started.late == ({ACCT: (3, 900)} if snapshot == "initial" else {})
    assert list(started.errors) == ([ACCT] if snapshot == "initial" else [])
    assert all(why.remedy == WAITS for why in started.errors.values())
    assert start.sent() == []


@pytest.mark.parametrize("row_number", [0, 7])
def test_a_new_table_waits_where_its_topic_has_rows_of_the_very_place(row_number: int) -> None:
    """A definition there would stand below them, and readers would drop it."""
    start = Start()
    start.stored(anchors={"bank.acct": Anchor(end=0, highest=(0, 3, 500, row_number))})
    start.has(row((0, 3, 500, row_number)))
    started = start.begin()
    assert started.late == {ACCT: (3, 500)}
    assert start.sent() == []


@pytest.mark.parametrize(
    ("era", "snapshots", "marked"), [(0, True, True), (0, False, False), (1, True, False), (2, True, False)]
)
def test_a_copy_begins_with_the_first_definition_of_an_era_where_the_topic_has_an_older_one(
    era: int, snapshots: bool, marked: bool
) -> None:
    """The topic of a table that was dropped and recreated within its era has the statement, which defines
    what readers do with its rows."""
    tail = TableTail(definitions={(era, 0, 9, DEFINITION_ROW): table()})
    record = msgspec.structs.replace(RECORD, epoch=1)
    context = SourceContext(connector="mysql", name="b1", epoch=1, gen=5)
    started = StartedCapture(
        record, context, CapturedTables("rowlock", "b1"), {ACCT: tail}, {}, fresh=False, snapshots=snapshots
    )
    assert started.get_copy_mark(ACCT) == (CopyMark(id="snapshot of era 1") if marked else None)
    assert started.get_copy_mark(("bank", "new")) is None


# --- stops


def test_a_stop_that_only_the_topic_has_is_in_force_and_is_repeated_at_its_place() -> None:
    """The process was killed before it stored the record that has it, too."""
    start = Start()
    at: Position = (0, 3, 300, STOP_ROW)
    start.stored()
    start.has(defined(), event(at, stop=a_stop()))
    start.begin()
    stopped = start.captured.stopped[ACCT]
    assert (stopped.stop, stopped.position, stopped.offset) == (a_stop(), at, 3)
    assert [(each.source.position, each.stop) for each in start.sent()] == [(DEFINED, None), (at, a_stop())]
    assert start.captured.unsaid == set()


def labelled(kind: Kind) -> Table:
    """Return the table with a SET that has an empty label, as `kind` carries it."""
    type_ = ColumnType(kind=kind, members=("", "a"), charset="utf8mb4", collation="utf8mb4_bin")
    return msgspec.structs.replace(table(), columns=(*table().columns, Column(name="s", type=type_)))


def test_a_table_whose_topic_has_labels_one_of_which_is_empty_is_stopped() -> None:
    """An earlier version defined it; numbers come with the definition of a copy."""
    start = Start()
    start.stored()
    start.has(event(DEFINED, definition=labelled(Kind.SET)))
    start.begin()
    assert start.captured.stopped[ACCT].stop.cause == "definition"
    assert "column s of bank.acct has an empty label" in start.captured.stopped[ACCT].stop.reason
    assert ACCT in start.captured.unsaid  # the topic gets the stop before anything later


def test_a_table_is_stopped_for_a_definition_with_an_empty_label_behind_the_stored_position() -> None:
    """An earlier version published it, and was ended before it stored the position; the log brings the
    statement once more."""
    start = Start()
    start.stored()
    start.has(defined(), event((0, 3, 600, DEFINITION_ROW), definition=labelled(Kind.SET)))
    start.begin()
    assert "column s of bank.acct has an empty label" in start.captured.stopped[ACCT].stop.reason


def test_a_definition_with_an_empty_label_from_before_the_last_copy_stops_nothing() -> None:
    start = Start()
    start.stored()
    begun = event(
        (0, 3, 300, FIRST_SNAPSHOT_ROW), definition=labelled(Kind.SET_NUMBER), copy=CopyMark(id="c")
    )
    start.has(event((0, 3, 200, DEFINITION_ROW), definition=labelled(Kind.SET)), begun)
    start.begin()
    assert start.captured.stopped == {}


def test_a_table_whose_topic_has_numbers_goes_on() -> None:
    start = Start()
    start.stored()
    start.has(event(DEFINED, definition=labelled(Kind.SET_NUMBER)))
    start.begin()
    assert start.captured.stopped == {}
    assert start.captured.tables[ACCT].table == labelled(Kind.SET_NUMBER)


def test_a_new_snapshot_knows_nothing_of_the_stops_before() -> None:
    start = Start()
    start.stored(stops={"bank.acct": a_stop()})
    start.has(defined(), event((0, 3, 300, STOP_ROW), stop=a_stop()))
    start.begin(new_snapshot=True)
    assert start.captured.stopped == {}
    assert start.captured.tables[ACCT].defined_at == (1, *NEW[1:])


def test_a_stop_of_an_era_before_is_repeated_in_that_era() -> None:
    """A new snapshot had begun; its table waits, and so nothing has ended the stop."""
    start = Start()
    start.stored(epoch=1)
    at: Position = (0, 3, 300, STOP_ROW)
    start.has(defined(), event(at, stop=a_stop()))
    start.begin()
    (event_,) = start.sent()
    assert (event_.source.position, event_.source.gen, event_.stop) == (at, 5, a_stop())


@pytest.mark.parametrize(
    ("begin", "end", "stopped"),
    [
        ((0, 3, 499, FIRST_SNAPSHOT_ROW), 0, True),  # who passed it and kept the stop has not known of it
        ((0, 3, 500, FIRST_SNAPSHOT_ROW), 1, True),
        ((0, 3, 500, FIRST_SNAPSHOT_ROW), 0, False),
        ((0, 3, 501, FIRST_SNAPSHOT_ROW), 1, False),
        ((0, 3, 500, FIRST_SNAPSHOT_ROW), None, False),
    ],
)
def test_a_stop_of_the_record_is_over_where_a_copy_has_begun_since(
    begin: Position, end: int | None, stopped: bool
) -> None:
    start = Start()
    anchors = {} if end is None else {"bank.acct": Anchor(definition=0, end=end)}
    start.stored(stops={"bank.acct": a_stop()}, anchors=anchors)
    if end == 1:
        start.stored(
            stops={"bank.acct": a_stop()}, anchors={"bank.acct": Anchor(definition=0, end=1, begin=1)}
        )
    start.has(defined(), defined(begin, copy=MARK))
    start.begin()
    assert (ACCT in start.captured.stopped) == stopped
    begun = start.captured.tables[ACCT].begun
    assert begun is not None
    assert begun.ended == ("" if stopped else "value")


@pytest.mark.parametrize("again", [False, True])
def test_a_copy_that_a_predecessor_begins_meanwhile_ends_with_a_stop_that_is_said_behind_it(
    again: bool,
) -> None:
    start = Start()
    at: Position = (0, 3, 600, STOP_ROW)
    start.stored(stops={"bank.acct": a_stop()})
    start.has(defined(), event(at, stop=a_stop()))
    if again:
        start.meanwhile = lambda: start.has(defined(LATER, copy=MARK))
    start.begin()
    assert start.captured.stopped[ACCT].position == (None if again else at)
    assert start.captured.unsaid == ({ACCT} if again else set())


def test_a_table_that_was_captured_and_is_gone_is_stopped_and_one_that_never_was_is_left_out() -> None:
    """Of `old` the topic has nothing any more; the record knows it."""
    start = Start(tables=["bank.*", "!bank.out"])
    start.tables = {
        ("bank", "old"): "unfit: mend it",
        ("bank", "new"): "unfit: mend it",
        ("bank", "out"): table("out"),
    }
    start.stored(anchors={"bank.old": Anchor(definition=0, end=0), "bank.out": Anchor(definition=0, end=1)})
    start.has(defined(name="old"), name="old")
    start.topics.expire(start.topic("old"))
    start.has(defined(name="out"), row((0, 3, 200, 0), name="out"), name="out")
    started = start.begin()
    stops = {name: each.stop.cause for name, each in start.captured.stopped.items()}
    assert stops == {("bank", "old"): "unfit", ("bank", "out"): "deselected"}
    assert start.captured.known == {("bank", "old"), ("bank", "out")}
    assert started.errors == {("bank", "new"): Problem("unfit", "mend it")}
    assert [each.definition for each in start.sent("out")] == [table("out")], (
        "its state is kept, as of any table"
    )


def test_a_stopped_table_without_a_topic_is_no_table_of_this_source() -> None:
    start = Start()
    start.stored(stops={"bank.gone": a_stop()})
    start.begin()
    assert start.captured.stopped == {}
    assert start.captured.known == {ACCT}


# --- copies


def running(begin: Position | None) -> CopyState:
    return CopyState(
        id="r1", db="bank", table="acct", by="operator", phase="running" if begin else "waiting",
        requested_ms=1, begin=begin
    )  # fmt: skip


@pytest.mark.parametrize("altered", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_copy_whose_begin_no_record_has_is_found(altered: bool, stopped: bool) -> None:
    start = Start()
    start.stored(copies={"bank.acct": running(None)})
    start.has(defined(), defined(LATER, "a", copy=MARK))
    if altered:
        start.has(defined((0, 3, 800, 0), "a", "b"))
    if stopped:
        start.has(event((0, 3, 900, STOP_ROW), stop=a_stop(900)))
    copies = start.begin().copies
    state = copies.states.all["bank.acct"]
    assert (state.phase, state.begin, state.offset) == (
        ("waiting", None, None) if stopped else ("running", LATER, 1)
    )
    assert bool(copies.altered) == (altered and not stopped), "what was read of it is of another table"


# --- what a log that is used up is told


def test_the_highest_place_of_a_used_up_log_is_of_this_era() -> None:
    start = Start()
    found = {
        "a": TopicFindings(highest=(0, 1, 90, 3)), "b": TopicFindings(highest=(1, 2, 5, 8)),
        "c": TopicFindings(highest=(1, 2, 7, 1)), "d": TopicFindings(),
    }  # fmt: skip
    assert collect_published(found, start.captured, 1, captured_before=False).highest == 7
    assert collect_published(found, start.captured, 2, captured_before=False).highest is None


def test_times_are_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_999_999)
    assert read_clock_ms() == 1_700_000_000_123
