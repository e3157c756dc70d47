"""Capture, step by step: what it stores and when, and what it reports to its snapshots about the stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from producer.errors import TransientSourceError
from producer.kafka.writer import MAX_BATCH_BYTES
from producer.start.topic_recovery import ChunkMarker, TableTail
from schemas.wire.event import Chunk
from schemas.wire.position import DEFINITION_ROW
from tests.kits.capture_story import DEFINED, FILE, NUMBER, TOPIC, Events, Story

PREVIOUS_GTIDS = 35  # the type of an event that capture does not know
BOTH = pytest.mark.parametrize("mysql", [False, True], ids=["mariadb", "mysql"])


def stored(story: Story) -> list[int]:
    return [each.record.pos for each in story.broker.stored]


# --- positions


@BOTH
def test_no_position_is_stored_before_kafka_has_what_lies_before_it(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        story.broker.holding = True
        story.tick()
        yield story.transaction([(2, None, 1)], [(1, 1, 2)])
        assert stored(story) == [story.written[0].end], "the second is not acknowledged"
        story.tick()
        yield story.transaction([(3, None, 1)])
        assert len(stored(story)) == 1
        story.broker.holding = False
        yield []
        yield []
        assert stored(story) == [each.end for each in story.written[:2]] + [story.written[2].end]

    story.notify(telling())
    assert stored(story)[-1] == story.written[-1].end
    assert story.rows_left() == {1: 2, 2: 1, 3: 1}


@BOTH
def test_no_position_lies_inside_a_transaction_that_has_not_ended(mysql: bool) -> None:
    """Its events come in several reads, with ticks between them; nothing of it is published before its
    end."""
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        events = story.transaction([(2, None, 1)], [(1, 1, 2)])
        for event in events[:-1]:
            story.tick()
            yield [event]
            assert len(story.broker.events()) == 1
        story.tick()
        yield events[-1:]

    story.notify(telling())
    assert set(stored(story)) <= {4, *(each.end for each in story.written)}
    assert story.rows_left() == {1: 2, 2: 1}


@BOTH
def test_a_stop_inside_a_transaction_stores_where_the_one_before_it_ended(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        yield story.transaction([(2, None, 1)])[:-1]

    story.notify(telling())
    assert stored(story)[-1] == story.written[0].end
    assert story.rows_left() == {1: 1}


@BOTH
def test_a_large_transaction_is_published_piece_by_piece_and_its_position_stays_before_it(
    mysql: bool,
) -> None:
    """It is read a second time, and has rows in Kafka, and one held back, when the clock ticks inside it."""
    story = Story(mysql=mysql, limit=2000)
    inside: list[int] = []

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        before = story.log.pos
        events = story.transaction(*([(key, None, 1)] for key in range(2, 40)))
        yield events[:20]
        yield events[20:]
        assert len(story.broker.events()) == 1, "too large to keep, it is read again"
        story.transaction([(1, 1, 2)])
        for events in story.again(before, 7):
            story.tick()
            yield events
            inside.append(len(story.broker.events()))

    story.notify(telling())
    assert inside[:3] == sorted(set(inside[:3])), "it goes on with every read"
    assert 1 < inside[2] < 39
    first, large, last = story.written
    assert set(stored(story)) <= {4, first.end, large.end, last.end}
    assert story.rows_left() == {1: 2} | dict.fromkeys(range(2, 40), 1)


@BOTH
def test_a_record_names_no_event_of_a_topic_that_kafka_may_never_have(mysql: bool) -> None:
    """What was sent since is lost with the process: it must not be what the next start's events follow (see
    the judge)."""
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        story.broker.holding = True
        story.tick()
        yield story.transaction([(2, None, 1)])
        yield story.transaction([(3, None, 1)])
        before = len(story.broker.stored)
        story.broker.due = 3  # the first watermark and position, and the second event
        yield []
        yield []
        (now,) = story.broker.stored[before:]
        assert (now.record.pos, len(now.acknowledged), len(now.others)) == (story.written[1].end, 2, 1)

    story.notify(telling())


def _the_snapshot_is_unacknowledged(story: Story) -> Iterator[Events]:
    """One row is written, and the only chunk of the snapshot is sent; the broker has acknowledged neither."""
    yield []
    story.broker.holding = True
    story.tick()
    yield story.transaction([(9, None, 1)])
    story.answer([(1, 0)], low=0)
    yield []


@BOTH
def test_a_record_names_events_of_a_topic_up_to_where_it_says_it_ends(mysql: bool) -> None:
    """A start reads everything after that end: a definition from there would not show what a zombie wrote
    before it (see the judge)."""
    story = Story(mysql=mysql, snapshot=True)

    def telling() -> Iterator[Events]:
        yield from _the_snapshot_is_unacknowledged(story)
        story.broker.holding = False
        for _ in range(4):
            yield []
            story.tick()
        marked = [anchor.marker for each in story.broker.stored for anchor in each.record.anchors.values()]
        assert marked == [2]

    story.notify(telling())


@BOTH
def test_a_record_names_no_row_that_is_held_back(mysql: bool) -> None:
    story = Story(mysql=mysql, limit=2000)

    def telling() -> Iterator[Events]:
        yield []
        yield story.transaction([(1, None, 1)])
        before = story.log.pos
        events = story.transaction(*([(key, None, 1)] for key in range(2, 40)))
        yield events[:20]
        yield events[20:]
        for events in story.again(before, 9):
            story.tick()
            yield events

    story.notify(telling())
    assert story.written[0].end in stored(story), "while a row of the next one was held"


@BOTH
def test_a_stop_in_the_middle_of_what_is_published_stores_where_the_one_before_it_ended(mysql: bool) -> None:
    story = Story(mysql=mysql, limit=2000)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        before = story.log.pos
        events = story.transaction(*([(key, None, 1)] for key in range(2, 40)))
        yield events[:20]
        yield events[20:]
        pieces = story.again(before, 9)
        yield next(pieces)
        yield next(pieces)

    story.notify(telling())
    assert len(story.broker.events()) > 1
    assert stored(story)[-1] == story.written[0].end


@BOTH
def test_a_batch_that_is_full_in_the_middle_of_a_transaction_stores_nothing_of_it(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        many = [[(2 + 500 * part + n, None, 1) for n in range(500)] for part in range(6)]
        story.tick()
        yield story.transaction(*many)

    story.notify(telling())
    assert sum(map(len, story.broker.topics[TOPIC])) > MAX_BATCH_BYTES
    assert set(stored(story)) == {each.end for each in story.written}


@BOTH
def test_a_statement_stores_what_was_before_it_and_stands_behind_it(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        story.broker.holding = True
        yield [
            *story.transaction([(1, None, 1)], [(2, None, 1)]),
            *story.truncate(),
            *story.transaction([(3, None, 1)]),
        ]

    story.notify(telling())
    first, _, last = story.written
    assert stored(story) == [first.end, last.end]
    assert [event.op for event in story.broker.stored[0].acknowledged] == ["c", "c"]
    assert story.broker.stored[0].others == [], "it was stored before the statement was sent"
    assert [event.op for event in story.broker.events()] == ["c", "c", "t", "c"]
    assert story.rows_left() == {3: 1}


@BOTH
def test_the_last_row_of_a_transaction_says_so_and_no_other(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield [
            *story.transaction([(1, None, 1), (2, None, 1)], [(1, 1, 2)]),
            *story.transaction([(3, None, 1)]),
        ]

    story.notify(telling())
    marks = [
        (event.transaction.total_order, event.transaction.last)
        for event in story.broker.events()
        if event.transaction
    ]
    assert marks == [(1, False), (2, False), (3, True), (1, True)]


# --- what the snapshot is told


@BOTH
def test_the_snapshot_is_told_of_every_row_that_passes_it(mysql: bool) -> None:
    """The SELECT saw neither: their rows are newer in the topic than in the chunk, or gone."""
    story = Story(mysql=mysql, snapshot=True)

    def telling() -> Iterator[Events]:
        yield []
        assert story.reads == 1
        yield story.transaction([(1, 0, 1)])
        story.answer([(1, 0), (2, 0), (3, 0), (4, 0)], low=0)
        yield story.transaction([(2, 0, None)])
        yield story.transaction([(3, 0, 1)])

    story.notify(telling())
    assert story.rows_left() == {1: 1, 3: 1, 4: 0}


@BOTH
def test_a_key_move_tells_the_snapshot_both_keys(mysql: bool) -> None:
    story = Story(mysql=mysql, snapshot=True)

    def telling() -> Iterator[Events]:
        yield []
        yield story.moved(1, 2, version=7)
        story.answer([(1, 0), (2, 0), (3, 0)], low=0)
        yield story.transaction([(3, 0, 1)])

    story.notify(telling())
    assert story.rows_left() == {2: 7, 3: 1}


@BOTH
def test_a_snapshot_that_begins_later_does_not_show_what_was_delivered_before(mysql: bool) -> None:
    """It waits until the stream has passed what the topic holds; the SELECT does not see yet what that
    brought."""
    story = Story(mysql=mysql, snapshot=True)
    events = [story.transaction([(1, 0, 1)]), story.transaction([(2, 0, 1)])]
    story.ceiling = (0, NUMBER, story.written[1].start + 1, DEFINITION_ROW)

    def telling() -> Iterator[Events]:
        yield from events
        assert story.reads == 1
        story.answer([(1, 1), (2, 0), (3, 0)], low=1)
        yield []
        assert story.reads == 2, "LOW is behind the chunk's begin: it is read again"
        story.answer([(1, 1), (2, 1), (3, 0)], low=2)
        yield []

    story.notify(telling())
    assert story.rows_left() == {1: 1, 2: 1, 3: 0}


@BOTH
def test_rows_of_before_a_truncate_do_not_come_back_with_the_snapshot(mysql: bool) -> None:
    story = Story(mysql=mysql, snapshot=True)

    def telling() -> Iterator[Events]:
        yield []
        events = [*story.transaction([(3, None, 1)]), *story.truncate(), *story.transaction([(4, None, 1)])]
        story.answer([(1, 0), (2, 0)], low=0)
        yield events
        assert story.reads == 2, "what was read is of before the statement"
        story.answer([(1, 0), (2, 0), (3, 1)], low=1)
        yield []
        assert story.reads == 3, "the SELECT does not see the statement yet"
        story.answer([(4, 1)], low=3)
        yield []

    story.notify(telling())
    assert story.rows_left() == {4: 1}


@BOTH
def test_an_answer_that_comes_after_it_was_asked_anew_is_not_taken(mysql: bool) -> None:
    story = Story(mysql=mysql, snapshot=True)

    def telling() -> Iterator[Events]:
        yield []
        yield story.truncate()
        assert story.reads == 2
        story.answer([(1, 0), (2, 0)], low=1, request=0)
        yield []
        assert story.broker.events()[-1].op == "t"
        story.answer([], low=1)
        yield []

    story.notify(telling())
    assert story.rows_left() == {}
    assert [event.op for event in story.broker.events()] == ["t", "m"]


# --- where the snapshot goes on


def _marked(story: Story, upto: int | None) -> None:
    chunk = Chunk(
        number=3, after=(2,), upto=None if upto is None else (upto,), first_row=0, rows=0, last=upto is None
    )
    story.tails = {("bank", "acct"): TableTail(markers=[ChunkMarker(chunk, DEFINED, 1, 0)])}


@pytest.mark.parametrize(
    ("fresh", "upto", "after"),
    [(False, 5, [(5,)]), (False, None, []), (True, 5, [None]), (True, None, [None])],
)
def test_a_snapshot_goes_on_behind_its_last_chunk_unless_all_begins_anew(
    fresh: bool, upto: int | None, after: list[tuple[int] | None]
) -> None:
    story = Story(mysql=False, snapshot=True)
    story.fresh = fresh
    _marked(story, upto)
    story.notify(iter([[], story.transaction([(1, None, 1)])]))
    assert [request.after for reader in story.readers for request in reader.asked] == after
    assert story.broker.watermarks()[-1].snapshot_pending == (("bank.acct",) if after else ())


# --- stops


@BOTH
def test_nothing_of_a_table_that_has_stopped_is_published_also_not_what_was_read_of_it(mysql: bool) -> None:
    story = Story(mysql=mysql, snapshot=True)

    def telling() -> Iterator[Events]:
        yield []
        assert story.reads == 1
        yield story.not_whole()
        story.answer([(1, 0), (2, 0)], low=0)
        yield story.transaction([(3, None, 1)])
        story.written[-1] = story.written[-1]._replace(rows=0)
        yield []

    story.notify(telling())
    (event,) = story.broker.events()
    assert event.stop is not None
    assert "binlog_row_image" in event.stop.remedy + event.stop.reason
    first = next(each.record for each in story.broker.stored if each.record.pos > 4)
    assert "bank.acct" in first.stops, "stored with the position that moves past the cause"


@BOTH
@pytest.mark.parametrize("engine", [None, "Aria"])
def test_rows_that_were_rolled_back_stop_a_table_that_keeps_them(mysql: bool, engine: str | None) -> None:
    story = Story(mysql=mysql)
    if engine is not None:
        story.engines["bank", "acct"] = engine
    rows = 0 if engine else 1

    def telling() -> Iterator[Events]:
        yield story.rolled_back([(1, None, 1)])
        yield story.transaction([(2, None, 1)])
        story.written[-1] = story.written[-1]._replace(rows=rows)

    story.notify(telling())
    assert [(event.op, event.stop is not None) for event in story.broker.events()] == [
        ("m", True) if engine else ("c", False)
    ]


# --- watermarks, and the log's end


@BOTH
def test_a_watermark_says_what_was_written_since_the_one_before(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        for number in range(4):
            story.tick()
            yield story.transaction([(number, None, 1)], [(10 + number, None, 1)]) if number != 2 else []
        story.tick()
        yield []

    story.notify(telling())
    reported = [mark.topics for mark in story.broker.watermarks() if mark.topics]
    assert reported == [{TOPIC: 1}, {TOPIC: 3}, {TOPIC: 5}], "and nothing twice"
    idle = [mark.idle for mark in story.broker.watermarks()]
    assert idle[-1] is False, "the last one of all is a farewell"
    assert True in idle
    last = story.broker.watermarks()[-1]
    assert (last.position[1:3], last.ended is not None) == ((NUMBER, story.written[-1].end), True)


@BOTH
def test_a_snapshot_is_called_complete_once_kafka_has_all_of_it(mysql: bool) -> None:
    """What was sent before is acknowledged while the last chunk is not."""
    story = Story(mysql=mysql, snapshot=True)

    def telling() -> Iterator[Events]:
        yield from _the_snapshot_is_unacknowledged(story)
        assert len(story.broker.events()) == 3, "the last chunk is on its way"
        story.broker.due = 3  # the first watermark and position, and the row
        yield []
        yield []
        mark = story.broker.watermarks()[-1]
        assert (mark.position[1:3], mark.snapshot_pending) == ((NUMBER, story.written[0].end), ("bank.acct",))
        assert story.broker.stored[-1].record.snapshot_done == ()

    story.notify(telling())
    assert story.broker.watermarks()[-1].snapshot_pending == ()
    assert story.broker.stored[-1].record.snapshot_done == ("bank.acct",)


@BOTH
def test_a_log_that_moves_without_a_transaction_is_followed(mysql: bool) -> None:
    """The source is idle, or only rotates its log: an old stored position would be deleted with its file, and
    no start would be possible."""
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        story.log.add(PREVIOUS_GTIDS, bytes(8))
        yield story.log.events[-1:]
        story.tick()
        yield []
        yield []
        assert stored(story)[-1] == story.log.pos

    story.notify(telling())
    assert stored(story)[-1] == story.log.pos > story.written[-1].end


def test_an_idle_capture_asks_the_server_once_a_second() -> None:
    story = Story(mysql=False)
    asked: list[float] = []

    def log_end() -> tuple[str, int]:
        asked.append(story.now)
        return story.point

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        yield []
        story.log_end = log_end
        for _ in range(6):
            story.now += 0.5
            yield []
        yield []

    story.notify(telling())
    assert [round(at - asked[0]) for at in asked] == [0, 1, 2]


def test_the_time_of_a_source_is_its_servers_and_reached() -> None:
    """Capture's clock may be ahead, and transactions under way while nothing arrives."""
    story = Story(mysql=False)
    commit_ms = 1_700_000_000_000

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        for ahead, later_ms in ((0, 50), (200, 60), (0, 70), (0, 0)):
            story.log_end = lambda ahead=ahead: (FILE, story.log.pos + ahead)  # type: ignore[misc]
            story.source_ms = commit_ms + later_ms
            story.now += 1.1
            yield []
        story.log_end = lambda: story.point

    story.notify(telling())
    seen = [(each.commit_ts_ms - commit_ms, each.idle) for each in story.broker.watermarks()]
    assert [each for each, _ in itertools.groupby(seen)] == [
        (0, False), (50, True), (50, False), (70, True), (70, False),
    ]  # fmt: skip
    assert {record.ts_ms - commit_ms for record, *_ in story.broker.stored} == {0}, "a restart begins with it"


@pytest.mark.parametrize(("end", "shorter"), [(0, False), (-1, True), (1, False), (None, True)])
def test_an_idle_capture_looks_whether_the_log_is_as_long_as_what_it_read(
    end: int | None, shorter: bool
) -> None:
    """A server that is reset goes on sending heartbeats from the file that it has deleted."""
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        yield []
        story.log_end = lambda: None if end is None else (FILE, story.log.pos + end)
        story.now += 11
        yield []
        yield []

    if shorter:
        with pytest.raises(TransientSourceError, match="the log was read up to"):
            story.notify(telling())
    else:
        story.notify(telling())
