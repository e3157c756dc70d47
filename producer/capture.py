"""The capture unit: one source's log into its topics, from a stored position on, until it is told to stop.

`run_capture` keeps the unit alive: transient errors of the source and delivery errors of Kafka end a run, and the next one
starts from the stored position under the next gen. `Run` is one such stretch. Everything happens on one thread, in
the order of the log; only snapshot chunks are read on helper threads (producer/snapshots.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event

import msgspec
import structlog

from producer import log_event as log
from producer import preflight
from producer.assembly import Assembly
from producer.barriers import Barriers
from producer.catalog import Catalog, connect_settings, open_catalog
from producer.chunks import Mark
from producer.codec import TransactionContext, mark_last, plain_rows_event
from producer.ddl import Dml, Unknown, without_values
from producer.decoders.errors import DecodeError
from producer.definitions.proof import Definitions
from producer.definitions.scan import StatementScan, statement_scan
from producer.errors import (
    DeliveryError,
    SourceRefusedError,
    StreamStoppedError,
    TableStoppedError,
    TransientSourceError,
)
from producer.flavours.known import flavour_of
from producer.kafka_settings import producer_settings
from producer.kafka_writer import InterruptedWriteError, KafkaWriter, fitting
from producer.log_event import LogEvent
from producer.positions import PositionStore
from producer.proof import Evidence, Proofs
from producer.proving import ProvenLog
from producer.reaches import Reaches
from producer.reading import TopicReader
from producer.snapshots import Snapshots
from producer.spill import spilling
from producer.start import Started, Starter, Term, definition_context, now_ms, send_definition, send_stop
from producer.stops import Cause, Stopped, event_position, of_decoding, too_large
from producer.stream import LogStream, source_error
from producer.tables import Captured, TableName, dotted
from producer.topics import POSITIONS, RETENTION_MS, WATERMARKS, Topics
from producer.transaction_stream import TransactionStream
from producer.transactions import Barrier, Boundary, Fold, Header, Output, Rows, not_undone
from schemas.codec import encode_watermark
from schemas.config import Config, SourceConfig
from schemas.findings import START_OVER
from schemas.mysql_catalog import is_selected
from schemas.position import STOP_ROW, binlog_file_number
from schemas.records import SNAPSHOT_COMPLETE, TableStop, Watermark, position_topic, watermark_topic

_log = structlog.get_logger("capture")

_TICK = 1.0
_IDLE_WAIT = 0.05
_SNAPSHOT_WAIT = 0.003
_BACKOFF = (0.2, 30.0)
_FAREWELL = 10.0
ENDED_AS_ASKED = "capture was asked to end"
#: How often the source is asked, while it is idle, whether its log is still the one that is read.
_LOOK = 10.0
_REPEAT_DEFINITIONS = RETENTION_MS / 1000 / 7


class SnapshotFinishedError(Exception):
    """`snapshot: only`: everything is read and acknowledged."""

    def __str__(self) -> str:
        return SNAPSHOT_COMPLETE


OnWatermark = Callable[[Watermark], None]
OnTrouble = Callable[[str], None]


def run_capture(
    config: Config,
    source: str,
    stop: Event,
    *,
    new_snapshot: bool = False,
    gen_at_least: int | None = None,
    on_watermark: OnWatermark | None = None,
    on_trouble: OnTrouble | None = None,
) -> None:
    """Capture `source` until `stop` is set (or its snapshot is complete, with `snapshot: only`).

    `gen_at_least`: of the assignment (producer.start.Term). `on_watermark`: is given every watermark that is sent;
    `on_trouble`: why it begins anew.

    Raises SourceRefusedError, KafkaRefusedError, StreamStoppedError, ConfigError: a person must act. Transient errors of
    source and Kafka are retried for ever, with backoff.
    """
    delay = _BACKOFF[0]
    term = Term(gen_at_least or 0)
    scan = statement_scan(config.sources[source])
    while not stop.is_set():
        began = time.monotonic()
        try:
            with Run(
                config,
                source,
                stop,
                new_snapshot=new_snapshot,
                term=term,
                scan=scan,
                on_watermark=on_watermark,
            ) as run:
                new_snapshot = False
                run.loop()
        except (InterruptedWriteError, SnapshotFinishedError):
            return
        except (TransientSourceError, DeliveryError) as error:
            delay = _BACKOFF[0] if time.monotonic() - began > 60 else min(delay * 2, _BACKOFF[1])
            _log.warning("capture restarts", source=source, reason=str(error), seconds=round(delay, 1))
            if on_trouble is not None:
                on_trouble(str(error))
            stop.wait(delay * random.uniform(0.5, 1.0))  # noqa: S311


class Run:
    """One stretch of capture under one gen. Use as a context manager; `loop` returns when `stop` is set."""

    def __init__(
        self,
        config: Config,
        source: str,
        stop: Event,
        *,
        new_snapshot: bool,
        term: Term | None = None,
        scan: StatementScan | None = None,
        on_watermark: OnWatermark | None = None,
    ) -> None:
        self._term = term or Term()
        self._on_watermark = on_watermark
        self._config = config
        self._name = source
        self._source: SourceConfig = config.sources[source]
        scan = scan or statement_scan(self._source)
        self._definitions = Definitions(self._source, self._open_catalog, scan, self._beat)
        self._stop = stop
        self._stack = ExitStack()
        self._new_snapshot = new_snapshot
        self._held: tuple[str, bytes, bytes] | None = None
        self._context_of: tuple[Header, TransactionContext] | None = None
        self._behind = True
        self._running = False
        self._events = 0
        self._reported: dict[str, int] = {}
        self._made_ms = now_ms()
        self._ended: str | None = None
        self._restarts = False

    def __enter__(self) -> Run:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        try:
            if kind is None or issubclass(
                kind, TransientSourceError | SourceRefusedError | StreamStoppedError | SnapshotFinishedError
            ):
                self._say_goodbye(error)
        finally:
            self._stack.close()

    # --- coming up

    def _start(self) -> None:
        preflight.require_source(self._config, self._name)
        kafka = self._config.kafka
        self._writer = KafkaWriter(producer_settings(kafka), self._stop.is_set)
        self._stack.callback(self._writer.abandon)
        self._catalog: Catalog | None = None
        self._stack.callback(lambda: self._catalog.close() if self._catalog else None)
        topics = Topics(kafka)
        self._store = PositionStore(position_topic(kafka.prefix, self._name))
        topics.ensure([self._store.topic], POSITIONS)
        self._watermarks = watermark_topic(kafka.prefix, self._name)
        topics.ensure([self._watermarks], WATERMARKS)
        self._log = ProvenLog(connect_settings(self._source))
        captured = Captured(kafka.prefix, self._name)
        reader = self._stack.enter_context(TopicReader(kafka))
        self._names = self._open_catalog().names
        self._patterns = self._names.patterns(self._source.tables)
        self._definitions.scan.index.compare(self._names.same)
        starter = Starter(
            self._open_catalog(),
            self._definitions,
            self._writer,
            reader,
            topics,
            self._store,
            captured,
            self._source,
            self._term,
            self._log,
        )
        self._begin(starter.start(new_snapshot=self._new_snapshot), topics)

    def _begin(self, started: Started, topics: Topics) -> None:
        record = started.record
        self._record = record
        self._started = started
        self._captured = started.captured
        self._context = started.context
        self._errors = started.errors
        self._resume = Boundary(
            Header(record.file, record.pos, record.ts_ms, 0, None), record.file, record.pos, False,
            prepared=record.prepared,
        )  # fmt: skip
        self._proof = Proofs(record, flavour_of(self._source).captured_gtids)
        self._noted = self._acked = self._resume
        self._acked_proof = self._evidence()
        self._stored: object = None
        self._barriers = Barriers(
            self._context, self._captured, self._writer, topics, self._selected, self._errors,
            lambda state, at: self._snapshots.table_changed(state, Mark((at.file_number, at.pos), at.gtid)),
            self._definitions, started, self._source.snapshot != "never", self._names,
            Reaches(self._definitions, self._open_catalog, lambda: self._fold.objects_changed, self._names),
        )  # fmt: skip
        self._late = started.late
        self._snapshots = Snapshots(self._source, started, self._writer)
        self._stack.callback(self._snapshots.close)
        self._fold = Fold(self._is_captured, record.prepared)
        self._stream = TransactionStream(self._connect, record.file, record.pos, self._assembly())
        self._stack.callback(self._stream.close)
        self._next_tick = self._next_repeat = self._next_look = time.monotonic()
        self._next_repeat += _REPEAT_DEFINITIONS
        _log.info(
            "capture started", source=self._name, gen=record.gen, epoch=record.epoch, file=record.file,
            pos=record.pos, tables=len(self._captured.tables),
        )  # fmt: skip

    def _assembly(self) -> Assembly:
        if self._source.large_transactions == "spill":
            return Assembly(self._is_captured, spill=spilling(self._config.state_dir / "spill"))
        return Assembly(self._is_captured)

    def _connect(self, file: str, pos: int) -> LogStream:
        return self._log.open(self._proof.latest(), file, pos)

    def _open_catalog(self) -> Catalog:
        """The catalogue on a connection that is alive."""
        import pymysql

        try:
            if self._catalog is not None and not self._catalog.alive:
                self._catalog.close()
                self._catalog = None
            if self._catalog is None:
                self._catalog = open_catalog(self._source, (self._config.kafka.prefix, self._name))
        except pymysql.MySQLError as error:
            raise source_error(error) from error
        return self._catalog

    # --- the loop

    def loop(self) -> None:
        """Read, fold, send, until `stop` is set."""
        self._running = True
        told_to_stop = self._stop.is_set
        while not told_to_stop():
            self._made_ms = now_ms()
            for event in self._stream.read(self._patience()):
                self._event(event)
                if told_to_stop():
                    return
            self._behind = self._stream.heard
            self._between()
            self._note_proof()
            self._writer.flush()
            if time.monotonic() >= self._next_tick:
                self._tick()

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
            if isinstance(output, Rows):
                self._rows(output)
            elif isinstance(output, Barrier):
                self._barrier(output)
        except TableStoppedError as error:  # everything else goes on
            self._stop_tables(error, event)
            if isinstance(output, Rows):
                self._fold.uncaptured(output)
        except DecodeError as error:
            raise StreamStoppedError(
                f"{event.file}:{event.start}: {error}. The log cannot be followed further: {START_OVER}"
            ) from error
        if isinstance(output, Barrier):
            output = self._fold.after_barrier(event)
        if isinstance(output, Boundary):
            self._stop_by_end(output, event)
            self._boundary(output)

    def _stop_by_end(self, boundary: Boundary, event: LogEvent) -> None:
        """Stop the tables that the way a transaction ended concerns."""
        if boundary.stop is not None:
            self._stop_tables(boundary.stop, event)
        if boundary.undone:
            catalog = self._open_catalog()
            engines = {name: catalog.without_transactions(name) for name in boundary.undone}
            if (stop := not_undone(engines)) is not None:
                self._stop_tables(stop, event)

    def _stop_tables(self, error: TableStoppedError, event: LogEvent) -> None:
        """Publish nothing of the tables from `event` on; their topics say so at its transaction's end."""
        number = binlog_file_number(event.file)
        cause = Cause(self._context.epoch, event.file, number, event.start, event.timestamp * 1000)
        for part in error.parts:
            names = part.tables if part.tables is not None else self._captured.known
            for place, name in enumerate(sorted({self._names.same(each) for each in names})):
                if name not in self._captured.stopped:
                    self._stop_table(name, part, cause, place)

    def _stop_table(self, name: TableName, error: TableStoppedError, cause: Cause, number: int) -> None:
        if name not in self._captured.known:  # nothing of it was ever published
            self._errors[name] = str(error)
            _log.error("table left out", source=self._name, table=dotted(name), reason=str(error))
            return
        stop = cause.stop(name, error)
        self._captured.stop(name, Stopped(stop, place=cause.place(number)))
        self._snapshots.forget(name)
        self._late.pop(name, None)
        _log.error(
            "table stopped", source=self._name, table=dotted(name), cause=stop.cause, reason=stop.reason,
            remedy=stop.remedy, file=stop.file, pos=stop.pos,
        )  # fmt: skip

    def _say_stops(self, file: str, pos: int) -> None:
        """Send the stops that their topics do not have yet, then store them with the position."""
        at = (self._context.epoch, binlog_file_number(file), pos)
        said = False
        for name in sorted(self._captured.unsaid):
            stopped, topic = self._captured.stopped[name], self._captured.topic(name)
            topic.note()
            position = event_position(stopped.place, topic.ceiling, (*at, STOP_ROW))
            if position is None:
                continue
            stopped.position = position
            self._captured.unsaid.discard(name)
            send_stop(self._writer, self._context, self._captured, name, self._record)
            said = True
        if said:
            self._writer.drain()
            self._store_position()

    def _selected(self, db: str, table: str) -> bool:
        return is_selected(self._patterns, db, table)

    def _is_captured(self, db: str, table: str) -> bool:
        name = self._names.same((db, table))
        state = self._captured.tables.get(name)
        if state is not None:
            return state.ignored is None
        return (
            name not in self._errors
            and name not in self._captured.stopped
            and name not in self._late
            and self._selected(*name)
        )

    def _rows(self, rows: Rows) -> None:
        context = self._transaction(rows.header)
        name = self._names.same((rows.table_map.db, rows.table_map.name))
        state = self._captured.tables.get(name) or self._barriers.first_sight(name, context)
        if state is None:
            self._errors.setdefault(name, "its definition is unknown: it was dropped since")
            self._fold.uncaptured(rows)
            return
        try:
            kind, body = plain_rows_event(rows.event_type, rows.body)
            codec = state.codec(rows.table_map, self._context)
            records = codec.encode(kind, body, context, rows.first_row)
        except DecodeError as error:
            raise of_decoding(name, error) from error
        fit, size = fitting(records)
        if fit < len(records):
            key, value = records[fit]
            codec.forget(records, fit, context)
            self._send_rows(state.topic.name, records, size)
            raise too_large(name, key, len(key) + len(value))
        self._fold.counted(fit)
        if not records:
            return
        if self._snapshots.under_way(name):
            self._snapshots.rows_seen(state, _mark(rows.header), codec.keys(kind, body))
        self._send_rows(state.topic.name, records, size)

    def _send_rows(self, topic: str, records: list[tuple[bytes, bytes]], size: int) -> None:
        """Send rows of `size` bytes, all but the last one of all: that one may be the transaction's last."""
        if not records:
            return
        writer = self._writer
        if self._held is not None:
            writer.send(*self._held)
        self._events += len(records)
        key, value = records.pop()
        self._held = (topic, key, value)
        writer.send_all(topic, records, size - len(key) - len(value))
        if writer.full:
            writer.flush()
            if time.monotonic() >= self._next_tick:  # a transaction may be larger than what is read at once
                self._tick()

    def _boundary(self, boundary: Boundary) -> None:
        if self._held is not None:
            topic, key, value = self._held
            self._held = None
            self._writer.send(topic, key, mark_last(value))
        self._resume = boundary
        self._proof.ended(boundary.header.gtid)
        if self._captured.unsaid:
            self._say_stops(boundary.file, boundary.pos)
        self._snapshots.delivered(boundary.header.gtid)
        if self._snapshots.active:
            self._advance(boundary.file, boundary.pos)
        if self._writer.full:
            self._writer.flush()

    def _barrier(self, barrier: Barrier) -> None:
        verdicts = self._barriers.concerned(barrier)
        if not verdicts:
            return
        if self._held is not None:  # rows before a statement in one group: CREATE … SELECT has none
            self._writer.send(*self._held)
            self._held = None
        self._writer.drain()
        self._store_position()
        taken, stopped = self._barriers.carry_out(barrier, verdicts, self._transaction(barrier.header))
        self._writer.drain()
        self._fold.counted(taken)
        _log.info("statement at the source", source=self._name, sql=_shown(barrier), events=taken)
        if stopped is not None:
            raise stopped

    def _between(self) -> None:
        """After each stretch of events: the stream may have moved on without a transaction (rotation, heartbeat)."""
        if self._fold.inside or self._stream.inside:
            return
        if self._late:
            self._take_up_late()
        file, pos = self._stream.point
        if (file, pos) != (self._resume.file, self._resume.pos):
            self._resume = self._resume._replace(file=file, pos=pos)
        if self._captured.unsaid:
            self._say_stops(file, pos)
        if self._snapshots.active:
            self._advance(file, pos)

    def _advance(self, file: str, pos: int) -> None:
        """The stream stands between transactions: let the snapshots go on."""
        try:
            self._snapshots.advance(file, pos)
        except TableStoppedError as error:
            # Just before here: above all that was sent, and below the snapshots' rows, which stand here.
            before = LogEvent(log.HEARTBEAT, now_ms() // 1000, 0, 0, file, pos - 1, pos, b"")
            self._stop_tables(error, before)
            self._say_stops(file, pos)

    def _note_proof(self) -> None:
        """Keep what proves the log up to where capture may resume; it came with the last events, or was kept before."""
        if self._noted is not self._resume:
            self._noted = self._resume
            self._proof.note(self._stream.evidence(self._resume.file, self._resume.pos))

    def _evidence(self) -> Evidence:
        return Evidence(self._proof.latest(), self._proof.gtid_set)

    def _take_up_late(self) -> None:
        """Define the tables that had to wait, now that the stream has passed what their topics hold, and what is unproven."""
        file, pos = self._stream.point
        at = (self._context.epoch, binlog_file_number(file), pos, 0)
        for name in sorted(self._late):
            ceiling = self._captured.topic(name).ceiling
            if (ceiling is None or at > ceiling) and at[1:3] > self._late[name]:
                del self._late[name]
                try:
                    self._barriers.first_sight(name, self._transaction(Header(file, pos, now_ms(), 0, None)))
                except TableStoppedError as error:
                    self._stop_tables(error, LogEvent(0, now_ms() // 1000, 0, 0, file, pos, pos, b""))

    def _beat(self) -> None:
        """While the log is scanned for statements: end when told to, and say once a second that capture is alive."""
        if self._stop.is_set():
            raise InterruptedWriteError
        self._writer.flush()
        if self._running and time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + _TICK
            self._note_proof()
            boundary, evidence = self._resume, self._evidence()
            self._writer.mark(lambda: self._acknowledged(boundary, idle=False, evidence=evidence))

    def _transaction(self, header: Header) -> TransactionContext:
        if self._context_of is None or self._context_of[0] is not header:
            context = TransactionContext(
                id=header.id, gtid=header.gtid, file=header.file, file_number=binlog_file_number(header.file),
                pos=header.pos, ts_ms=header.ts_ms, server_id=header.server_id, made_ms=self._made_ms,
            )  # fmt: skip
            self._context_of = (header, context)
        return self._context_of[1]

    # --- once a second

    def _tick(self) -> None:
        now = time.monotonic()
        self._next_tick = now + _TICK
        # Between transactions: one may have a row held back, and counts its rows.
        if now >= self._next_repeat and not self._fold.inside:
            self._next_repeat = now + _REPEAT_DEFINITIONS
            self._repeat_definitions()
        boundary = self._resume
        idle = not self._behind and not self._fold.inside and not self._stream.inside
        evidence = self._evidence()
        self._writer.mark(lambda: self._acknowledged(boundary, idle, evidence))
        if idle and now >= self._next_look:
            self._next_look = now + _LOOK
            self._require_log_end()
        if self._source.snapshot == "only" and not self._snapshots.pending:
            self._writer.drain()
            raise SnapshotFinishedError

    def _require_log_end(self) -> None:
        """Raise TransientSourceError when the log ends before what was read of it.

        A server that is reset goes on sending heartbeats from the file that it has deleted.
        """
        end, point = self._open_catalog().log_end(), self._stream.point
        if end is None or (binlog_file_number(end[0]), end[1]) < (binlog_file_number(point[0]), point[1]):
            ends = "there is none" if end is None else f"it ends at {end[0]}:{end[1]}"
            raise TransientSourceError(f"the log was read up to {point[0]}:{point[1]}, and now {ends}")

    def _acknowledged(self, boundary: Boundary, idle: bool, evidence: Evidence) -> None:
        """Everything before `boundary` is in Kafka: say so."""
        self._acked, self._acked_proof = boundary, evidence
        self._send_position()
        self._send_watermark(boundary, idle)

    def _store_position(self) -> None:
        """Store where the last transaction ended; everything sent is acknowledged."""
        self._note_proof()
        self._acked, self._acked_proof = self._resume, self._evidence()
        self._send_position()
        self._writer.drain()

    def _send_position(self) -> None:
        state = (self._acked, len(self._snapshots.done), self._emitted_markers(), len(self._captured.stopped))
        if self._stored == state:
            return
        self._stored = state
        self._record = msgspec.structs.replace(
            self._record, file=self._acked.file, pos=self._acked.pos, ts_ms=now_ms(),
            snapshot_done=tuple(sorted(self._snapshots.done)), anchors=self._captured.anchors(self._writer.offsets),
            stops=self._captured.stops(), prepared=self._acked.prepared, proof=self._acked_proof.proofs,
            identity=msgspec.structs.replace(self._record.identity, gtid_set=self._acked_proof.gtid_set),
        )  # fmt: skip
        self._store.send(self._writer, self._record)

    def _emitted_markers(self) -> int:
        return sum(state.marker_offset or 0 for state in self._captured.tables.values())

    def _send_watermark(self, boundary: Boundary, idle: bool) -> None:
        offsets = self._writer.offsets
        topics = {
            t: o
            for t in self._captured.topics
            if (o := offsets.get(t)) is not None and self._reported.get(t) != o
        }
        self._reported.update(topics)
        now = now_ms()
        watermark = Watermark(
            source=self._name, gen=self._context.gen,
            position=(self._context.epoch, binlog_file_number(boundary.file), boundary.pos, -1),
            file=boundary.file, commit_ts_ms=now if idle else boundary.header.ts_ms, ts_ms=now, idle=idle,
            snapshot_pending=tuple(sorted(self._snapshots.pending)), topics=topics, events=self._events,
            error=self._error_text(), stops=self._visible_stops(), left_out=self._left_out(), ended=self._ended,
            restarts=self._restarts,
        )  # fmt: skip
        self._writer.send(self._watermarks, self._name.encode(), encode_watermark(watermark))
        if self._on_watermark is not None:
            self._on_watermark(watermark)

    def _visible_stops(self) -> dict[str, TableStop]:
        """The stops of tables that are to be captured: one that is not selected is nobody's trouble."""
        return {
            dotted(name): stopped.stop
            for name, stopped in sorted(self._captured.stopped.items())
            if self._selected(*name)
        }

    def _left_out(self) -> dict[str, str]:
        return {dotted(name): reason for name, reason in sorted(self._errors.items())}

    def _error_text(self) -> str | None:
        return "; ".join(f"{name}: {reason}" for name, reason in self._left_out().items()) or None

    def _repeat_definitions(self) -> None:
        """Long before retention takes the last one away."""
        for state in self._captured.tables.values():
            if state.name in self._captured.stopped:
                continue
            at = definition_context(self._record, state.defined_at)
            at.ts_ms = at.made_ms  # the time of its first sending would look like a lag
            send_definition(self._writer, self._context, state, at)
        for name, stopped in self._captured.stopped.items():
            if stopped.position is not None:
                send_stop(self._writer, self._context, self._captured, name, self._record)

    def _say_goodbye(self, error: BaseException | None) -> None:
        """Acknowledge and store what is sent, within a limit: what is not stored now is only sent again. The last watermark
        says why it is the last."""
        self._ended = str(error) if error and str(error) else ENDED_AS_ASKED
        self._restarts = isinstance(error, TransientSourceError)
        deadline = time.monotonic() + _FAREWELL
        self._writer.stopping = lambda: time.monotonic() > deadline
        try:
            self._writer.drain()
            self._note_proof()
            self._acknowledged(self._resume, idle=False, evidence=self._evidence())
            self._writer.drain()
        except (InterruptedWriteError, DeliveryError):
            _log.warning("stopped before Kafka acknowledged everything", source=self._name)


def _shown(barrier: Barrier) -> str:
    """The statement as a log may have it: rows' values are none of its business."""
    changes_rows = isinstance(barrier.statement, Dml | Unknown)
    return (without_values(barrier.sql) if changes_rows else barrier.sql)[:500]


def _mark(header: Header) -> Mark:
    return Mark((binlog_file_number(header.file), header.pos), header.gtid)
