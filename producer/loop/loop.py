"""The loop from the log's events to Kafka: a machine that is stepped, in the order of the log.

All it acts on is passed in (`Ports`): producer/capture.py opens connections for it, tests/sim a modelled log, server and broker.
A step is one read of the log with all that follows from it. It waits inside of ports only: for the log, and for
Kafka where something must be acknowledged before the next thing is sent.
"""

from __future__ import annotations

import structlog

from producer.barriers import Barriers
from producer.binlog_format import log_event as log
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.log_event import LogEvent
from producer.errors import StreamStoppedError, TableStoppedError
from producer.flavours.known import flavour_of
from producer.loop.choice import TableChoice
from producer.loop.position import CapturePosition
from producer.loop.rows import RowSender
from producer.loop.table_stops import TableStops
from producer.loop.ticker import CaptureTicker
from producer.loop.watermarks import WatermarkSender
from producer.ports import Ports
from producer.resume.startup import Started
from producer.snapshot.chunks import LogMark, LogPoint
from producer.snapshot.scheduler import Snapshots
from producer.sources.binlog.log_proof import Proofs
from producer.sources.binlog.transaction_stream import TransactionStream
from producer.sources.binlog.transactions import (
    Barrier,
    Boundary,
    CapturedRows,
    Output,
    TransactionAssembler,
    TransactionHeader,
    not_undone,
)
from producer.statements.ddl import Dml, Unknown, without_values
from schemas.config.model import SourceConfig
from schemas.findings import START_OVER
from schemas.wire.position import binlog_file_number

_log = structlog.get_logger("capture")

_IDLE_WAIT = 0.05
_SNAPSHOT_WAIT = 0.003


class CaptureLoop:
    """One stretch of capture under one gen, from where it `started`; opens the log there.

    `step` and `beat` raise TransientSourceError, DeliveryError, InterruptedWriteError, SourceRefusedError, StreamStoppedError.
    """

    def __init__(self, source: SourceConfig, started: Started, ports: Ports) -> None:
        record, names, writer, flavour = started.record, ports.names, ports.writer, flavour_of(source)
        self._started, self._ports, self._clock, self._writer = started, ports, ports.clock, writer
        choice = TableChoice(source.tables, names, started)
        self._fold = fold = TransactionAssembler(choice.captured, record.prepared)
        self._snapshots = snapshots = Snapshots(
            started, writer, ports.open_reader, ports.clock, ports.chunk_rows,
            wanted=source.snapshot != "never", delivered=flavour.delivered(),
        )  # fmt: skip
        self._barriers = Barriers(
            started.context, started.captured, writer, ports.topics, choice.selected, started.errors,
            lambda state, at: snapshots.table_changed(state, LogMark((at.file_number, at.pos), at.gtid)),
            ports.definitions, started, source.snapshot != "never", names,
            ports.reaches(lambda: fold.objects_changed),
        )  # fmt: skip
        self._stops = TableStops(started, ports, choice, snapshots)
        self._watermarks = WatermarkSender(started, ports, snapshots=snapshots, stops=self._stops)
        self._rows = RowSender(
            started, ports, fold=fold, barriers=self._barriers, snapshots=snapshots, on_batch=self._batch_left
        )
        proofs = Proofs(record, flavour.captured_gtids)
        self._stream = TransactionStream(
            lambda file, pos: ports.open_log(proofs.latest(), file, pos),
            record.file, record.pos, ports.assembly(choice.captured),
        )  # fmt: skip
        self._position = CapturePosition(
            started, ports, stream=self._stream, proofs=proofs, snapshots=snapshots
        )
        self._ticker = CaptureTicker(
            started, ports, fold=fold, stream=self._stream, position=self._position, rows=self._rows, snapshots=snapshots,
            stops=self._stops, watermarks=self._watermarks, only_snapshot=source.snapshot == "only",
        )  # fmt: skip

    def close(self) -> None:
        """Close the log and stop reading chunks; waits for a SELECT in flight."""
        try:
            self._stream.close()
        finally:
            self._snapshots.close()

    # --- the log

    def step(self) -> None:
        """Read what the log has, and do what follows from it. Returns in the middle of that when told to stop."""
        stopping = self._ports.stopping
        self._rows.made_ms = self._clock.now_ms()
        for event in self._stream.read(self._patience()):
            self._event(event)
            if stopping():
                return
        self._ticker.behind = self._stream.heard
        self._between()
        self._position.note_proof()
        self._writer.flush()
        self._ticker.tick()

    def _patience(self) -> float:
        """How long to wait for the log: not at all with an answer at hand, briefly while one is awaited."""
        if self._snapshots.ready:
            return 0
        return _SNAPSHOT_WAIT if self._snapshots.active else _IDLE_WAIT

    def _event(self, event: LogEvent) -> None:
        output: Output | None = None
        try:
            output = self._fold.feed(event)
            if output is None:
                return
            if isinstance(output, CapturedRows):
                self._rows.take(output)
                return
            if isinstance(output, Barrier):
                self._barrier(output)
        except TableStoppedError as error:  # everything else goes on
            self._stops.stop(error, event)
            if isinstance(output, CapturedRows):
                self._fold.uncaptured(output)
        except DecodeError as error:
            raise StreamStoppedError(
                f"{event.file}:{event.start}: {error}. The log cannot be followed further: {START_OVER}"
            ) from error
        if isinstance(output, Barrier):
            output = self._fold.after_barrier(event)
        if isinstance(output, Boundary):
            self._boundary(output, event)

    def _boundary(self, boundary: Boundary, event: LogEvent) -> None:
        """A transaction is over."""
        if boundary.stop is not None or boundary.undone:
            self._stop_by_end(boundary, event)
        self._rows.end()
        self._position.ended(boundary)
        if self._stops.unsaid:
            self._say_stops(boundary.file, boundary.pos)
        self._snapshots.delivered(boundary.header.gtid)
        if self._snapshots.active:
            self._advance(boundary.file, boundary.pos)
        if self._writer.full:
            self._writer.flush()

    def _stop_by_end(self, boundary: Boundary, event: LogEvent) -> None:
        """Stop the tables that the way a transaction ended concerns."""
        if boundary.stop is not None:
            self._stops.stop(boundary.stop, event)
        if boundary.undone:
            server = self._ports.server()
            engines = {name: server.without_transactions(name) for name in boundary.undone}
            if (stop := not_undone(engines)) is not None:
                self._stops.stop(stop, event)

    def _say_stops(self, file: str, pos: int) -> None:
        """Have the topics say what stopped, then store it with the position."""
        if self._stops.say(file, pos):
            self._writer.drain()
            self._position.store()

    def _barrier(self, barrier: Barrier) -> None:
        verdicts = self._barriers.concerned(barrier)
        if not verdicts:
            return
        self._rows.release()  # rows before a statement in one group: CREATE … SELECT has none
        self._writer.drain()
        self._position.store()
        taken, stopped = self._barriers.carry_out(barrier, verdicts, self._rows.transaction(barrier.header))
        self._writer.drain()
        self._fold.counted(taken)
        _log.info(
            "statement at the source",
            source=self._started.captured.source,
            sql=_shown(barrier),
            events=taken,
        )
        if stopped is not None:
            raise stopped

    # --- between transactions

    def _between(self) -> None:
        """After each stretch of events: the stream may have moved on without a transaction (rotation, heartbeat)."""
        if self._fold.inside or self._stream.inside:
            return
        if self._started.late:
            self._take_up_late()
        file, pos = self._stream.point
        self._position.moved(file, pos)
        if self._stops.unsaid:
            self._say_stops(file, pos)
        if self._snapshots.active:
            self._advance(file, pos)

    def _advance(self, file: str, pos: int) -> None:
        """The stream stands between transactions: let the snapshots go on."""
        try:
            self._snapshots.advance(file, pos)
        except TableStoppedError as error:
            # Just before here: above all that was sent, and below the snapshots' rows, which stand here.
            before = LogEvent(log.HEARTBEAT, self._clock.now_ms() // 1000, 0, 0, file, pos - 1, pos, b"")
            self._stops.stop(error, before)
            self._say_stops(file, pos)

    def _take_up_late(self) -> None:
        """Define the tables that had to wait, now that the stream has passed what their topics hold, and what is unproven."""
        (file, pos), late, now_ms = self._stream.point, self._started.late, self._clock.now_ms()
        at: LogPoint = (binlog_file_number(file), pos)
        for name in sorted(late):
            ceiling = self._started.captured.topic(name).ceiling
            if (ceiling is None or (self._started.context.epoch, *at, 0) > ceiling) and at > late[name]:
                del late[name]
                try:
                    self._barriers.first_sight(
                        name, self._rows.transaction(TransactionHeader(file, pos, now_ms, 0, None))
                    )
                except TableStoppedError as error:
                    self._stops.stop(error, LogEvent(0, now_ms // 1000, 0, 0, file, pos, pos, b""))

    # --- beside the log

    def _batch_left(self) -> None:
        self._ticker.tick()

    def beat(self) -> None:
        """While something else keeps the loop waiting: say once a second that capture is alive."""
        self._ticker.beat()

    def farewell(self, why: str, *, restarts: bool) -> None:
        """Acknowledge and store what is sent. The last watermark says `why` it is the last, and whether capture begins anew."""
        self._watermarks.ended, self._watermarks.restarts = why, restarts
        self._writer.drain()
        self._ticker.last()
        self._writer.drain()


def _shown(barrier: Barrier) -> str:
    """The statement as a log may have it: rows' values are none of its business."""
    changes_rows = isinstance(barrier.statement, Dml | Unknown)
    return (without_values(barrier.sql) if changes_rows else barrier.sql)[:500]
