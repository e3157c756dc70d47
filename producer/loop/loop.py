"""The loop from the log's events to Kafka: a machine that is stepped, in the order of the log.

All it acts on is passed in (`Ports`): producer/capture.py opens connections for it, tests/sim a modelled log, server and broker.
A step is one read of the log with all that follows from it. It waits inside of ports only: for the log, and for
Kafka where something must be acknowledged before the next thing is sent.
"""

from __future__ import annotations

import structlog

from producer.barriers.barriers import Barriers
from producer.barriers.concern import StatementConcern
from producer.barriers.new_tables import NewTables
from producer.decoders.row_codec import TransactionContext
from producer.errors import TableStoppedError
from producer.loop.choice import TableChoice
from producer.loop.copies import TableCopies
from producer.loop.late_tables import LateTables
from producer.loop.position import CapturePosition
from producer.loop.rows import RowSender
from producer.loop.table_stops import TableStops
from producer.loop.ticker import CaptureTicker
from producer.loop.watermarks import WatermarkSender
from producer.ports import Ports
from producer.resume.started import Started
from producer.resume.table_topics import TableTopics
from producer.snapshot.scheduler import Snapshots
from producer.source import Change, UsedUpLog
from producer.sources.changes import Barrier, Boundary, LogMoment, not_undone
from producer.sources.chunk_data import LogMark
from producer.statements.ddl import Dml, Unknown
from producer.statements.shadows import ShadowTables
from producer.statements.tokens import without_values
from producer.tables import TableState
from schemas.config.model import SourceConfig

_log = structlog.get_logger("capture")

_IDLE_WAIT = 0.05
_SNAPSHOT_WAIT = 0.003


class CaptureLoop:
    """One stretch of capture under one gen, from where it `started`; opens the log there.

    `step` and `beat` raise TransientSourceError, DeliveryError, InterruptedWriteError, SourceRefusedError, StreamStoppedError.
    """

    def __init__(self, source: SourceConfig, started: Started, ports: Ports) -> None:
        record, names, writer = started.record, ports.names, ports.writer
        self._started, self._ports, self._clock, self._writer = started, ports, ports.clock, writer
        choice = TableChoice(source.tables, names, started, source.online_ddl.names)
        shadows = ShadowTables(source.online_ddl.names, names, record.shadows)
        self._log = log = ports.open_log(record, choice.captured)
        self._used_up = log if isinstance(log, UsedUpLog) else None
        if self._used_up is not None:
            self._used_up.learn(started.published)
        self._snapshots = snapshots = Snapshots(
            started, writer, ports.open_reader, ports.clock, ports.chunk_rows,
            wanted=source.snapshot != "never", delivered=log.delivered,
        )  # fmt: skip

        def changed(state: TableState, at: TransactionContext) -> None:
            snapshots.table_changed(state, LogMark((at.file_number, at.pos), at.gtid))

        topics = TableTopics(started.captured, ports.topics, ports.reader)
        new_tables = NewTables(
            started, writer, topics, choice.selected, changed, ports.definitions,
            snapshots=source.snapshot != "never",
        )  # fmt: skip
        self._concern = StatementConcern(
            started.captured, choice.selected, names, ports.reaches(lambda: log.objects_changed)
        )
        self._barriers = Barriers(
            started, writer, ports.definitions, choice.selected, changed, new_tables, shadows=shadows
        )
        self._stops = TableStops(started, ports, choice, snapshots)
        self._watermarks = WatermarkSender(started, ports, stops=self._stops)
        self._rows = RowSender(
            started, ports, log=log, new_tables=new_tables, snapshots=snapshots, on_batch=self._batch_left
        )
        self._late = LateTables(
            started, ports.clock, new_tables=new_tables, rows=self._rows, stops=self._stops
        )
        self._position = CapturePosition(started, ports, log=log, snapshots=snapshots, shadows=shadows)
        topics.save = self._position.store_names
        self._copies = TableCopies(
            started,
            ports,
            choice=choice,
            snapshots=snapshots,
            stops=self._stops,
            position=self._position,
            topics=topics,
        )
        self._barriers.made_again = self._copies.made_again
        self._ticker = CaptureTicker(
            started, ports, log=log, position=self._position, rows=self._rows, snapshots=snapshots, stops=self._stops,
            watermarks=self._watermarks, copies=self._copies, only_snapshot=source.snapshot == "only",
        )  # fmt: skip

    def close(self) -> None:
        """Close the log and stop reading chunks; waits for a SELECT in flight."""
        try:
            self._log.close()
        finally:
            self._snapshots.close()

    # --- the log

    def step(self) -> None:
        """Read what the log has, and do what follows from it. Returns in the middle of that when told to stop."""
        stopping = self._ports.stopping
        self._rows.made_ms = self._clock.now_ms()
        for change in self._log.read(self._patience()):
            if change is not None:
                self._take(change)
            if stopping() and not isinstance(change, Barrier):  # what ends with a statement follows it
                return
        self._ticker.behind = self._log.heard
        self._between()
        self._position.note_proof()
        self._writer.flush()
        self._ticker.tick()

    def _patience(self) -> float:
        """Return the seconds to wait for the log: not at all with an answer at hand, briefly while one is awaited."""
        if self._snapshots.ready:
            return 0
        return _SNAPSHOT_WAIT if self._snapshots.tables.active else _IDLE_WAIT

    def _take(self, change: Change) -> None:
        if isinstance(change, Boundary):
            self._boundary(change)
            return
        if isinstance(change, TableStoppedError):
            self._stops.stop(change, self._log.moment)
            return
        try:
            if isinstance(change, Barrier):
                self._barrier(change)
            else:
                self._rows.take(change)
        except TableStoppedError as error:  # everything else goes on
            self._stops.stop(error, self._log.moment)
            if not isinstance(change, Barrier):
                self._log.uncaptured(change)

    def _boundary(self, boundary: Boundary) -> None:
        """A transaction is over."""
        if boundary.stop is not None or boundary.undone:
            self._stop_by_end(boundary)
        self._rows.end()
        if self._used_up is not None and self._used_up.outstanding:
            for error in self._position.use_up(self._used_up):
                self._stops.stop(error, self._log.moment)
        self._position.ended(boundary)
        if self._stops.unsaid:
            self._say_stops(boundary.file, boundary.pos)
        self._snapshots.delivered(boundary.header.gtid)
        if self._copies.due and not self._log.inside:
            self._copy(boundary.file, boundary.pos)
        if self._snapshots.tables.active:
            self._advance(boundary.file, boundary.pos)
        if self._writer.full:
            self._writer.flush()

    def _stop_by_end(self, boundary: Boundary) -> None:
        """Stop the tables that the way a transaction ended concerns."""
        if boundary.stop is not None:
            self._stops.stop(boundary.stop, self._log.moment)
        if boundary.undone:
            server = self._ports.server()
            engines = {name: server.without_transactions(name) for name in boundary.undone}
            if (stop := not_undone(engines)) is not None:
                self._stops.stop(stop, self._log.moment)

    def _say_stops(self, file: str, pos: int) -> None:
        """Have the topics say what stopped, then store it with the position."""
        if self._stops.say(file, pos):
            self._writer.drain()
            self._position.store()

    def _barrier(self, barrier: Barrier) -> None:
        self._barriers.note(barrier)
        verdicts = self._concern.of(barrier)
        if not verdicts:
            return
        self._rows.release()  # rows before a statement in one group: CREATE … SELECT has none
        self._writer.drain()
        self._position.store()
        taken, stopped = self._barriers.carry_out(barrier, verdicts, self._rows.transaction(barrier.header))
        self._writer.drain()
        self._log.counted(taken)
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
        if self._log.inside:
            return
        if self._started.late:
            self._late.take_up(*self._log.point)
        file, pos = self._log.point
        self._position.moved(file, pos)
        if self._stops.unsaid:
            self._say_stops(file, pos)
        if self._used_up is not None and self._used_up.unrecorded:
            self._writer.drain()
            self._position.store()
            self._used_up.recorded()
        if self._copies.due:
            self._copy(file, pos)
        if self._snapshots.tables.active:
            self._advance(file, pos)

    def _copy(self, file: str, pos: int) -> None:
        """The stream stands between transactions: let copies begin, and end."""
        self._copies.advance(file, pos)
        if self._stops.unsaid:
            self._say_stops(file, pos)

    def _advance(self, file: str, pos: int) -> None:
        """The stream stands between transactions: let the snapshots go on."""
        try:
            self._snapshots.advance(file, pos)
        except TableStoppedError as error:
            # Just before here: above all that was sent, and below the snapshots' rows, which stand here.
            self._stops.stop(error, LogMoment(file, pos - 1, self._clock.now_ms()))
            self._say_stops(file, pos)

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
