"""Where copies begin beside the log: which one, above what, and what the table's changes become behind it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from producer.definitions.requests import DefinitionPlace, Proof, ProvenDefinition, UnprovenDefinition
from producer.errors import SnapshotFinishedError
from producer.loop.copy_begins import CopyStarter
from producer.snapshot.chunk_sender import ChunkSender
from producer.start.started import StartedCapture
from producer.start.topic_recovery import ChunkMarker, TableTail
from producer.tables import BegunCopy, TableName
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.wire.codec import decode_event
from schemas.wire.copies import CopyMark, CopyRequest, CopyState, RepairLimits
from schemas.wire.event import Chunk
from tests.kits.capture_story import DEFINED, FILE, NUMBER, UNUSED, Events, Story

ACCT = ("bank", "acct")


def asked(number: int = 1, **more: object) -> CopyRequest:
    fields = {"id": f"r{number}", "db": "bank", "table": "acct", "by": "operator", "requested_ms": 7} | more
    return CopyRequest(**fields)  # type: ignore[arg-type]


def state(story: Story, table: str = "acct") -> CopyState:
    return story.broker.stored[-1].record.copies[f"bank.{table}"]


def begins(story: Story, table: str = "acct") -> list[str]:
    """The ids of the copies that began in a table's topic."""
    events = map(decode_event, story.broker.topics.get(f"rowlock.b1.bank.{table}", []))
    return [each.copy.id for each in events if each.definition is not None and each.copy is not None]


def idle(story: Story, reads: int = 3) -> Iterator[Events]:
    for _ in range(reads):
        story.tick()
        yield []


def of_another_key(*, snapshot: bool = True) -> Story:
    """A table whose key has changed in the middle of its snapshot: the chunks in its topic are of no use."""
    story = Story(mysql=False, snapshot=snapshot)
    story.fresh = False
    chunk = Chunk(number=3, after=(2, 2), upto=(5, 5), first_row=0, rows=0, last=False)
    story.tails = {ACCT: TableTail(markers=[ChunkMarker(chunk, DEFINED, 1, 0)])}
    return story


def test_a_snapshot_of_another_key_begins_as_a_copy_and_one_that_is_asked_for_behind_it() -> None:
    """Nobody has to ask for the first, and its rows are not left out."""
    story = of_another_key()

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        yield from idle(story)
        assert [each[:8] for each in begins(story)] == ["snapshot"]
        assert (story.reads, state(story).phase) == (1, "waiting")
        story.answer([(1, 0)], low=0)
        yield from idle(story)
        assert [each[:8] for each in begins(story)] == ["snapshot", "r1"]

    story.notify(telling())
    assert story.rows_left() == {1: 0}


def test_a_copy_stands_above_what_this_run_has_sent() -> None:
    found: list[StartedCapture] = []
    story = Story(mysql=False)
    story.found = found.append
    story.notify(iter([[]]))
    (started,) = found
    ports: Any = SimpleNamespace(writer=UNUSED, clock=SimpleNamespace(now_ms=UNUSED))
    snapshots: Any = SimpleNamespace(sender=ChunkSender(started, UNUSED, UNUSED))
    begin = CopyStarter(started, ports, snapshots=snapshots, position=UNUSED, topics=UNUSED)
    started.captured.get_topic(ACCT).tail.last = (0, NUMBER, 100, 5)
    assert [begin.has_passed_topic(ACCT, FILE, pos) for pos in (99, 100, 101)] == [False, False, True]


def test_a_process_for_snapshots_alone_does_not_end_before_a_copy_that_is_asked_for() -> None:
    story = Story(mysql=False, snapshot=True)
    story.mode, story.fresh = "only", False
    chunk = Chunk(number=1, after=None, upto=None, first_row=0, rows=0, last=True)
    story.tails = {ACCT: TableTail(markers=[ChunkMarker(chunk, DEFINED, 1, 0)])}
    story.requests.append(asked())

    def telling() -> Iterator[Events]:
        yield from idle(story)
        assert begins(story) == ["r1"]
        story.answer([(1, 0)], low=0)
        yield from idle(story)

    with pytest.raises(SnapshotFinishedError):
        story.notify(telling())
    assert story.rows_left() == {1: 0}


def found_begun(started: StartedCapture) -> None:
    started.captured.tables[ACCT].begun = BegunCopy(CopyMark(id="r1"), DEFINED, 0)


def test_a_copy_whose_request_is_read_after_its_last_chunk_is_done_and_not_made_again() -> None:
    story = Story(mysql=False)
    story.found = found_begun

    def telling() -> Iterator[Events]:
        yield from idle(story)
        story.answer([(1, 0)], low=0)
        yield from idle(story)
        story.requests.append(asked())
        yield from idle(story)
        story.answer([(1, 0)], low=0)
        yield from idle(story)

    story.notify(telling())
    assert begins(story) == []
    assert state(story).phase == "done"


def test_a_request_for_another_pace_does_not_read_the_table_again() -> None:
    """The last chunk of the copy is sent, and Kafka has not said yet that it has it."""
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        yield from idle(story)
        story.broker.holding = True
        story.answer([(1, 0)], low=0)
        yield []
        story.requests.append(asked(2, rate_only=True, max_rows_per_second=5))
        yield from idle(story)
        assert story.reads == 1
        story.broker.holding = False
        yield from idle(story)

    story.notify(telling())
    assert (story.reads, state(story).phase) == (1, "done")


def test_what_was_asked_in_the_middle_of_a_copy_is_copied_behind_it() -> None:
    story = Story(mysql=False)
    limits = RepairLimits(max_rows=1000, max_per_day=9)

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        yield from idle(story)
        story.requests.append(asked(2, by="pipeline p", cause="value", limits=limits, after=10**9))
        yield from idle(story)
        assert begins(story) == ["r1"]
        story.answer([(1, 0)], low=0)
        yield from idle(story)

    story.notify(telling())
    assert begins(story) == ["r1", "r2"]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asked(where="v > 1)"), "parentheses"),
    ],
)
def test_what_can_never_be_copied_is_refused_with_its_reason(request_: CopyRequest, reason: str) -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        story.requests.append(request_)
        yield from idle(story, 4)

    story.notify(telling())
    now = state(story, request_.table)
    assert now.phase == "refused"
    assert reason in now.reason
    assert begins(story, request_.table) == []


# --- several tables


def table(story: Story, name: TableName) -> Table:
    return replace(story.made.table, db=name[0], name=name[1])


def test_copies_begin_one_behind_the_other() -> None:
    story = Story(mysql=False)
    story.prove_definition = lambda _place, name: ProvenDefinition(table(story, name), None)  # type: ignore[method-assign]

    def telling() -> Iterator[Events]:
        story.requests += [asked(1), asked(2, table="b")]
        yield from idle(story)
        assert (begins(story), begins(story, "b")) == (["r1"], [])
        story.answer([(1, 0)], low=0)
        yield from idle(story)
        assert begins(story, "b") == ["r2"]

    story.notify(telling())
    assert "rowlock.b1.bank.b" in story.ensured, "a table that is new has no topic yet"


@pytest.mark.parametrize("proof", [UnprovenDefinition((NUMBER, 10**6)), ProvenDefinition(None, None)])
def test_a_copy_that_cannot_begin_keeps_no_other_waiting(proof: Proof) -> None:
    story = Story(mysql=False)

    def prove_definition(_place: DefinitionPlace, name: TableName) -> Proof:
        return proof if name == ACCT else ProvenDefinition(table(story, name), None)

    story.prove_definition = prove_definition  # type: ignore[method-assign]

    def telling() -> Iterator[Events]:
        story.requests += [asked(1), asked(2, table="b")]
        story.tick()
        yield []
        yield []
        assert begins(story, "b") == ["r2"]

    story.notify(telling())
    assert begins(story) == []


# --- a table that was not captured before


def _unknown(started: StartedCapture) -> None:
    """Nothing of the table is in force."""
    started.captured.tables.clear()
    started.captured.known.clear()


def _left_out(started: StartedCapture) -> None:
    _unknown(started)
    started.errors[ACCT] = Problem("bank.acct has no key", "add one")


def _late(started: StartedCapture) -> None:
    _left_out(started)
    started.late[ACCT] = (NUMBER, 100)


def _taken_up_later(started: StartedCapture) -> None:
    _unknown(started)
    started.begins[ACCT] = (0, NUMBER, 10**6, 0)


def _defined_otherwise(started: StartedCapture) -> None:
    now = started.captured.tables[ACCT]
    columns = [replace(each, name=f"old_{each.name}") for each in now.table.columns]
    now.table = replace(now.table, columns=tuple(columns))


@pytest.mark.parametrize("found", [_unknown, _left_out, _late, _taken_up_later, _defined_otherwise])
def test_every_change_behind_the_begin_of_a_copy_is_published_by_its_definition(found: object) -> None:
    story = Story(mysql=False)
    story.found = found  # type: ignore[assignment]

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        yield from idle(story)
        assert begins(story) == ["r1"]
        yield story.transaction([(1, None, 1)])
        yield story.transaction([(2, None, 1)])
        story.answer([(3, 0)], low=2)
        yield from idle(story)

    story.notify(telling())
    assert [each.op for each in story.broker.events()] == ["m", "c", "c", "r", "m"]
    assert story.rows_left() == {1: 1, 2: 1, 3: 0}
    assert story.broker.watermarks()[-1].left_out == {}


def test_a_table_that_only_a_copy_has_made_known_stops_where_its_topic_says_so() -> None:
    """Else readers would go on without its changes."""
    story = Story(mysql=False)
    story.found = _unknown

    def telling() -> Iterator[Events]:
        story.requests.append(asked())
        yield from idle(story)
        yield story.not_whole()

    story.notify(telling())
    assert [each.stop is not None for each in story.broker.events()] == [False, True]


# --- stops beside copies


def test_a_copy_begins_at_the_end_of_the_transaction_that_stopped_its_table() -> None:
    """What follows in the log is published already, although more of it is at hand."""
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield []
        story.requests.append(asked())
        story.tick()
        stopping = story.not_whole()
        yield []
        yield stopping + story.transaction([(5, None, 3)])

    story.notify(telling())
    assert [(each.op, each.stop is not None) for each in story.broker.events()][-1:] == [("c", False)]


def test_a_stop_that_comes_back_with_a_copy_is_in_the_topic_at_once() -> None:
    story = Story(mysql=False)

    def telling() -> Iterator[Events]:
        yield story.not_whole()
        story.requests.append(asked())
        yield from idle(story)
        assert begins(story) == ["r1"]
        story.requests.append(asked(2, cancel=True))
        story.tick()
        yield []
        yield []
        assert story.broker.events()[-1].stop is not None
        assert "bank.acct" in story.broker.stored[-1].record.stops

    story.notify(telling())
