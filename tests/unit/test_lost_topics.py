"""Topics that have lost events since the position record was written, as a start of capture finds them."""

from __future__ import annotations

from typing import Any

import pytest

from producer.start.lost_topics import find_topic_loss
from producer.tables import TableName
from schemas.wire.copies import CopyMark, CopyState
from schemas.wire.position import DEFINITION_ROW, Position
from schemas.wire.records import Anchor
from tests.kits.start import ACCT, Start, a_stop, event, table

DEFINED: Position = (0, 3, 100, DEFINITION_ROW)
HIGHEST: Position = (0, 3, 450, 2)
OTHER: TableName = ("bank", "other")
ANCHOR = Anchor(definition=0, end=2, highest=HIGHEST, topic_id="id")
MARK = CopyMark(id="r1")


def defined(at: Position = DEFINED, name: str = "acct", **content: Any) -> bytes:
    return event(at, name=name, definition=table(name), **content)


def row(at: Position, name: str = "acct") -> bytes:
    return event(at, op="c", name=name)


def begun(**stored: Any) -> Start:
    """Return a source with two tables, both captured; the topic of `other` is as it was."""
    start = Start()
    start.tables[OTHER] = table("other")
    start.stored(anchors={"bank.acct": ANCHOR, "bank.other": ANCHOR}, **stored)
    start.has(defined(name="other"), row((0, 3, 200, 0), "other"), row(HIGHEST, "other"), name="other")
    return start


@pytest.mark.parametrize(
    ("former", "now", "end", "created", "reason"),
    [
        ("id", "id", 3, False, None),
        ("id", "id", 9, False, None),
        ("", "id", 3, False, None),  # the record is of an earlier version
        ("id", "", 3, False, None),  # the user may not describe the topic
        ("id", "new", 9, False, "created again (its id was id and is new)"),
        ("id", "id", 2, False, "lost its last records: offset 2 was written, and it ends at 2"),
        ("", "id", 0, False, "lost its last records"),
        ("", "id", 0, True, "was deleted, and capture has created it again"),
    ],
)
def test_a_loss_is_found(former: str, now: str, end: int, created: bool, reason: str | None) -> None:
    loss = find_topic_loss("t", [Anchor(end=2, topic_id=former)], now, end, created=created)
    assert (loss is None) if reason is None else (loss is not None and reason in loss.reason)


def test_a_topic_without_anchors_has_lost_nothing_that_anybody_knows() -> None:
    assert find_topic_loss("t", [], "id", 0, created=True) is None


@pytest.mark.parametrize("how", ["deleted", "created again", "created again, and longer", "cut"])
def test_a_table_with_lost_events_stops_alone_and_nothing_of_it_is_sent(how: str) -> None:
    """Rows that capture wrote before it noticed do not count: what they follow is lost."""
    start = begun()
    if how != "deleted":
        later = [row((0, 3, 470 + n, 0)) for n in range(5)]
        start.has(*{"created again": [], "created again, and longer": later, "cut": [defined()]}[how])
        start.topics.topics[start.topic()].id = "id" if how == "cut" else "new"
    start.begin()
    assert {name: each.stop.cause for name, each in start.captured.stopped.items()} == {ACCT: "topic-lost"}
    assert start.captured.stopped[ACCT].stop.remedy == "rowlock copy bank.acct"
    assert start.captured.unsaid == {ACCT}, "the topic gets the stop above all that it ever had"
    ceiling = start.captured.topics[start.topic()].ceiling
    assert ceiling is not None
    assert ceiling >= HIGHEST
    assert all(each.op == "m" and each.chunk is None for each in start.sent())
    assert [each.definition for each in start.sent("other")] == [table("other")]
    assert start.captured.tables[OTHER].ignored is None


@pytest.mark.parametrize(
    ("mark", "topic_id", "at", "stops"),
    [
        (MARK, "new", (0, 3, 480, 0), False),
        (MARK, "new", (0, 3, 300, 0), False),  # a record that was stored since has a higher position
        (MARK, "id", (0, 3, 480, 0), False),
        (MARK, "id", (0, 3, 300, 0), True),  # that copy began before the events that are lost
        (CopyMark(id="r1", partial=True), "new", (0, 3, 480, 0), True),
        (CopyMark(id="r1", keys=True), "new", (0, 3, 480, 0), True),
    ],
)
def test_a_copy_that_has_begun_in_the_topic_since_continues_the_table(
    mark: CopyMark, topic_id: str, at: Position, stops: bool
) -> None:
    start = begun()
    start.has(defined(at, copy=mark))
    start.topics.topics[start.topic()].id = topic_id
    start.begin()
    assert (ACCT in start.captured.stopped) == stops


def test_an_earlier_stop_stays_and_no_earlier_copy_counts_as_one_in_the_new_topic() -> None:
    state = CopyState(
        id="r1", db="bank", table="acct", by="operator", phase="done", requested_ms=1, begin=DEFINED, offset=7
    )  # fmt: skip
    start = begun(stops={"bank.acct": a_stop()}, copies={"bank.acct": state})
    started = start.begin()
    assert start.captured.stopped[ACCT].stop == a_stop()
    copied = started.copies.states.all["bank.acct"]
    assert (copied.begin, copied.offset, copied.phase) == (None, None, "done")


def test_a_copy_in_the_lost_topic_begins_again() -> None:
    state = CopyState(
        id="r1", db="bank", table="acct", by="operator", phase="running", requested_ms=1, begin=DEFINED,
        offset=7,
    )  # fmt: skip
    copied = begun(copies={"bank.acct": state}).begin().copies.states.all["bank.acct"]
    assert (copied.begin, copied.offset, copied.phase, copied.restarts) == (None, None, "waiting", 1)


def test_a_new_beginning_of_everything_stops_no_table() -> None:
    start = begun()
    start.has(defined())
    start.begin(new_snapshot=True)
    assert not start.captured.stopped


def test_offsets_of_before_are_not_read_in_a_topic_that_lacks_them() -> None:
    """Kafka would never answer for them, and no table of the source would be captured."""
    start = begun()
    start.has()
    start.topics.topics[start.topic()].id = "new"
    start.begin()
    assert {(begin, end) for topic, begin, end in start.topics.read_ranges if topic == start.topic()} <= {
        (0, 0)
    }


def test_anchors_name_the_topic_that_the_start_has_seen() -> None:
    start = begun()
    start.has(defined(), row((0, 3, 200, 0)), row(HIGHEST))
    start.topics.topics[start.topic()].id = "id"
    start.begin()
    assert not start.captured.stopped
    anchors = start.captured.build_anchors({start.topic(): 3}, (0, 9, 9))
    assert anchors["bank.acct"].topic_id == "id"
