"""Begins the copy of a table (docs/adr/0025).

The begin event is in the topic before the table's stop is removed from memory; the position record
contains both only afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from producer.decoders.row_codec import TransactionContext
from producer.definitions.requests import DefinitionPlace, ProvenDefinition, UnprovenDefinition
from producer.kafka.control_events import encode_definition
from producer.loop.position import CapturePosition
from producer.ports import Ports
from producer.snapshot.scheduler import SnapshotScheduler
from producer.start.started import StartedCapture
from producer.start.table_topics import TableTopics
from producer.tables import BegunCopy, TableName, TableState, format_table_name
from schemas.table.model import Table
from schemas.wire.copies import CopyMark
from schemas.wire.position import LogPoint, parse_binlog_file_number

_log = structlog.get_logger("capture")


class CopyStarter:
    """Begins copies between transactions of the log."""

    def __init__(
        self,
        started: StartedCapture,
        ports: Ports,
        *,
        snapshots: SnapshotScheduler,
        position: CapturePosition,
        topics: TableTopics,
    ) -> None:
        self._started = started
        self._states = started.copies.states
        self._captured = started.captured
        self._context = started.context
        self._ports = ports
        self._writer = ports.writer
        self._now_ms: Callable[[], int] = ports.clock.now_ms
        self._snapshots = snapshots
        self._position = position
        self._topics = topics
        self._unproven: dict[TableName, LogPoint] = {}

    def has_passed_topic(self, name: TableName, file: str, pos: int) -> bool:
        """Return whether an event at `file`, `pos` has a higher position than every event in the table's
        topic.
        """
        topic = self._captured.get_topic(name)
        topic.raise_ceiling_to_tail()
        return self._snapshots.sender.has_passed_topic(topic, (parse_binlog_file_number(file), pos))

    def can_begin(self, name: TableName, file: str, pos: int) -> bool:
        """Return whether a copy of the table may begin at `file`, `pos`: its first snapshot has ended."""
        if name in self._captured.unsaid or format_table_name(name) in self._snapshots.tables.pending:
            return False
        return self.has_passed_topic(name, file, pos)

    def find_proven_definition(self, name: TableName, file: str, pos: int) -> ProvenDefinition | None:
        """Return the table's definition at `file`, `pos`, if a copy may begin there and the definition
        is proven; otherwise None.
        """
        point = (parse_binlog_file_number(file), pos)
        if point <= self._unproven.get(name, (0, 0)) or not self.can_begin(name, file, pos):
            return None
        proof = self._ports.definitions.prove_definition(DefinitionPlace(file, pos), name)
        if isinstance(proof, UnprovenDefinition):
            self._unproven[name] = proof.last
            return None
        return proof

    def begin_copy(self, name: TableName, table: Table, mark: CopyMark, file: str, pos: int) -> None:
        """Begin a copy in the table's topic. A stop remains until the begin event is acknowledged.

        Raises TableStoppedError if Kafka has no topic for the table.
        """
        captured, topic = self._captured, self._topics.open_topic(name)
        begun = self._send_begin(name, table, mark, file, pos)
        state = captured.tables.get(name)
        if state is None:
            state = captured.tables[name] = TableState(name, topic, table, begun.position)
        state.begin_copy(table, begun)
        captured.go_on(name)
        captured.known.add(name)
        self._started.late.pop(name, None)
        self._started.errors.pop(name, None)
        self._started.begins.pop(name, None)
        asked = self._states.all.get(format_table_name(name))
        if asked is not None and asked.id == mark.id:
            self._states.mark_begun(format_table_name(name), begun, self._now_ms())
        self._snapshots.add_copy(state)
        self._position.store_position()
        _log.info(
            "copy started",
            source=captured.source,
            table=format_table_name(name),
            copy=mark.id,
            file=file,
            pos=pos,
        )

    def _send_begin(self, name: TableName, table: Table, mark: CopyMark, file: str, pos: int) -> BegunCopy:
        """Send the event with which a copy begins. Return its place once it is acknowledged."""
        topic, now = self._captured.get_topic(name), self._now_ms()
        row, number = self._snapshots.sender.reserve_row(topic), parse_binlog_file_number(file)
        self._snapshots.sender.take_row(topic)
        transaction = TransactionContext(
            id=f"copy:{file}:{pos}", gtid=None, file=file, file_number=number, pos=pos, ts_ms=now,
            server_id=self._started.record.identity.server_id, made_ms=now,
        )  # fmt: skip
        key, value = encode_definition(table, self._context, topic.tail, transaction, row=row, copy=mark)
        topic.raise_ceiling()
        offsets: list[int] = []
        self._writer.send(topic.name, key, value, offsets.append)
        self._writer.drain()
        stopped = self._captured.stopped.get(name)
        ended = stopped.stop.cause if stopped is not None else ""
        return BegunCopy(mark, (self._context.epoch, number, pos, row), offsets[0], ended)
