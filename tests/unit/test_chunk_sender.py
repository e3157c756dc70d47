"""A chunk in Kafka: its rows and its marker, their positions, and what is done about rows that Kafka does not
take."""

from __future__ import annotations

from typing import Any

import pytest

from producer.decoders.envelope import SourceContext, TopicTail
from producer.errors import TableStoppedError
from producer.kafka.settings import MAX_EVENT_BYTES
from producer.ports import Clock
from producer.snapshot.chunk_sender import ChunkSender, compute_first_row
from producer.snapshot.chunks import SnapshotMachine
from producer.snapshot.jobs import SnapshotJob
from producer.sources.chunk_data import EmitChunk
from producer.start.started import StartedCapture
from producer.tables import CapturedTables, TableState, TopicState
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire.position import FIRST_SNAPSHOT_ROW, Position
from schemas.wire.records import Identity, StoredPosition
from tests.stands.event_writer import TopicWriter

TABLE = Table(
    db="d",
    name="t",
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="note", type=ColumnType(kind=Kind.TEXT, charset="utf8mb4")),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)
BEFORE: Position = (0, 3, 4711, 2)
"""The topic's last event, of a transaction that ends where the chunk is sent."""
IDENTITY = Identity(server_uuid=None, server_id=1, version="11", gtid_set=None)


class Sending:
    """A table whose snapshot is sent by assignment 5 to a topic that ends in `BEFORE`."""

    def __init__(self) -> None:
        self.writer = TopicWriter()
        self.topic = TopicState("p.s.d.t", TopicTail(last=BEFORE), ceiling=BEFORE)
        state = TableState(("d", "t"), self.topic, TABLE, BEFORE)
        record = StoredPosition(
            source="s", gen=5, epoch=0, file="binlog.000003", pos=4, identity=IDENTITY, ts_ms=1
        )
        started = StartedCapture(
            record, SourceContext(connector="mysql", name="s", epoch=0, gen=5), CapturedTables("p", "s"), {},
            {}, fresh=False,
        )  # fmt: skip
        writer: Any = self.writer
        unused: Any = None
        self.sender = ChunkSender(started, writer, Clock(lambda: 1.0, lambda: 1000))
        self.job = SnapshotJob(state, SnapshotMachine(10), unused, unused)

    def store_position(self, *rows: Row, pos: int = 4800) -> None:
        chunk = EmitChunk(TABLE, rows, (3, pos), number=1, after=None, upto=None, repeated=False)
        self.sender.send_chunk(self.job, chunk, "binlog.000003")


def test_a_chunk_is_its_rows_and_its_marker_one_behind_the_other_behind_what_the_topic_has() -> None:
    sending = Sending()
    assert sending.sender.has_passed_topic(sending.topic, (3, 4800))
    sending.store_position((1, "a"), (2, "b"))
    sending.store_position((3, "c"))
    first = compute_first_row(5, None)
    rows = [first + n for n in range(5)]
    events = sending.writer.events()
    assert [each.source.position for each in events] == [(0, 3, 4800, row) for row in rows]
    assert [each.source.prev for each in events] == [BEFORE, *((0, 3, 4800, row) for row in rows[:-1])]
    assert [each.op for each in events] == ["r", "r", "m", "r", "m"]
    assert [(each.chunk.first_row, each.chunk.rows) for each in events if each.chunk] == [
        (first, 2),
        (rows[3], 1),
    ]


def test_what_begins_a_copy_stands_directly_before_the_rows_of_the_copy() -> None:
    sending = Sending()
    first = sending.sender.reserve_row(sending.topic)
    sending.sender.take_row(sending.topic)
    sending.store_position((1, "a"))
    assert [each.source.position[3] for each in sending.writer.events()] == [first + 1, first + 2]


def test_the_writer_is_told_how_many_bytes_the_rows_of_a_chunk_have() -> None:
    """By that it knows how much waits and is unacknowledged; the marker is sent, and counted, by itself."""
    sending = Sending()
    sending.store_position((1, "a"), (2, "b"))
    *rows, _marker = sending.writer.sent
    assert sending.writer.sizes == [sum(len(key) + len(value or b"") for _, key, value in rows)]


def test_a_chunk_with_a_row_that_kafka_does_not_take_stops_its_table_and_nothing_of_it_is_sent() -> None:
    sending = Sending()
    with pytest.raises(
        TableStoppedError, match=r'the row \{"id":2\} of d\.t makes an event of (\d+) bytes'
    ) as stopped:
        sending.store_position((1, "a"), (2, "b" * MAX_EVENT_BYTES), (3, "c"))
    assert (stopped.value.cause, stopped.value.tables) == ("size", frozenset([("d", "t")]))
    reported = int(str(stopped.value).partition("an event of ")[2].split()[0])
    assert MAX_EVENT_BYTES < reported < MAX_EVENT_BYTES + 2000
    assert sending.writer.sent == []
    assert sending.topic.tail.last == BEFORE, "the stop's event follows what the topic has"
    sending.store_position((1, "a"))
    assert [each.source.prev for each in sending.writer.events()][:1] == [BEFORE]


GENERATIONS = 1 << 20


def test_rows_of_snapshots_rise_from_one_assignment_to_the_next_and_never_reach_the_logs() -> None:
    firsts = [compute_first_row(gen, None) for gen in (1, 2, 3, GENERATIONS - 1, GENERATIONS)]
    assert firsts[0] == FIRST_SNAPSHOT_ROW, "the lowest that a number of JSON holds exactly"
    assert firsts == sorted(set(firsts))
    room = firsts[1] - firsts[0]
    assert room >= 1 << 32, "rows of a run"
    assert firsts[-1] + room <= 0


def test_behind_a_row_of_a_snapshot_a_topic_goes_on_with_the_next_row() -> None:
    """The assignments' ranges of row numbers repeat at some time: on an idle source all events have one place
    of the log."""
    assert compute_first_row(GENERATIONS + 1, (0, 3, 4711, -500)) == -499
    assert compute_first_row(7, (0, 3, 4711, compute_first_row(6, None) + 3)) == compute_first_row(7, None)
