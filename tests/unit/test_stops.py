"""Stops of tables: their positions in the topics, what a start takes up, and what is stopped by what it
finds."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.decoders.envelope import SourceContext
from producer.errors import TableStoppedError
from producer.loop.table_stops import TableStops
from producer.snapshot.chunk_sender import ChunkSender
from producer.sources.changes import LogMoment
from producer.start.repeated_events import send_stop
from producer.start.started import StartedCapture
from producer.start.topic_recovery import ChunkMarker, StopMark, TopicFindings
from producer.stops import (
    CAUSES,
    StopCause,
    StoppedTable,
    explain_dropped_remedy,
    explain_unseen_table,
    find_stop_at_start,
    find_stop_position,
    merge_table_stops,
)
from producer.tables import BegunCopy, CapturedTables, TableState, TopicState, format_table_name
from schemas.findings import COPY_EACH
from schemas.problems import decode_problem
from schemas.table.model import Table
from schemas.table.names import EXACT, find_meant_tables
from schemas.table.patterns import is_selected_by_patterns
from schemas.wire.codec import (
    decode_event,
    decode_stored_position,
    encode_event_value,
    encode_stored_position,
)
from schemas.wire.copies import CopyMark, CopyState
from schemas.wire.event import Chunk, EventEnvelope, Source
from schemas.wire.position import STOP_ROW, Position
from schemas.wire.records import Anchor, Identity, StoredPosition, TableStop
from tests.kits.apply import account_table
from tests.kits.barriers import a_stop

CAUSE = StopCause(epoch=0, file="binlog.000003", file_number=3, pos=700, ts_ms=7)
ACCT = ("bank", "acct")


def an_event(
    position: Position,
    gen: int = 1,
    stop: TableStop | None = None,
    definition: Table | None = None,
    copy: CopyMark | None = None,
) -> bytes:
    source = Source(
        version="1.0", connector="mysql", name="b1", ts_ms=7, snapshot="false", db="bank", table="acct",
        server_id=1, gtid=None, file="binlog.000003", pos=position[2], row=position[3], position=position,
        prev=None, gen=gen,
    )  # fmt: skip
    return encode_event_value(
        EventEnvelope(op="m", source=source, ts_ms=7, stop=stop, definition=definition, copy=copy)
    )


def test_a_stop_stands_behind_its_cause_and_before_what_follows() -> None:
    place = CAUSE.build_stop_position()
    assert (0, 3, 700, STOP_ROW - 1) < place < (0, 3, 701, -(2**53) - 1)
    assert find_stop_position(place, (0, 3, 650, 3), (0, 3, 900, 0)) == place
    assert find_stop_position(place, None, (0, 3, 900, 0)) == place


def test_a_stop_that_is_said_late_stands_above_all_that_the_topic_has() -> None:
    ceiling = (0, 3, 800, 0)
    assert find_stop_position(CAUSE.build_stop_position(), ceiling, (0, 3, 750, 0)) is None, (
        "the stream is not there yet"
    )
    assert find_stop_position(CAUSE.build_stop_position(), ceiling, (0, 3, 900, 0)) == (0, 3, 900, 0)
    assert find_stop_position(None, None, (0, 3, 900, 0)) == (0, 3, 900, 0)


@given(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 9))
def test_a_stop_never_stands_where_readers_drop_it(cause: int, ceiling: int | None, here: int) -> None:
    top = None if ceiling is None else (0, 3, ceiling, 0)
    at = find_stop_position((0, 3, cause, STOP_ROW), top, (0, 3, here, 0))
    assert at is None or top is None or at > top


def test_tables_of_one_topic_stop_at_places_of_their_own() -> None:
    assert len({CAUSE.build_stop_position(number) for number in range(5)}) == 5


def test_the_remedy_names_the_entry_that_excludes_the_table() -> None:
    error = TableStoppedError(None, "value", "a value", f"exclude the table, or {COPY_EACH}")
    entry = '"!bank.acct" to the source\'s `tables`; while rowlock runs, also rowlock reload'
    exclude = f"exclude the table (append {entry})"
    assert CAUSE.build_table_stop(ACCT, error).remedy == f"{exclude}, or rowlock copy bank.acct"


def test_the_reason_names_the_table() -> None:
    error = TableStoppedError(None, "log", "the log ends", "do something")
    assert CAUSE.build_table_stop(ACCT, error).reason == "bank.acct: the log ends"
    error = TableStoppedError(None, "log", "rows of bank.acct end", "do something")
    assert CAUSE.build_table_stop(ACCT, error).reason == "rows of bank.acct end"


@pytest.mark.parametrize(
    ("selected", "exists", "unfit", "cause"),
    [
        (True, True, None, None),
        (True, True, "bank.acct has no key: add one", "unfit"),
        (True, False, None, "unseen"),
        (False, True, None, "deselected"),
        (False, False, None, "deselected"),
    ],
)
def test_what_a_start_finds(selected: bool, exists: bool, unfit: str | None, cause: str | None) -> None:
    found = find_stop_at_start(
        ACCT, selected=selected, exists=exists, unfit=decode_problem(unfit) if unfit else None
    )
    assert (None if found is None else found.cause) == cause
    assert cause is None or cause in CAUSES
    if found is not None:
        assert found.tables == {ACCT}
        assert found.remedy


def test_the_remedy_of_a_dropped_table_is_a_pattern_that_excludes_it() -> None:
    """Also if another pattern selects the table, and if its name has characters of patterns."""
    for name in (("shop", "claims"), ("shop", "a.b"), ("shop", "o*")):
        found = re.search(r'"(!.+?)"', explain_dropped_remedy(name))
        assert found is not None
        assert f'"{found[1]}"' in explain_unseen_table(name).action
        assert not is_selected_by_patterns(["*.*", found[1]], *name)
        assert is_selected_by_patterns(["*.*", found[1]], "shop", "other")


def test_a_topic_s_tail_says_that_its_table_is_stopped() -> None:
    tails = TopicFindings()
    tails.add_event(0, an_event((0, 3, 100, 0), definition=account_table()))
    tails.add_event(1, an_event((0, 3, 700, STOP_ROW), stop=a_stop()))
    tails.add_event(
        2, an_event((0, 3, 100, 0), definition=account_table())
    )  # repeated under its own position
    tail = tails.tables[ACCT]
    assert tail.stop == StopMark(a_stop(), (0, 3, 700, STOP_ROW), 1)
    tails.add_event(3, an_event((1, 1, 4, 0), gen=2, definition=account_table()))
    assert tails.tables[ACCT].stop is None, "another life of the log: everything began anew"


def test_a_zombie_s_stop_does_not_count() -> None:
    tails = TopicFindings()
    tails.add_event(0, an_event((0, 3, 100, 0), gen=2, definition=account_table()))
    tails.add_event(1, an_event((0, 3, 700, STOP_ROW), gen=1, stop=a_stop()))
    assert tails.tables[ACCT].stop is None


def test_of_a_table_that_is_stopped_twice_the_first_cause_counts() -> None:
    early, late = a_stop(100, "statement"), a_stop(900)
    assert merge_table_stops({"bank.acct": early}, {"bank.acct": late}) == {"bank.acct": early}
    assert merge_table_stops({"bank.acct": late}, {"bank.acct": early}) == {"bank.acct": early}
    assert merge_table_stops({"a.b": late}, {"c.d": early}) == {"a.b": late, "c.d": early}


def test_a_stopped_table_keeps_its_anchor_and_captures_nothing() -> None:
    captured = CapturedTables("rowlock", "b1")
    topic = captured.get_topic(ACCT)
    topic.tail.last = (0, 3, 650, 0)
    captured.tables[ACCT] = TableState(ACCT, topic, account_table(), (0, 3, 100, 0))
    captured.stop_table(ACCT, StoppedTable(a_stop()))
    assert captured.tables[ACCT].ignored
    assert captured.unsaid == {ACCT}
    captured.stopped[ACCT].offset = 8
    assert captured.build_anchors({topic.name: 9}, (0, 9, 9))["bank.acct"].stop == 8
    del captured.tables[ACCT]
    assert captured.build_anchors({topic.name: 9}, (0, 9, 9))["bank.acct"].stop == 8
    assert captured.list_stops() == {"bank.acct": a_stop()}


ODD = st.text("ab.`", min_size=1, max_size=4)


@given(ODD, ODD)
def test_the_text_of_a_table_means_that_table_alone(db: str, table: str) -> None:
    assert find_meant_tables(format_table_name((db, table))) == [(db, table)]


@given(ODD.filter(lambda name: "`" not in name), ODD.filter(lambda name: "`" not in name))
def test_what_an_older_version_wrote_may_mean_several_tables(db: str, table: str) -> None:
    assert (db, table) in find_meant_tables(f"{db}.{table}")


def test_two_tables_that_a_dot_made_alike_have_their_own_stops_and_anchors() -> None:
    one, two = ("a.b", "c"), ("a", "b.c")
    captured = CapturedTables("rowlock", "b1")
    ends = {}
    for offset, name in enumerate((one, two)):
        topic = captured.get_topic(name)
        topic.tail.last = (0, 3, 650, offset)
        captured.tables[name] = TableState(
            name, topic, account_table(), (0, 3, 100, 0), definition_offset=offset
        )
        ends[topic.name] = offset + 7
    captured.stop_table(two, StoppedTable(a_stop()))
    assert captured.list_stops() == {"a.`b.c`": a_stop()}
    assert {name: anchor.definition for name, anchor in captured.build_anchors(ends, (0, 9, 9)).items()} == {
        "`a.b`.c": 0,
        "a.`b.c`": 1,
    }


def test_a_record_of_an_older_version_speaks_of_every_table_that_it_may_mean() -> None:
    state = CopyState(id="x", db="a", table="b.c", by="operator", phase="waiting", requested_ms=1)
    former = StoredPosition(
        source="b1", gen=1, epoch=0, file="f.000001", pos=4,
        identity=Identity(server_uuid=None, server_id=1, version="8", gtid_set=None), ts_ms=1,
        snapshot_done=("a.b.c", "bank.acct"), anchors={"a.b.c": Anchor(end=4), "bank.acct": Anchor(end=5)},
        stops={"a.b.c": a_stop(), "bank.acct": a_stop()}, copies={"a.b.c": state},
    )  # fmt: skip
    both = {"`a.b`.c", "a.`b.c`", "bank.acct"}
    record = decode_stored_position(encode_stored_position(former))
    assert set(record.snapshot_done) == set(record.anchors) == set(record.stops) == both
    assert record.copies == {"a.`b.c`": state}, "it says itself which one it is of"
    assert decode_stored_position(encode_stored_position(record)) == record


def test_several_causes_of_one_statement_are_told_apart() -> None:
    first = TableStoppedError(frozenset([ACCT]), "dropped", "one", "x")
    second = TableStoppedError(None, "statement", "two", "y")
    joined = TableStoppedError.merge_errors([first, second])
    assert joined is not None
    assert [part.cause for part in joined.parts] == ["dropped", "statement"]
    assert TableStoppedError.merge_errors([]) is None


def test_a_record_of_an_older_version_has_no_stops() -> None:
    from schemas.wire.records import StoredPosition

    raw = b'{"source":"b1","gen":1,"epoch":0,"file":"f.1","pos":4,"identity":{"server_uuid":null,"server_id":1,"version":"1","gtid_set":null},"ts_ms":1}'  # noqa: E501
    assert msgspec.json.decode(raw, type=StoredPosition).stops == {}


def test_a_stop_without_a_place_is_not_sent() -> None:
    captured, nothing = CapturedTables("rowlock", "b1"), Any
    captured.stop_table(ACCT, StoppedTable(a_stop()))
    with pytest.raises(ValueError, match=r"the stop of bank\.acct has no place yet"):
        send_stop(nothing, nothing, captured, ACCT, nothing)


def test_a_stop_that_is_said_late_leaves_room_for_what_follows_at_its_place() -> None:
    """Else a copy that is to begin on an idle source would wait for the log to go on."""
    before, like_a_row = (0, 3, 899, STOP_ROW), (0, 3, 900, -7)
    assert find_stop_position(None, (0, 3, 850, 2), before, like_a_row) == before
    assert find_stop_position(None, (0, 3, 900, -8), before, like_a_row) == like_a_row
    assert find_stop_position(None, (0, 3, 900, 0), before, like_a_row) is None


# --- copies


def a_begin(offset: int, position: Position, tails: TopicFindings, gen: int = 1) -> None:
    tails.add_event(offset, an_event(position, gen, definition=account_table(), copy=CopyMark(id="r1")))


def test_a_copy_that_begins_ends_the_stop_and_old_markers() -> None:
    tails = TopicFindings()
    tails.add_event(0, an_event((0, 3, 100, 0), definition=account_table()))
    tails.add_event(1, an_event((0, 3, 700, STOP_ROW), stop=a_stop()))
    tail = tails.tables[ACCT]
    tail.markers.append(
        ChunkMarker(
            Chunk(number=1, after=None, upto=None, first_row=0, rows=0, last=True), (0, 3, 200, -5), 1, 0
        )
    )
    assert tail.marker_offset == 0
    a_begin(2, (0, 3, 900, -5), tails)
    assert (tail.stop, tail.markers, tail.marker_offset) == (None, [], None)
    assert tail.begun == BegunCopy(CopyMark(id="r1"), (0, 3, 900, -5), 2, "dropped")
    a_begin(3, (0, 3, 950, -5), tails, gen=0)
    assert tail.begun.offset == 2, "a zombie's"
    tails.add_event(4, an_event((0, 3, 990, STOP_ROW), stop=a_stop(990)))
    assert tail.stop is not None


@pytest.mark.parametrize(
    ("pos", "known", "holds"),
    [
        (600, 1, False),  # the record is older than the begin
        (900, 1, False),  # at the very place, and its topic ended before the begin
        (900, -1, False),
        (900, 2, True),  # stopped again at the very place
        (901, 1, True),  # who wrote it has passed the begin, and not known of it
    ],
)
def test_a_record_holds_a_stop_unless_a_copy_has_begun_since(pos: int, known: int, holds: bool) -> None:
    tails = TopicFindings()
    a_begin(2, (0, 3, 900, -5), tails)
    found = tails.tables[ACCT].find_open_stop(a_stop(), (0, 3, pos), known)
    assert (found is not None) == holds
    begun = tails.tables[ACCT].begun
    assert begun is not None
    assert begun.ended == ("" if holds else "dropped")


def test_a_definition_of_another_era_is_not_in_force() -> None:
    tails = TopicFindings()
    tails.add_event(0, an_event((0, 3, 100, 0), definition=account_table()))
    tail = tails.tables[ACCT]
    assert tail.find_definition(3, 101, 0) is not None
    assert tail.find_definition(1, 4, 1) is None


@pytest.mark.parametrize(("pos", "stopped"), [(99, False), (100, True), (101, True)])
def test_what_lies_in_front_of_where_a_table_was_taken_up_does_not_stop_it(pos: int, stopped: bool) -> None:
    """A start that was further has taken the table up as it is behind that."""
    name, captured = ("bank", "acct"), CapturedTables("rowlock", "b1")
    captured.known = {name}
    parts: Any = SimpleNamespace(
        captured=captured, context=SimpleNamespace(epoch=0), begins={name: (0, 9, 100, 0)}, errors={},
        late={}, copies=SimpleNamespace(handle_table_stop=lambda *_: None), names=EXACT, writer=None,
        clock=SimpleNamespace(now_ms=lambda: 7), tables=SimpleNamespace(forget_table=lambda _name: None),
    )  # fmt: skip
    error = TableStoppedError(frozenset([name]), "value", "a row cannot be read", "copy it")
    TableStops(parts, parts, parts, parts).stop_tables(error, LogMoment("binlog.000009", pos, 7))
    assert (name in captured.stopped) == stopped


class Stopping:
    """The stops of a source's tables, `names` of which are captured; `sent`: (topic, position) of the stops
    sent to their topics."""

    def __init__(self, *names: tuple[str, str]) -> None:
        self.sent: list[tuple[str, Position]] = []
        self.captured = CapturedTables("rowlock", "b1")
        self.captured.known = set(names)
        record = StoredPosition(
            source="b1", gen=1, epoch=0, file="binlog.000003", pos=4, ts_ms=1,
            identity=Identity(server_uuid="u", server_id=1, version="9", gtid_set=None),
        )  # fmt: skip
        context = SourceContext(connector="mysql", name="b1", epoch=0, gen=1)
        self.started = StartedCapture(record, context, self.captured, {}, {}, fresh=False)
        ports: Any = SimpleNamespace(names=EXACT, writer=self, clock=SimpleNamespace(now_ms=lambda: 9))
        self.rows: Any = ChunkSender(self.started, ports.writer, ports.clock)
        snapshots: Any = SimpleNamespace(
            tables=SimpleNamespace(forget_table=lambda _name: None), sender=self.rows
        )
        nobody: Any = None
        self.stops = TableStops(self.started, ports, nobody, snapshots)

    def send(self, topic: str, _key: bytes, value: bytes, _stored: object) -> None:
        self.sent.append((topic, decode_event(value).source.position))

    def stopped(
        self, name: tuple[str, str], ceiling: Position | None, place: Position | None = None
    ) -> TopicState:
        """Let a table be stopped whose topic ends at `ceiling`; its cause has a `place` in what is read, or
        none."""
        self.captured.stop_table(name, StoppedTable(a_stop(), place=place))
        topic = self.captured.get_topic(name)
        topic.ceiling = ceiling
        return topic


def test_a_stop_is_said_just_before_the_next_event_or_like_a_snapshot_row_there_and_no_two_at_one_place() -> (
    None
):
    stopping = Stopping(ACCT)
    topic = stopping.stopped(ACCT, (0, 3, 899, 5))
    assert stopping.stops.send_pending_stops("binlog.000003", 900)
    assert not stopping.stops.unsaid
    assert not stopping.stops.send_pending_stops("binlog.000003", 900), "it is said"
    free = stopping.rows.reserve_row(topic)
    stopping.stopped(ACCT, (0, 3, 899, STOP_ROW))
    assert stopping.stops.send_pending_stops("binlog.000003", 900)
    assert [position for _, position in stopping.sent] == [(0, 3, 899, STOP_ROW), (0, 3, 900, free)]
    assert stopping.rows.reserve_row(topic) == free + 1, "a copy that begins here stands above the stop"


def test_a_stop_waits_until_the_stream_is_above_what_its_topic_has_and_others_do_not_wait_for_it() -> None:
    stopping = Stopping(ACCT, ("bank", "b"))
    stopping.stopped(ACCT, (0, 3, 900, 0))
    assert not stopping.stops.send_pending_stops("binlog.000003", 900)
    stopping.stopped(("bank", "b"), (0, 3, 1, 0))
    assert stopping.stops.send_pending_stops("binlog.000003", 900)
    assert (stopping.sent, stopping.captured.unsaid) == (
        [("rowlock.b1.bank.b", (0, 3, 899, STOP_ROW))],
        {ACCT},
    )


def test_a_stop_stands_above_rows_that_were_just_sent() -> None:
    """The topic's tail is further than its ceiling, which is only noted now and then; readers would drop a
    stop below it."""
    stopping = Stopping(ACCT)
    topic = stopping.stopped(ACCT, (0, 3, 100, 0), place=(0, 3, 700, STOP_ROW))
    topic.tail.last = (0, 3, 800, 3)
    assert stopping.stops.send_pending_stops("binlog.000003", 900)
    assert stopping.sent == [(topic.name, (0, 3, 899, STOP_ROW))]


def test_a_table_that_stops_is_not_taken_up_later_and_its_copy_begins_anew() -> None:
    stopping = Stopping(ACCT)
    stopping.started.late[ACCT] = (3, 4)
    stopping.started.copies.states.put_state(
        CopyState(id="r1", db="bank", table="acct", by="operator", phase="running", requested_ms=1)
    )
    error = TableStoppedError(frozenset([ACCT]), "definition", "another layout", "copy it")
    stopping.stops.stop_tables(error, LogMoment("binlog.000003", 700, 7))
    copy = stopping.started.copies.states.all["bank.acct"]
    assert (stopping.started.late, copy.phase, copy.restarts) == ({}, "waiting", 1)
