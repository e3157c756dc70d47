"""The capture loop, from the log's events to Kafka: a state machine that is advanced step by step, in
the order of the log.

Everything that the loop uses is passed in (`Ports`): producer/capture.py opens connections for it,
tests/sim a modelled log, server and broker. A step is one read of the log with all its effects. It waits
only inside of ports: for the log, and for Kafka where something must be acknowledged before the next
event is sent.
"""

from __future__ import annotations

from producer.barriers.barriers import BarrierHandler
from producer.barriers.impact import StatementImpact
from producer.barriers.new_tables import NewTableCapture
from producer.decoders.row_codec import TransactionContext
from producer.errors import TableStoppedError
from producer.loop.copies import TableCopies
from producer.loop.position import CapturePosition
from producer.loop.rows import RowSender
from producer.loop.table_stops import TableChoice, TableStops
from producer.loop.ticker import CaptureTicker, WatermarkSender
from producer.ports import Clock, Ports
from producer.snapshot.scheduler import SnapshotScheduler
from producer.sources.changes import Barrier, Boundary, LogMoment, TransactionHeader, find_not_undone_stop
from producer.sources.chunk_data import LogMark
from producer.sources.protocols import ConsumedLog, LogChange
from producer.start.started import StartedCapture
from producer.start.table_topics import TableTopics
from producer.statements.shadows import ShadowTables
from producer.tables import TableState
from schemas.config.model import SourceConfig
from schemas.wire.position import DEFINITION_ROW, LogPoint, parse_binlog_file_number


class LateTables:
    """The tables that wait for their definition (`StartedCapture.late`); captures them between transactions.

    Such a table waits until the stream has passed every event in its topic, and every statement that
    leaves its definition unproven.
    """

    def __init__(
        self,
        started: StartedCapture,
        clock: Clock,
        *,
        new_tables: NewTableCapture,
        rows: RowSender,
        stops: TableStops,
    ) -> None:
        self._started, self._clock = started, clock
        self._new_tables, self._rows, self._stops = new_tables, rows, stops

    def take_up(self, file: str, pos: int) -> None:
        """Define the tables that have waited long enough, between transactions at `file`, `pos`."""
        late = self._started.late
        if not late:
            return
        now_ms = self._clock.now_ms()
        at: LogPoint = (parse_binlog_file_number(file), pos)
        for name in sorted(late):
            ceiling = self._started.captured.get_topic(name).ceiling
            above = ceiling is None or (self._started.context.epoch, *at, DEFINITION_ROW) > ceiling
            if above and at > late[name]:
                del late[name]
                header = TransactionHeader(file, pos, now_ms, 0, None)
                try:
                    self._new_tables.take_up_unknown_table(name, self._rows.get_transaction_context(header))
                except TableStoppedError as error:
                    self._stops.stop_tables(error, LogMoment(file, pos - 1, now_ms))


_IDLE_WAIT = 0.05
_SNAPSHOT_WAIT = 0.003


class CaptureLoop:
    """One run of capture under one generation. It opens the log at the position from which `started`
    resumes.

    `step_capture` and `write_heartbeat` raise TransientSourceError, DeliveryError,
    InterruptedWriteError, SourceRefusedError, StreamStoppedError.
    """

    def __init__(self, source: SourceConfig, started: StartedCapture, ports: Ports) -> None:
        record, names, writer = started.record, ports.names, ports.writer
        self._ports, self._writer = ports, writer
        choice = TableChoice(source.tables, names, started, source.online_ddl.names)
        shadows = ShadowTables(source.online_ddl.names, names, record.shadows)
        self._log = log = ports.open_log(record, choice.is_captured)
        if isinstance(log, ConsumedLog):
            log.learn_published(started.published)
        self._snapshots = snapshots = SnapshotScheduler(
            started, writer, ports.open_reader, ports.clock, ports.chunk_rows,
            enabled=source.snapshot != "never", delivered=log.delivered,
        )  # fmt: skip

        def handle_change(state: TableState, at: TransactionContext) -> None:
            snapshots.handle_table_change(state, LogMark((at.file_number, at.pos), at.gtid))

        self._position = CapturePosition(started, ports, log=log, snapshots=snapshots, shadows=shadows)
        topics = TableTopics(started.captured, ports.topics, ports.reader, self._position.store_names)
        new_tables = NewTableCapture(
            started, writer, topics, choice.is_selected, handle_change, ports.definitions,
            snapshots=source.snapshot != "never",
        )  # fmt: skip
        self._concern = StatementImpact(
            started.captured, choice.is_selected, names, ports.reaches(lambda: log.objects_changed)
        )
        self._stops = TableStops(started, ports, choice, snapshots)
        self._copies = TableCopies(
            started,
            ports,
            choice=choice,
            snapshots=snapshots,
            stops=self._stops,
            position=self._position,
            topics=topics,
        )
        self._barriers = BarrierHandler(
            started,
            writer,
            ports.definitions,
            choice.is_selected,
            handle_change,
            new_tables,
            self._copies.handle_recreated_table,
            shadows,
            ports.explain_old_agents,
        )
        self._rows = RowSender(
            started, ports, log=log, new_tables=new_tables, snapshots=snapshots, on_batch=self._has_batch_left
        )
        self._late = LateTables(
            started, ports.clock, new_tables=new_tables, rows=self._rows, stops=self._stops
        )
        self._ticker = CaptureTicker(
            started, ports, log=log, position=self._position, rows=self._rows, snapshots=snapshots,
            stops=self._stops, watermarks=WatermarkSender(started, ports, stops=self._stops),
            copies=self._copies, only_snapshot=source.snapshot == "only",
        )  # fmt: skip

    def close(self) -> None:
        """Close the log and stop reading chunks; waits for a SELECT in flight."""
        try:
            self._log.close()
        finally:
            self._snapshots.close()

    # --- the log

    def step_capture(self) -> None:
        """Read the log once and process the changes. Returns early when capture is asked to stop."""
        stopping = self._ports.stopping
        self._rows.begin_read(self._ports.clock.now_ms())
        for change in self._log.read_changes(self._compute_wait_s()):
            if change is not None:
                self._take_change(change)
            if stopping() and not isinstance(change, Barrier):  # its Boundary may follow
                return
        self._advance_between_transactions()
        self._position.note_proof()
        self._writer.flush()
        self._ticker.run_due_work()

    def _compute_wait_s(self) -> float:
        """Return the seconds to wait for the log: 0 with an answer at hand, a short time while one is
        awaited.
        """
        if self._snapshots.ready:
            return 0
        return _SNAPSHOT_WAIT if self._snapshots.tables.active else _IDLE_WAIT

    def _take_change(self, change: LogChange) -> None:
        if isinstance(change, Boundary):
            self._handle_boundary(change)
            return
        if isinstance(change, TableStoppedError):
            self._stops.stop_tables(change, self._log.moment)
            return
        try:
            if isinstance(change, Barrier):
                self._handle_barrier(change)
            else:
                self._rows.send_rows(change)
        except TableStoppedError as error:  # the other tables go on
            self._stops.stop_tables(error, self._log.moment)
            if not isinstance(change, Barrier):
                self._log.skip_uncaptured(change)

    def _handle_boundary(self, boundary: Boundary) -> None:
        """Process the end of a transaction."""
        if boundary.undone:
            self._stop_not_undone(boundary)
        self._rows.end_transaction()
        for error in self._position.purge_sent_rows():
            self._stops.stop_tables(error, self._log.moment)
        self._position.record_transaction_end(boundary)
        if self._stops.unsaid:
            self._send_stops(boundary.file, boundary.pos)
        self._snapshots.record_delivered(boundary.header.gtid)
        if self._copies.due and not self._log.inside:
            self._advance_copies(boundary.file, boundary.pos)
        if self._snapshots.tables.active:
            self._advance_snapshots(boundary.file, boundary.pos)
        if self._writer.full:
            self._writer.flush()

    def _stop_not_undone(self, boundary: Boundary) -> None:
        """Stop the tables without transactions in which rows were rolled back."""
        server = self._ports.server()
        engines = {name: server.find_nontransactional_engine(name) for name in boundary.undone}
        if (stop := find_not_undone_stop(engines)) is not None:
            self._stops.stop_tables(stop, self._log.moment)

    def _send_stops(self, file: str, pos: int) -> None:
        """Send the pending stops to their topics, then store them with the position."""
        if self._stops.send_pending_stops(file, pos):
            self._writer.drain()
            self._position.store_position()

    def _handle_barrier(self, barrier: Barrier) -> None:
        self._barriers.note_barrier(barrier)
        verdicts = self._concern.list_affected_tables(barrier)
        for stop in self._rows.find_covered_stops(each.table for each in verdicts):
            self._stops.stop_tables(stop, self._log.moment)
        if not verdicts:
            return
        self._rows.release_last_row()  # if rows precede it in its group
        self._writer.drain()
        self._position.store_position()
        taken, stopped = self._barriers.carry_out(
            barrier, verdicts, self._rows.get_transaction_context(barrier.header)
        )
        self._writer.drain()
        self._log.record_position_count(taken)
        if stopped is not None:
            raise stopped

    # --- between transactions

    def _advance_between_transactions(self) -> None:
        """Do the work between transactions.

        The stream may have moved on without a transaction (rotation, heartbeat).
        """
        if self._log.inside:
            return
        file, pos = self._log.point
        self._late.take_up(file, pos)
        self._position.record_log_position(file, pos)
        if self._stops.unsaid:
            self._send_stops(file, pos)
        self._position.record_new_tables()
        if self._copies.due:
            self._advance_copies(file, pos)
        if self._snapshots.tables.active:
            self._advance_snapshots(file, pos)

    def _advance_copies(self, file: str, pos: int) -> None:
        """Let copies begin and end, between transactions."""
        self._copies.advance_copies(file, pos)
        if self._stops.unsaid:
            self._send_stops(file, pos)

    def _advance_snapshots(self, file: str, pos: int) -> None:
        """Let the snapshots continue, between transactions."""
        try:
            self._snapshots.advance_snapshots(file, pos)
        except TableStoppedError as error:
            # Just before this place: above everything that was sent, and below the snapshots' rows,
            # which have this place.
            self._stops.stop_tables(error, LogMoment(file, pos - 1, self._ports.clock.now_ms()))
            self._send_stops(file, pos)

    # --- work alongside the log

    def _has_batch_left(self) -> None:
        self._ticker.run_due_work()

    def write_heartbeat(self) -> None:
        """Report once a second that capture is alive, while the loop is blocked."""
        self._ticker.write_heartbeat()

    def shut_down(self, why: str, *, restarts: bool) -> None:
        """Acknowledge and store what was sent, and send the last watermark.

        `why`: the reason that it is the last one. `restarts`: whether capture begins again.
        """
        self._writer.drain()
        self._ticker.send_final_watermark(why, restarts=restarts)
        self._writer.drain()
