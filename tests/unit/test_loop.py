"""The loop apart from the events that it handles most often: which tables it captures, what stops them, what
it waits for, and a log that is used up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_table
from structlog.testing import capture_logs

from producer.definitions.requests import ProvenDefinition, UnprovenDefinition
from producer.errors import TableStoppedError
from producer.kafka.event_limits import EventLimits
from producer.loop.table_stops import TableChoice
from producer.ports import Ports
from producer.sources.protocols import PublishedRows
from producer.start.started import StartedCapture
from producer.stops import StopCause, StoppedTable
from schemas.problems import Problem
from schemas.table.names import EXACT
from schemas.wire.codec import decode_event
from tests.kits.capture_story import FILE, NUMBER, TOPIC, Events, Story

ACCT = ("bank", "acct")
DROPPED = TableStoppedError(frozenset([ACCT]), "dropped", "bank.acct is gone", "copy it")


def a_stop(pos: int = 4) -> StoppedTable:
    cause = StopCause(0, FILE, NUMBER, pos, 7)
    return StoppedTable(cause.build_table_stop(ACCT, DROPPED), place=cause.build_stop_position())


def stopped(story: Story) -> list[bool]:
    """Of each event of the topic whether it is a stop."""
    return [each.stop is not None for each in story.broker.events()]


def stored(story: Story) -> int:
    return story.broker.stored[-1].record.pos


# --- which tables


def test_rows_are_captured_of_what_is_selected_and_neither_left_out_nor_stopped_nor_waits() -> None:
    found: list[StartedCapture] = []
    story = Story(mysql=False)
    story.found = found.append
    story.notify(iter([[]]))
    (started,) = found
    started.errors["bank", "left_out"] = Problem("bank.left_out has no key", "add one")
    started.late["bank", "late"] = (NUMBER, 4)
    started.captured.stopped["bank", "stopped"] = a_stop()
    captured = TableChoice(["bank.*"], EXACT, started).is_captured
    names = [
        ACCT,
        ("bank", "new"),
        ("other", "new"),
        *(("bank", each) for each in ("left_out", "late", "stopped")),
    ]
    assert [name for name in names if captured(*name)] == [ACCT, ("bank", "new")]
    started.captured.tables[ACCT].ignored = "it is gone"
    assert not captured(*ACCT)


def _unknown(started: StartedCapture) -> None:
    started.captured.tables.clear()
    started.captured.known.clear()
    started.captured.topics.clear()


def test_a_table_whose_first_rows_prove_nothing_waits_and_its_snapshot_brings_them() -> None:
    story = Story(mysql=False, snapshot=True)
    story.found = _unknown
    first = story.transaction([(1, None, 1)])
    end = story.written[0].end
    story.proof = lambda place: (
        ProvenDefinition(story.made.table, None) if place.pos > end else UnprovenDefinition((NUMBER, end))
    )
    story.judge_topic = story.judge_positions = lambda: None  # type: ignore[method-assign]  # the snapshot has the first row

    def telling() -> Iterator[Events]:
        yield first
        assert story.broker.events() == [], "it waits"
        yield story.statement("CREATE TABLE other.t (id INT)")
        yield []
        assert story.reads == 1
        story.answer([(1, 1)], low=2)
        yield story.transaction([(2, None, 1)])
        yield []

    story.notify(telling())
    assert story.rows_left() == {1: 1, 2: 1}
    assert not any(stopped(story))


def test_rows_behind_a_statement_in_one_transaction_stand_above_it() -> None:
    """CREATE … SELECT of MariaDB: both have the place where the transaction begins, and readers drop what
    does not rise."""
    story = Story(mysql=False)
    story.found = _unknown
    story.judge_topic = lambda: None  # type: ignore[method-assign]  # it begins without a predecessor

    def telling() -> Iterator[Events]:
        first = len(story.log.events)
        story.log.mariadb_gtid(0)
        story.log.query("CREATE TABLE acct (id BIGINT PRIMARY KEY, c1 INT)")
        start = len(story.log.events)
        story.transaction([(1, None, 1)], [(2, None, 1)])
        del story.log.events[start]  # its own GTID
        yield story.log.events[first:]

    story.notify(telling())
    positions = [each.source.position for each in story.broker.events()]
    assert [each.op for each in story.broker.events()] == ["m", "c", "c"]
    assert positions == sorted(set(positions))


def test_what_a_statement_wrote_is_in_kafka_before_the_log_is_read_further() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield []
        story.broker.holding = True
        yield story.truncate()
        assert story.broker.acknowledged.get(TOPIC) == 1

    story.notify(telling())


class ToldToStop(Story):
    """It is told to stop when it has taken a statement, or rows."""

    def _open_log(self, *arguments: Any) -> Any:
        log = super()._open_log(*arguments)
        counted = log.record_position_count

        def notified(rows: int) -> None:
            counted(rows)
            self.stop.set()

        log.record_position_count = notified
        return log


def test_told_to_stop_it_leaves_a_transaction_as_it_is_but_not_a_statement_without_its_end() -> None:
    """The statement is in Kafka: if the record did not cover it, the next start would judge it once more."""
    story = ToldToStop(mysql=False)
    story.notify(iter([story.truncate()]))
    assert [each.op for each in story.broker.events()] == ["t"]
    assert stored(story) == story.written[0].end
    story = ToldToStop(mysql=False)
    story.notify(iter([story.transaction([(1, None, 1)])]))
    assert story.broker.events() == []
    assert stored(story) == 4


def test_what_a_tool_does_to_its_shadow_table_is_in_the_record() -> None:
    """gh-ost's swap follows from its statements before: a start in between that did not know of them would
    stop the table."""
    story = Story(mysql=False)
    story.notify(iter([story.statement("CREATE /* gh-ost */ TABLE `bank`.`_acct_gho` LIKE `bank`.`acct`")]))
    assert [each.name for each in story.broker.stored[-1].record.shadows] == ["_acct_gho"]


def test_a_statement_that_changes_no_rows_is_logged_whole() -> None:
    story = Story(mysql=False)
    with capture_logs() as logs:
        story.notify(iter([story.statement("ALTER TABLE acct COMMENT 'shown'")]))
        reported = [each["sql"] for each in logs if each["event"] == "statement read"]
    assert reported == ["ALTER TABLE acct COMMENT 'shown'"]


# --- stops


def test_a_stop_is_in_the_topic_and_in_a_record_at_the_end_of_its_transaction() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield []
        yield story.not_whole()
        assert stopped(story) == [True]
        (record,) = [each.record for each in story.broker.stored if each.record.stops]
        assert record.pos == story.written[0].end

    story.notify(telling())


def test_a_stop_of_a_start_is_said_although_the_source_is_idle() -> None:
    story = Story(mysql=False)
    story.found = lambda started: started.captured.stop_table(ACCT, a_stop())

    def telling() -> Iterator[Events]:
        yield []
        assert stopped(story) == [True]

    story.notify(telling())


class Unfollowed(Story):
    """Behind each change its log says that it cannot follow the table."""

    def _open_log(self, *arguments: Any) -> Any:
        log = super()._open_log(*arguments)
        read = log.read_changes

        def reading(timeout: float) -> Iterator[Any]:
            for change in read(timeout):
                yield change
                yield DROPPED

        log.read_changes = reading  # type: ignore[method-assign]
        return log


def test_a_table_that_the_log_cannot_follow_stops_alone() -> None:
    """An XA transaction that was prepared before capture began: nobody knows its rows."""
    story = Unfollowed(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        yield story.transaction([(2, None, 1)])
        story.written[-1] = story.written[-1]._replace(rows=0)

    story.notify(telling())
    assert stopped(story) == [False, True]


def test_a_table_stops_where_a_row_of_its_snapshot_is_larger_than_kafka_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse_chunks(_limits: EventLimits, _topic: str, records: list[Any]) -> tuple[int, int]:
        return (1, 100) if len(records) == 1 else (0, 0)

    monkeypatch.setattr(EventLimits, "count_fitting", refuse_chunks)
    story = Story(mysql=False, snapshot=True)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        story.answer([(1, 1)], low=1)
        yield []
        assert stopped(story) == [False, True]
        assert story.broker.stored[-1].record.stops["bank.acct"].cause == "size"

    story.notify(telling())


# --- what it waits for, and says meanwhile


def test_it_waits_for_the_log_but_not_with_an_answer_at_hand() -> None:
    story = Story(mysql=False, snapshot=True)

    def telling() -> Iterator[Events]:
        yield []
        story.answer([(key, 0) for key in range(2000)], low=0)
        yield []
        yield []
        story.answer([], low=0)
        yield []
        yield []

    story.notify(telling())
    reading, idle = story.waited[0], story.waited[-1]
    assert 0 < reading < idle
    assert story.waited == [reading, reading, 0, reading, idle, idle]
    assert story.closed


def test_it_says_that_it_is_alive_while_something_keeps_it_waiting() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield []
        yield story.transaction([(1, None, 1)])
        before = len(story.broker.watermarks())
        for _ in range(3):
            story.tick()
            story.loop.write_heartbeat()
        yield []
        assert len(story.broker.watermarks()) > before

    story.notify(telling())


def large(story: Story) -> Events:
    return story.transaction(*([(1 + 500 * part + n, None, 1) for n in range(500)] for part in range(12)))


def test_it_says_that_it_is_alive_while_a_large_transaction_is_sent() -> None:
    story = Story(mysql=False)
    produce, reported = story.broker.produce_batch, list[int]()

    def slowly(topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        if topic == TOPIC:
            story.tick()
            reported.append(len(story.broker.watermarks()))
        return produce(topic, messages, partition)

    story.broker.produce_batch = slowly  # type: ignore[method-assign]
    story.notify(iter([[], large(story), []]))
    assert len(reported) > 2
    assert reported[-1] > reported[0]


# --- a log that is used up


UNUSED: Any = object()


class UsedUp:
    """A log whose rows are deleted once Kafka has them: what it is told, in order."""

    def __init__(self, story: Story, log: Any) -> None:
        self.story, self.log = story, log
        self.outstanding = False
        self.unrecorded = False
        self.brings = True
        self.stop: TableStoppedError | None = None
        self.notified: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def read_changes(self, timeout: float) -> Iterator[Any]:
        self.notified.append(("read", None))
        for change in self.log.read_changes(timeout):
            self.outstanding = self.brings
            yield change

    def learn_published(self, published: PublishedRows) -> None:
        self.notified.append(("learn", published))

    def purge_published(self) -> Iterator[TableStoppedError]:
        acknowledged = self.story.broker.acknowledged.get(TOPIC, 0)
        self.notified.append(
            ("purge", (acknowledged, [each.record.pos for each in self.story.broker.stored]))
        )
        self.outstanding = False
        if self.stop is not None:
            yield self.stop

    def confirm_recorded(self) -> None:
        self.notified.append(("recorded", stored(self.story)))
        self.unrecorded = False


class UsedUpStory(Story):
    used_up: UsedUp

    def _open_log(self, *arguments: Any) -> Any:
        self.used_up = UsedUp(self, super()._open_log(*arguments))
        return self.used_up

    def _ports(self, writer: Any) -> Ports:
        ports = super()._ports(writer)
        ports.store.is_superseded = lambda *_: False  # type: ignore[method-assign]
        return replace(ports, reader=UNUSED)


def test_rows_of_a_log_that_is_used_up_are_deleted_once_kafka_has_them_and_before_a_record_passes_them() -> (
    None
):
    story = UsedUpStory(mysql=False)
    published = PublishedRows({ACCT: [("a", 1)]}, 9, True, {}, ())

    def found(started: StartedCapture) -> None:
        started.published = published

    story.found = found

    def telling() -> Iterator[Events]:
        yield []
        story.broker.holding = True
        yield story.transaction([(1, None, 1)])
        assert [each for each in story.used_up.notified if each[0] == "purge"] == [("purge", (1, [4]))]

    story.notify(telling())
    assert story.used_up.notified[:2] == [("learn", published), ("read", None)]


def test_a_table_of_which_a_row_cannot_be_deleted_stops() -> None:
    story = UsedUpStory(mysql=False)

    def telling() -> Iterator[Events]:
        yield []
        story.used_up.stop = DROPPED
        yield story.transaction([(1, None, 1)])
        assert stopped(story) == [False, True]

    story.notify(telling())


def test_a_table_that_waits_for_its_record_is_read_on_when_kafka_has_that() -> None:
    story = UsedUpStory(mysql=False)

    def telling() -> Iterator[Events]:
        yield []
        story.broker.holding, story.used_up.unrecorded, story.used_up.brings = True, True, False
        yield story.transaction([(1, None, 1)])
        end = story.written[0].end
        assert [each for each in story.used_up.notified if each[0] == "recorded"] == [("recorded", end)]
        assert not story.used_up.unrecorded

    story.notify(telling())


# --- positions of rows


def row_of_another_table(*, whole: bool) -> tuple[str, ...]:
    """Return the positions of the events of a table whose row follows one of `acct` in a transaction."""
    story = Story(mysql=False)
    other = replace_table(story.made.table, name="bcct")
    story.prove_definition = lambda _place, _name: ProvenDefinition(other, None)  # type: ignore[method-assign]
    story.judge_positions = lambda: None  # type: ignore[method-assign]  # it counts the rows of one table
    events = story.transaction([(1, None, 1)])
    *_, table_map, rows, end = events

    def of_other(body: bytes) -> bytes:
        return bytes([body[0] ^ 1]) + body[1:].replace(b"acct", b"bcct")

    more = [each._replace(body=of_other(each.body)) for each in (table_map, rows)]
    if not whole:
        body = bytearray(rows.body)
        body[11] &= 1  # of the columns that are there
        rows = rows._replace(body=bytes(body))
    story.notify(iter([[*events[:-2], rows, *more, end]]))
    assert stopped(story) == [not whole]
    return tuple(
        str(decode_event(each).source.position) for each in story.broker.topics["rowlock.b1.bank.bcct"]
    )


def test_rows_stand_where_they_would_if_no_table_had_stopped_before_them() -> None:
    """The next start reads them again, and does not meet the stop: readers know what they have by its
    position alone."""
    assert row_of_another_table(whole=False) == row_of_another_table(whole=True)
