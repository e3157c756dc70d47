"""Copies in a run of capture in one thread: what its topic has, what is stored, and what the reader of chunks
receives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from producer.copies.states import DAY_MS
from producer.definitions.requests import ProvenDefinition, UnprovenDefinition
from producer.sources.chunk_data import ChunkRefused
from schemas.problems import Problem, decode_problem
from schemas.wire.copies import CopyRequest, CopyState, RepairLimits
from schemas.wire.event import EventEnvelope as RowEvent
from schemas.wire.position import parse_binlog_file_number
from tests.kits import capture_story
from tests.kits.capture_story import FILE, NUMBER, Events, Story

BOTH = pytest.mark.parametrize("mysql", [False, True])


def asked(number: int = 1, **more: object) -> CopyRequest:
    fields = {"id": f"r{number}", "db": "bank", "table": "acct", "by": "operator", "requested_ms": 7} | more
    return CopyRequest(**fields)  # type: ignore[arg-type]


def state(story: Story) -> CopyState:
    return story.broker.stored[-1].record.copies["bank.acct"]


def begins(story: Story) -> list[RowEvent]:
    return [each for each in story.broker.events() if each.definition is not None and each.copy is not None]


def markers(story: Story) -> list[RowEvent]:
    return [each for each in story.broker.events() if each.chunk is not None]


@BOTH
def test_a_copy_beside_live_changes(mysql: bool) -> None:
    story = Story(mysql=mysql)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1), (2, None, 1), (3, None, 1)])
        story.requests.append(asked())
        story.tick()
        yield []
        yield []
        assert story.reads == 1
        assert state(story).phase == "running"
        yield story.transaction([(2, 1, 2)])
        story.answer([(1, 1), (2, 1), (3, 1)], low=1)
        yield story.transaction([(4, None, 2)])
        yield []
        story.tick()
        yield []

    story.notify(telling())
    (begin,), (marker,) = begins(story), markers(story)
    events = story.broker.events()
    assert begin.copy is not None
    assert (begin.copy.id, begin.copy.partial) == ("r1", False)
    assert marker.copy is not None
    at = events.index(begin)
    assert (marker.copy.id, marker.copy.begins, marker.copy.since) == ("r1", at, at)
    assert marker.chunk is not None
    assert (marker.chunk.number, marker.chunk.repeated, marker.chunk.last) == (1, True, True)
    rows = [each.after["id"] for each in events if each.op == "r" and each.after is not None]
    assert rows == [1, 3], "2 was changed meanwhile"
    now = state(story)
    assert (now.phase, now.offset, now.rows, now.estimate) == ("done", at, 2, 7)
    assert story.broker.stored[-1].record.copy_requests == 1
    assert story.broker.stored[-1].record.anchors["bank.acct"].begin == at
    assert story.broker.watermarks()[-1].copies == {"bank.acct": now}
    assert story.broker.watermarks()[-1].snapshot_pending == ()


def test_on_an_idle_source_a_copy_follows_the_other() -> None:
    """Every event has the same place of the log: only the rows of the positions rise, which the story's judge
    checks."""
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        for number in range(3):
            story.requests.append(asked(number))
            for _ in range(3):
                story.tick()
                yield []
            story.answer([(1, 0)], low=0)
            yield []
            story.tick()
            yield []

    story.notify(telling())
    assert [each.copy.id for each in begins(story) if each.copy] == ["r0", "r1", "r2"]
    assert len({each.source.pos for each in story.broker.events()}) == 1
    assert state(story).phase == "done"


def test_a_record_forgets_a_copy_a_day_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [10 * DAY_MS]
    monkeypatch.setattr(capture_story, "read_clock_ms", lambda: clock[0])
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        for _ in range(3):
            story.tick()
            yield []
        story.answer([(1, 0)], low=0)
        yield []
        for later in (0, DAY_MS - 1, 1):
            clock[0] += later
            for _ in range(4):
                story.tick()
                yield []
            kept.append([each.phase for each in story.broker.stored[-1].record.copies.values()])

    kept: list[list[str]] = []
    story.notify(telling())
    assert kept == [["done"], ["done"], []]


def test_a_copy_begins_between_two_transactions_that_are_at_hand() -> None:
    """A log that never ends keeps no copy waiting."""
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        story.requests.append(asked())
        story.tick()
        yield []
        first = story.transaction([(2, None, 1)])
        yield first + story.transaction([(3, None, 1)])
        yield []

    story.notify(telling())
    assert [each.op for each in story.broker.events()] == ["c", "c", "m", "c"]


def test_a_chunk_is_sent_where_the_log_is_as_far_as_it_although_more_of_the_log_is_at_hand() -> None:
    """A log that never ends keeps no copy waiting."""
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.transaction([(1, None, 1)])
        story.requests.append(asked())
        story.tick()
        yield []
        yield []
        first = story.transaction([(2, None, 1)])
        story.answer([(1, 1)], low=1)
        yield first + story.transaction([(3, None, 1)])
        yield []

    story.notify(telling())
    rows = [(each.op, each.after["id"]) for each in story.broker.events() if each.after is not None]
    assert rows == [("c", 1), ("c", 2), ("r", 1), ("c", 3)]


def test_a_begin_is_acknowledged_before_a_record_says_that_the_copy_runs() -> None:
    story = Story(mysql=False)
    story.broker.holding = True

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        story.tick()
        yield []
        yield []

    story.notify(telling())
    for record, acknowledged, _ in story.broker.stored:
        if record.copies and record.copies["bank.acct"].phase == "running":
            assert any(each.copy is not None for each in acknowledged)
            return
    pytest.fail("no record says that it runs")


def test_a_stop_that_is_healed_by_a_copy() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.not_whole()
        yield []
        assert "bank.acct" in story.broker.stored[-1].record.stops
        story.requests.append(asked())
        story.tick()
        yield []
        yield []
        assert "bank.acct" not in story.broker.stored[-1].record.stops
        assert state(story).ended_stop == "log"
        yield story.transaction([(5, None, 3)])
        story.answer([(1, 1)], low=1)
        yield []
        story.tick()
        yield []

    story.notify(telling())
    assert [each.stop is not None for each in story.broker.events()][:2] == [True, False]
    assert story.rows_left() == {1: 1, 5: 3}
    assert (state(story).phase, state(story).ended_stop) == ("done", "")


def made_again(story: Story) -> Iterator[Events]:
    """The table is dropped, and made again as it was."""
    yield story.statement("DROP TABLE `acct`")
    yield []
    yield story.statement("CREATE TABLE acct (id BIGINT PRIMARY KEY, version INT)")
    story.tick()
    yield []
    yield []


@BOTH
def test_a_dropped_table_that_is_made_again_is_copied(mysql: bool) -> None:
    story = Story(mysql=mysql)

    story.notify(made_again(story))
    assert state(story).id.startswith("made again at ")
    assert (state(story).phase, begins(story)[-1].copy is not None) == ("running", True)
    assert "bank.acct" not in story.broker.stored[-1].record.stops


@pytest.mark.parametrize("limits", [None, RepairLimits(max_rows=6, max_per_day=3)])
def test_a_table_that_is_made_again_waits_for_a_person_where_repair_says_so(
    limits: RepairLimits | None,
) -> None:
    story = Story(mysql=False)
    story.repair = limits

    story.notify(made_again(story))
    assert (state(story).phase, begins(story)) == ("refused", [])
    assert "rowlock copy bank.acct" in state(story).reason
    assert ("(about 7 rows)" in state(story).reason) == (limits is not None)
    assert story.broker.stored[-1].record.stops["bank.acct"].cause == "dropped"


def test_a_copy_that_is_taken_back_stops_the_table_again() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.not_whole()
        story.requests.append(asked())
        story.tick()
        yield []
        yield []
        assert story.reads == 1
        story.requests.append(asked(2, cancel=True))
        story.tick()
        yield []
        yield []
        story.answer([(1, 1)], low=1)
        yield story.transaction([(5, None, 3)])
        story.written[-1] = story.written[-1]._replace(rows=0)
        yield []

    story.notify(telling())
    assert [event.op for event in story.broker.events()] == ["m", "m", "m"]
    stop = story.broker.events()[-1].stop
    assert stop is not None
    assert (stop.cause, "is stopped again" in stop.reason) == ("log", True)
    record = story.broker.stored[-1].record
    assert (record.copies["bank.acct"].phase, list(record.stops)) == ("cancelled", ["bank.acct"])


def test_a_copy_begins_above_what_a_predecessor_has_written() -> None:
    story = Story(mysql=False)
    story.ceiling = (0, NUMBER, 4, 0)  # the first transaction, which is still to come

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        story.tick()
        yield []
        yield []
        assert not begins(story), "readers would drop it"
        yield story.transaction([(1, None, 1)])
        yield []

    story.judge_topic = lambda: None  # type: ignore[method-assign]  # it begins with what the predecessor has written
    story.notify(telling())
    (begin,) = begins(story)
    assert begin.source.position > story.ceiling


def test_a_definition_that_is_not_proven_is_waited_for() -> None:
    story = Story(mysql=False)
    story.proof = lambda place: (
        ProvenDefinition(story.made.table, None)
        if place.pos > 100
        else UnprovenDefinition((parse_binlog_file_number(FILE), 100))
    )

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        story.tick()
        yield []
        yield []
        assert not begins(story)
        yield story.transaction([(1, None, 1)])
        yield []

    story.notify(telling())
    assert len(begins(story)) == 1


@pytest.mark.parametrize(
    ("proof", "reason"), [(ProvenDefinition(None, None), "does not exist"), (ProvenDefinition(None, None), "after a DROP create it again, or exclude the table (append"), (ProvenDefinition(None, Problem("it is odd", "mend it")), "it is odd: mend it")]  # noqa: E501
)  # fmt: skip
def test_what_is_not_there_or_unfit_is_refused(proof: ProvenDefinition, reason: str) -> None:
    story = Story(mysql=False)
    story.proof = lambda _place: proof

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        story.tick()
        yield []
        yield story.transaction([(1, None, 1)])
        story.tick()
        yield []

    story.notify(telling())
    assert (state(story).phase, reason in str(decode_problem(state(story).reason))) == ("refused", True)
    assert not begins(story)


@pytest.mark.parametrize("table", [("other", "acct")])
def test_a_table_that_is_not_selected_is_refused(table: tuple[str, str]) -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        story.requests.append(asked(db=table[0], table=table[1]))
        story.tick()
        yield []
        yield []
        story.tick()
        yield []

    story.notify(telling())
    found = story.broker.stored[-1].record.copies[".".join(table)]
    assert (found.phase, "not selected" in found.reason) == ("refused", True)


def test_a_part_of_a_table_is_copied_at_its_pace() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        story.requests.append(asked(where="c1 > 0", max_rows_per_second=2))
        story.tick()
        yield []
        yield []
        (reader,) = story.readers
        assert (reader.asked[0].limit, reader.asked[0].where) == (2, "c1 > 0")
        story.answer([(1, 1), (2, 1)], low=0)
        before = story.now
        yield []
        assert reader.asked[1].not_before == before + 1.0
        assert (reader.asked[1].after, reader.asked[1].where) == ((2,), "c1 > 0")

    story.notify(telling())
    assert [each.copy.partial for each in (*begins(story), *markers(story)) if each.copy] == [True, True]


def test_the_rate_of_a_copy_changes_while_it_runs() -> None:
    """A chunk that was asked for before keeps its size: fewer rows than the new one's are not the table's
    last."""
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        story.requests.append(asked(max_rows_per_second=2))
        story.tick()
        yield []
        yield []
        (reader,) = story.readers
        waits, key = [], 0
        for number, rate in enumerate((3, None, 1), 2):
            story.requests.append(asked(number, rate_only=True, max_rows_per_second=rate))
            story.tick()
            yield []
            rows = reader.asked[-1].limit
            story.answer([(key + n, 1) for n in range(1, rows + 1)], low=0)
            key += rows
            yield []
            waits.append(reader.asked[-1].not_before - story.now)
        assert [each.limit for each in reader.asked] == [2, 3, 2000, 1]
        assert [each.after for each in reader.asked] == [None, (2,), (5,), (2005,)]
        assert waits == pytest.approx([2 / 3, 0.0, 1.0]), "the last one was read before the rate fell"

    story.notify(telling())
    assert len(begins(story)) == 1
    assert (state(story).id, state(story).max_rows_per_second) == ("r1", 1)


def test_a_condition_that_the_source_does_not_take_ends_the_copy_alone() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        story.requests.append(asked(where="nonsense > 0"))
        story.tick()
        yield []
        yield []
        (reader,) = story.readers
        reader.answers.append(ChunkRefused(reader.asked[0].request, "Unknown column 'nonsense'"))
        yield []
        yield story.transaction([(1, None, 1)])
        story.tick()
        yield []

    story.notify(telling())
    assert (state(story).phase, "Unknown column 'nonsense'" in state(story).reason) == ("refused", True)
    assert story.rows_left() == {1: 1}
