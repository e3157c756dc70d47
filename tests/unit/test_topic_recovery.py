"""What a start reads of a table's topic, and what that says."""

from __future__ import annotations

from typing import Any

import pytest

from producer.start.topic_recovery import TableTail, TopicFindings, peek_last_events, scan_topics
from producer.tables import BegunCopy, TableName
from schemas.table.model import Table
from schemas.wire.copies import CopyMark
from schemas.wire.event import Chunk, LogRows
from schemas.wire.position import DEFINITION_ROW, Position
from schemas.wire.records import Anchor
from tests.kits.start import ACCT, Topics, a_stop, event, table

TOPIC = "rowlock.b1.bank.acct"
DEFINED: Position = (0, 3, 100, DEFINITION_ROW)
CHUNK = Chunk(number=1, after=None, upto=None, first_row=-9, rows=1, last=True)


def row(number: int, pos: int = 200, **content: Any) -> bytes:
    return event((0, 3, pos, number), op="c", **content)


def topics(*values: bytes, low: int = 0) -> Topics:
    found = Topics()
    found.put(TOPIC, *values)
    found.topics[TOPIC].low = low
    return found


def scan(broker: Topics, anchors: dict[TableName, Anchor]) -> dict[str, TopicFindings]:
    return scan_topics(broker, {TOPIC: anchors}, {TOPIC: broker.get_bounds(TOPIC)})


ANCHORED = [
    (Anchor(definition=0, end=-1), [], (0, 6)),  # nothing was acknowledged: all is read
    (Anchor(definition=0, end=3), [(0, 1)], (4, 6)),
    (Anchor(definition=1, marker=0, stop=2, begin=1, end=3), [(0, 1), (1, 2), (2, 3)], (4, 6)),
    (Anchor(definition=4, marker=3, end=3), [(3, 4)], (4, 6)),  # what is behind is read anyway
    (Anchor(definition=0, end=5), [(0, 1)], (6, 6)),
]


@pytest.mark.parametrize(("anchor", "anchored", "behind"), ANCHORED)
def test_a_start_reads_the_anchored_events_and_what_is_behind_them(
    anchor: Anchor, anchored: list[tuple[int, int]], behind: tuple[int, int]
) -> None:
    """Of a topic of billions of rows."""
    broker = topics(*(row(n) for n in range(6)))
    found = scan(broker, {ACCT: anchor})
    assert [(start, end) for _, start, end in broker.read_ranges] == [*anchored, behind]
    assert found[TOPIC].end == 6


def test_a_topic_without_an_anchor_is_read_whole() -> None:
    found = scan(topics(event(DEFINED, definition=table()), row(0), event((0, 3, 300, -5), chunk=CHUNK)), {})
    tail = found[TOPIC].tables[ACCT]
    assert tail.definitions == {DEFINED: table()}
    assert (tail.marker_offset, [each.chunk for each in tail.markers]) == (2, [CHUNK])
    assert (found[TOPIC].highest, found[TOPIC].gen, found[TOPIC].cut) == ((0, 3, 300, -5), 4, False)


@pytest.mark.parametrize(("low", "cut"), [(0, False), (2, False), (3, True)])
def test_a_topic_is_cut_where_events_that_no_record_knew_are_gone(low: int, cut: bool) -> None:
    broker = topics(*(row(n) for n in range(5)), low=low)
    assert scan(broker, {ACCT: Anchor(definition=0, end=1)})[TOPIC].cut == cut


@pytest.mark.parametrize(
    ("anchored", "behind", "highest"),
    [
        ((0, 3, 900, 1), (0, 3, 200, 0), (0, 3, 900, 1)),
        ((0, 3, 900, 1), (0, 3, 901, 0), (0, 3, 901, 0)),
        (None, (0, 3, 200, 0), (0, 3, 200, 0)),
    ],
)
def test_the_record_knows_the_highest_position_up_to_its_anchor(
    anchored: Position | None, behind: Position, highest: Position
) -> None:
    broker = topics(event(DEFINED, definition=table()), row(5), event(behind, op="c"))
    anchors = {ACCT: Anchor(definition=0, end=1, highest=anchored)}
    assert scan(broker, anchors)[TOPIC].highest == highest


def test_a_topic_that_nobody_knows_is_looked_at_by_its_last_event() -> None:
    broker = topics(event(DEFINED, stop=a_stop()), row(3))
    broker.put("rowlock.b1.copy.requests", event(DEFINED, source="another"))
    broker.append("rowlock.b1.a.b", b"", None)
    broker.ensure(["rowlock.b1.bank.empty"], {})
    found = peek_last_events(broker, sorted(broker.topics), "b1")
    assert {name: [*each.tables] for name, each in found.items()} == {
        TOPIC: [ACCT], "rowlock.b1.copy.requests": [], "rowlock.b1.a.b": [], "rowlock.b1.bank.empty": [],
    }  # fmt: skip
    assert (found[TOPIC].highest, found[TOPIC].end, found[TOPIC].tables[ACCT]) == (
        (0, 3, 200, 3),
        2,
        TableTail(),
    )
    assert (TOPIC, 1, 2) in broker.read_ranges, "the last one alone"


def test_rows_of_a_used_up_log_are_collected_and_make_no_table_known() -> None:
    tails = TopicFindings()
    for number, rows in enumerate(([("A", 1), ("B", 2)], [("A", 3)])):
        tails.add_event(number, row(number, log=LogRows(rows=tuple(rows))))
    tails.add_event(2, row(2))
    assert tails.logged == {ACCT: [("A", 1), ("B", 2), ("A", 3)]}
    assert (tails.tables, tails.find_last_copy(ACCT)) == ({}, None)


@pytest.mark.parametrize(
    ("behind", "altered"),
    [
        ([], False),
        ([table("acct", "a")], False),
        ([table("acct", "a"), table("acct", "b")], True),
        ([table("acct", "b"), table("acct", "a")], True),  # rows between the two are of another form
    ],
)
def test_a_table_is_altered_by_another_definition_behind_the_copys_begin(
    behind: list[Table], altered: bool
) -> None:
    begin: Position = (0, 3, 500, DEFINITION_ROW)
    later = {(0, 3, 600 + n, 0): each for n, each in enumerate(behind)}
    tail = TableTail(definitions={DEFINED: table(), begin: table("acct", "a"), **later})
    assert not tail.was_altered(), "no copy has begun"
    tail.begun = BegunCopy(CopyMark(id="r1"), begin, 2)
    assert tail.was_altered() == altered
    del tail.definitions[begin]
    assert not tail.was_altered(), "the definition of then is not known"


def test_a_zombie_s_events_behind_a_later_gen_do_not_count() -> None:
    tails = TopicFindings()
    tails.add_event(0, event(DEFINED, gen=5, definition=table()))
    tails.add_event(1, event((0, 3, 900, DEFINITION_ROW), gen=4, definition=table("acct", "a")))
    tails.add_event(2, event((0, 3, 150, 0), gen=5, op="c"))
    assert tails.tables[ACCT].definitions == {DEFINED: table()}
    assert tails.highest == (0, 3, 150, 0)
