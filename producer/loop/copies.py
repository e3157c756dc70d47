"""Copies of single tables while capture runs: requests are taken in, and copies begin where the log stands between transactions.

The rules are in producer/copies, the order of things in docs/adr/0025: the begin event is in the topic before the table's stop is
gone from memory, and both are before the record says so.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from msgspec.structs import replace

from producer.copies.book import Ask, Effect, Forget, StopAgain, TableSeen
from producer.copies.limits import unbalanced
from producer.copies.states import mark_of
from producer.decoders.row_codec import TransactionContext
from producer.definitions.places import Place, Unproven
from producer.errors import TableStoppedError
from producer.kafka.control_events import encode_definition
from producer.kafka.topics import EVENTS
from producer.loop.choice import TableChoice
from producer.loop.position import CapturePosition
from producer.loop.table_stops import TableStops
from producer.ports import Ports
from producer.resume.startup import Started
from producer.snapshot.scheduler import Snapshots
from producer.sources.changes import Barrier, LogMoment
from producer.sources.chunk_data import LogPoint
from producer.tables import Begun, TableName, TableState, dotted
from schemas.io.mysql_catalog import missing_table
from schemas.table.model import Table
from schemas.wire.copies import CopyMark, CopyRequest, CopyState
from schemas.wire.position import binlog_file_number

_log = structlog.get_logger("capture")


class TableCopies:
    """Drives the book of copies (`Started.copies`) between the transactions of the stream."""

    def __init__(
        self,
        started: Started,
        ports: Ports,
        *,
        choice: TableChoice,
        snapshots: Snapshots,
        stops: TableStops,
        position: CapturePosition,
    ) -> None:
        self._started = started
        self._book = started.copies
        self._captured = started.captured
        self._context = started.context
        self._ports = ports
        self._writer = ports.writer
        self._now_ms: Callable[[], int] = ports.clock.now_ms
        self._choice = choice
        self._snapshots = snapshots
        self._stops = stops
        self._position = position
        self._asked: list[tuple[int, CopyRequest | None]] = []
        self._unproven: dict[TableName, LogPoint] = {}

    @property
    def busy(self) -> bool:
        """Tell whether a copy is asked for, waits or runs."""
        return bool(self._asked) or self._book.states.busy

    @property
    def due(self) -> bool:
        """Tell whether `advance` has something to do."""
        return bool(
            self._asked or self._book.pending or self._snapshots.unbegun or self._snapshots.refused or self._book.states.waiting
        )  # fmt: skip

    def poll(self) -> None:
        """See what was asked since the last time."""
        self._asked += self._ports.requests.poll()
        self._book.states.prune(self._now_ms())

    def advance(self, file: str, pos: int) -> None:
        """The stream stands between transactions at `file`, `pos`. What stops a table again is not said yet."""
        moment = LogMoment(file, pos - 1, self._now_ms())
        asked, self._asked = self._asked, []
        for offset, request in asked:
            if request is not None:
                self._ask(request, moment)
            self._book.requests = offset + 1
        refused, self._snapshots.refused = self._snapshots.refused, []
        for name, reason in refused:
            self._refuse(name, f"the source does not take the condition of the copy: {reason}", moment)
        self._carry_out(self._book.settle(self._now_ms()), moment)
        for name, state in list(self._snapshots.unbegun.items()):
            mark = CopyMark(id=f"snapshot of {dotted(name)} at {file}:{pos}")
            if self._passed(name, file, pos):
                self._begin(state.name, state.table, mark, file, pos)
        for waiting in self._book.states.waiting:
            if self._begun((waiting.db, waiting.table), waiting, moment, file, pos):
                break

    # --- requests

    def made_again(self, name: TableName, barrier: Barrier) -> None:
        """Have a table copied that was stopped because it was dropped, and that a statement has made again."""
        at_ms, place = barrier.header.ts_ms, f"{barrier.header.file}:{barrier.start}"
        request = CopyRequest(
            id=f"made again at {place}", db=name[0], table=name[1], by="capture", cause="dropped", requested_ms=at_ms
        )  # fmt: skip
        self._book.asked(request, TableSeen(stopped="dropped"), at_ms)

    def _ask(self, request: CopyRequest, moment: LogMoment) -> None:
        db, table = self._ports.names.same((request.db, request.table))
        request = replace(request, db=db, table=table)
        self._carry_out(self._book.asked(request, self._seen(request), self._now_ms()), moment)
        running, state = self._book.states.running, self._captured.tables.get((db, table))
        if running is None or running.id != request.id or state is None:
            return
        if not self._snapshots.goes_on((db, table)):  # it had begun before its request was read
            self._snapshots.add(state)

    def _seen(self, request: CopyRequest) -> TableSeen:
        name = (request.db, request.table)
        stopped, state = self._captured.stopped.get(name), self._captured.tables.get(name)
        return TableSeen(
            stopped=stopped.stop.cause if stopped is not None else "",
            estimate=None if request.cancel else self._ports.server().rows_about(name),
            begun=state.begun if state is not None and stopped is None else None,
            refusal=self._refusal(name, request),
        )

    def _refusal(self, name: TableName, request: CopyRequest) -> str:
        """Return why a table cannot be copied, as far as that is known before its definition is; "": it may be."""
        if not self._choice.selected(*name):
            return (
                f"{dotted(name)} is not selected by `tables:`: add it there, then rowlock copy {dotted(name)}"
            )
        if (why := self._captured.refusal(name)) is not None:
            return why
        return unbalanced(request.where) if request.where is not None else ""

    def _carry_out(self, effects: list[Effect], moment: LogMoment) -> None:
        for effect in effects:
            match effect:
                case Forget():
                    self._snapshots.forget(self._named(effect.table))
                case StopAgain():
                    name = self._named(effect.table)
                    error = TableStoppedError(
                        frozenset([name]), effect.cause, effect.reason, f"rowlock copy {effect.table}"
                    )
                    self._stops.stop(error, moment)
                case Ask():
                    self._ask(effect.request, moment)

    def _named(self, table: str) -> TableName:
        state = self._book.states.all[table]
        return state.db, state.table

    def _refuse(self, name: TableName, reason: str, moment: LogMoment) -> None:
        _log.error("copy refused", source=self._captured.source, table=dotted(name), reason=reason)
        self._carry_out(self._book.refuse(dotted(name), reason, self._now_ms()), moment)

    # --- begin

    def _passed(self, name: TableName, file: str, pos: int) -> bool:
        """Tell whether an event here stands above everything in the table's topic."""
        topic = self._captured.topic(name)
        topic.note()
        here = (self._context.epoch, binlog_file_number(file), pos, self._snapshots.next_row(topic))
        return topic.ceiling is None or here > topic.ceiling

    def _begun(self, name: TableName, state: CopyState, moment: LogMoment, file: str, pos: int) -> bool:
        """Begin a copy that was asked for, if it can be: its definition is proven here. Returns whether it has begun."""
        point = (binlog_file_number(file), pos)
        whole = dotted(name) not in self._snapshots.pending  # its first snapshot comes to its end before
        if name in self._captured.unsaid or not whole or point <= self._unproven.get(name, (0, 0)):
            return False
        if not self._passed(name, file, pos):
            return False
        proof = self._ports.definitions.at(Place(file, pos), name)
        if isinstance(proof, Unproven):
            self._unproven[name] = proof.last
            return False
        if proof.table is None:
            self._refuse(name, proof.reason or missing_table(name), moment)
            return False
        self._begin(name, proof.table, mark_of(state), file, pos)
        return True

    def _begin(self, name: TableName, table: Table, mark: CopyMark, file: str, pos: int) -> None:
        """Have a copy begin in the table's topic. Until that is acknowledged nothing has changed: a stop holds."""
        captured, topic = self._captured, self._captured.topic(name)
        self._ports.topics.ensure([topic.name], EVENTS)
        begun = self._send(name, table, mark, file, pos)
        state = captured.tables.get(name)
        if state is None:
            state = captured.tables[name] = TableState(name, topic, table, begun.position)
        state.define(table, begun.position)
        state.ignored, state.marker_offset, state.begun = None, None, begun
        state.definition_offset = begun.offset
        state.ahead.clear()
        captured.go_on(name)
        captured.known.add(name)
        self._started.late.pop(name, None)
        self._started.errors.pop(name, None)
        self._started.begins.pop(name, None)
        self._unproven.pop(name, None)
        asked = self._book.states.all.get(dotted(name))
        if asked is not None and asked.id == mark.id:
            self._book.states.begun(dotted(name), begun, self._now_ms())
        self._snapshots.copy(state)
        self._position.store()
        _log.info("copy begins", source=captured.source, table=dotted(name), copy=mark.id, file=file, pos=pos)

    def _send(self, name: TableName, table: Table, mark: CopyMark, file: str, pos: int) -> Begun:
        """Send the event with which a copy begins, and return where it stands once it is acknowledged."""
        topic, now = self._captured.topic(name), self._now_ms()
        row, number = self._snapshots.next_row(topic), binlog_file_number(file)
        self._snapshots.take_row(topic)
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
