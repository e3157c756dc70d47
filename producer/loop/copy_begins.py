"""The begin of a table's copy: it stands in the topic before the table's stop is gone from memory, and both are before the record says so
(docs/adr/0025)."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from producer.decoders.row_codec import TransactionContext
from producer.definitions.places import Place, Proven, Unproven
from producer.kafka.control_events import encode_definition
from producer.loop.position import CapturePosition
from producer.ports import Ports
from producer.resume.started import Started
from producer.resume.table_topics import TableTopics
from producer.snapshot.scheduler import Snapshots
from producer.tables import Begun, TableName, TableState, dotted
from schemas.table.model import Table
from schemas.wire.copies import CopyMark
from schemas.wire.position import LogPoint, binlog_file_number

_log = structlog.get_logger("capture")


class CopyBegins:
    """Has copies begin where the log stands between transactions."""

    def __init__(
        self,
        started: Started,
        ports: Ports,
        *,
        snapshots: Snapshots,
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

    def passed(self, name: TableName, file: str, pos: int) -> bool:
        """Tell whether an event here stands above everything in the table's topic."""
        topic = self._captured.topic(name)
        topic.note()
        return self._snapshots.sender.passed(topic, (binlog_file_number(file), pos))

    def proof(self, name: TableName, file: str, pos: int) -> Proven | None:
        """Return the table's definition at `file`, `pos`, if a copy may begin there and the definition is proven."""
        point = (binlog_file_number(file), pos)
        whole = (
            dotted(name) not in self._snapshots.tables.pending
        )  # its first snapshot comes to its end before
        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (0, 0)):
            return None
        if not self.passed(name, file, pos):
            return None
        proof = self._ports.definitions.at(Place(file, pos), name)
        if isinstance(proof, Unproven):
            self._unproven[name] = proof.last
            return None
        return proof

    def begin(self, name: TableName, table: Table, mark: CopyMark, file: str, pos: int) -> None:
        """Have a copy begin in the table's topic. Until that is acknowledged nothing has changed: a stop holds.

        Raises TableStoppedError where Kafka has no topic for it.
        """
        captured, topic = self._captured, self._topics.open(name)
        begun = self._send(name, table, mark, file, pos)
        state = captured.tables.get(name)
        if state is None:
            state = captured.tables[name] = TableState(name, topic, table, begun.position)
        state.define(table, begun.position)
        state.ignored, state.marker_offset, state.begun = None, None, begun
        state.definition_offset = begun.offset
        captured.go_on(name)
        captured.known.add(name)
        self._started.late.pop(name, None)
        self._started.errors.pop(name, None)
        self._started.begins.pop(name, None)
        asked = self._states.all.get(dotted(name))
        if asked is not None and asked.id == mark.id:
            self._states.begun(dotted(name), begun, self._now_ms())
        self._snapshots.copy(state)
        self._position.store()
        _log.info("copy begins", source=captured.source, table=dotted(name), copy=mark.id, file=file, pos=pos)

    def _send(self, name: TableName, table: Table, mark: CopyMark, file: str, pos: int) -> Begun:
        """Send the event with which a copy begins, and return where it stands once it is acknowledged."""
        topic, now = self._captured.topic(name), self._now_ms()
        row, number = self._snapshots.sender.next_row(topic), binlog_file_number(file)
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
        return Begun(mark, (self._context.epoch, number, pos, row), offsets[0], ended)
