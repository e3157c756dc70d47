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

from producer import preflight
from producer.barriers import Barriers
from producer.catalog import Catalog, connect_settings, open_catalog
from producer.chunks import Mark
from producer.codec import TransactionContext, mark_last, plain_rows_event
from producer.decoders.errors import DecodeError
from producer.errors import DeliveryError, SourceRefusedError, StreamStoppedError, TransientSourceError
from producer.kafka_settings import producer_settings
from producer.kafka_writer import InterruptedWriteError, KafkaWriter
from producer.log_event import LogEvent
from producer.positions import PositionStore
from producer.reading import TopicReader
from producer.snapshots import Snapshots
from producer.start import Started, Starter, Term, definition_context, now_ms, send_definition
from producer.stream import LogStream, open_stream, source_error
from producer.tables import Captured, dotted
from producer.topics import POSITIONS, RETENTION_MS, WATERMARKS, Topics
from producer.transactions import Barrier, Boundary, Fold, Header, Rows
from schemas.config import Config, SourceConfig
from schemas.findings import START_OVER
from schemas.mysql_catalog import is_selected
from schemas.position import binlog_file_number
from schemas.records import StoredPosition, Watermark, position_topic, watermark_topic

_log = structlog.get_logger("capture")

_TICK = 1.0
_IDLE_WAIT = 0.05
_SNAPSHOT_WAIT = 0.003
_BACKOFF = (0.2, 30.0)
_FAREWELL = 10.0
_REPEAT_DEFINITIONS = RETENTION_MS / 1000 / 7


class SnapshotFinishedError(Exception):
    """`snapshot: only`: everything is read and acknowledged."""


OnWatermark = Callable[[Watermark], None]


def run_capture(
    config: Config,
    source: str,
    stop: Event,
    *,
    new_snapshot: bool = False,
    gen_at_least: int | None = None,
    on_watermark: OnWatermark | None = None,
) -> None:
    """Capture `source` until `stop` is set (or its snapshot is complete, with `snapshot: only`).

    `gen_at_least`: of the assignment (producer.start.Term). `on_watermark`: is given every watermark that is sent.

    Raises SourceRefusedError, KafkaRefusedError, StreamStoppedError, ConfigError: a person must act. Transient errors of
    source and Kafka are retried for ever, with backoff.
    """
    delay = _BACKOFF[0]
    term = Term(gen_at_least or 0)
    while not stop.is_set():
        began = time.monotonic()
        try:
            with Run(
                config, source, stop, new_snapshot=new_snapshot, term=term, on_watermark=on_watermark
            ) as run:
                new_snapshot = False
                run.loop()
        except (InterruptedWriteError, SnapshotFinishedError):
            return
        except (TransientSourceError, DeliveryError) as error:
            delay = _BACKOFF[0] if time.monotonic() - began > 60 else min(delay * 2, _BACKOFF[1])
            _log.warning("capture restarts", source=source, reason=str(error), seconds=round(delay, 1))
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
        on_watermark: OnWatermark | None = None,
    ) -> None:
        self._term = term or Term()
        self._on_watermark = on_watermark
        self._config = config
        self._name = source
        self._source: SourceConfig = config.sources[source]
        self._stop = stop
        self._stack = ExitStack()
        self._new_snapshot = new_snapshot
        self._held: tuple[str, bytes, bytes] | None = None
        self._context_of: tuple[Header, TransactionContext] | None = None
        self._behind = True
        self._events = 0
        self._reported: dict[str, int] = {}
        self._made_ms = now_ms()

    def __enter__(self) -> Run:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None or issubclass(
                kind, TransientSourceError | SourceRefusedError | StreamStoppedError | SnapshotFinishedError
            ):
                self._say_goodbye()
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
        captured = Captured(kafka.prefix, self._name, one_topic=self._source.topics == "source")
        reader = self._stack.enter_context(TopicReader(kafka))
        starter = Starter(
            self._open_catalog(),
            self._writer,
            reader,
            topics,
            self._store,
            captured,
            self._source.tables,
            self._term,
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
            Header(record.file, record.pos, record.ts_ms, 0, None), record.file, record.pos, False
        )
        self._acked = self._resume
        self._stored: object = None
        self._barriers = Barriers(
            self._context, self._captured, self._writer, topics, self._open_catalog,
            lambda db, table: is_selected(self._source.tables, db, table), self._errors,
            lambda state, at: self._snapshots.table_changed(state, Mark((at.file_number, at.pos), at.gtid)),
        )  # fmt: skip
        self._late = set(started.late)
        self._snapshots = Snapshots(self._source, started, self._writer)
        self._stack.callback(self._snapshots.close)
        self._fold = Fold(self._is_captured, lambda: {name[1] for name in self._captured.tables})
        self._stream = self._connect(record)
        self._stack.callback(self._stream.close)
        self._next_tick = self._next_repeat = time.monotonic()
        self._next_repeat += _REPEAT_DEFINITIONS
        _log.info(
            "capture started", source=self._name, gen=record.gen, epoch=record.epoch, file=record.file,
            pos=record.pos, tables=len(self._captured.tables),
        )  # fmt: skip

    def _connect(self, record: StoredPosition) -> LogStream:
        settings = connect_settings(self._source)
        server_id = random.randrange(1 << 30, 1 << 31)  # noqa: S311
        return open_stream(settings, server_id=server_id, file=record.file, pos=record.pos)

    def _open_catalog(self) -> Catalog:
        """The catalogue on a connection that is alive."""
        import pymysql

        try:
            if self._catalog is not None and not self._catalog.alive:
                self._catalog.close()
                self._catalog = None
            if self._catalog is None:
                self._catalog = open_catalog(self._source)
        except pymysql.MySQLError as error:
            raise source_error(error) from error
        return self._catalog

    # --- the loop

    def loop(self) -> None:
        """Read, fold, send, until `stop` is set."""
        while not self._stop.is_set():
            events = self._stream.read(self._patience())
            self._behind = bool(events)
            self._made_ms = now_ms()
            for event in events:
                self._event(event)
            self._between()
            self._writer.flush()
            if time.monotonic() >= self._next_tick:
                self._tick()

    def _patience(self) -> float:
        """How long to wait for the log: not at all with an answer at hand, briefly while one is awaited."""
        if self._snapshots.ready:
            return 0
        return _SNAPSHOT_WAIT if self._snapshots.active else _IDLE_WAIT

    def _event(self, event: LogEvent) -> None:
        try:
            output = self._fold.feed(event)
            match output:
                case Rows():
                    self._rows(output)
                case Barrier():
                    self._barrier(output)
                    output = self._fold.after_barrier(event)
            if isinstance(output, Boundary):
                self._boundary(output)
        except DecodeError as error:
            raise StreamStoppedError(
                f"{event.file}:{event.start}: {error}. The log cannot be followed further: {START_OVER}"
            ) from error

    def _is_captured(self, db: str, table: str) -> bool:
        state = self._captured.tables.get((db, table))
        if state is not None:
            return state.ignored is None
        name = (db, table)
        return (
            name not in self._errors
            and name not in self._late
            and is_selected(self._source.tables, db, table)
        )

    def _rows(self, rows: Rows) -> None:
        context = self._transaction(rows.header)
        name = (rows.table_map.db, rows.table_map.name)
        state = self._captured.tables.get(name) or self._barriers.first_sight(name, context)
        if state is None:
            self._errors.setdefault(name, "its definition is unknown: it was dropped since")
            self._fold.uncaptured(rows)
            return
        kind, body = plain_rows_event(rows.event_type, rows.body)
        codec = state.codec(rows.table_map, self._context)
        records = codec.encode(kind, body, context, rows.first_row)
        self._fold.counted(len(records))
        if not records:
            return
        if self._snapshots.under_way(name):
            self._snapshots.rows_seen(state, _mark(rows.header), codec.keys(kind, body))
        topic = state.topic.name
        if self._held is not None:
            self._writer.send(*self._held)
        self._held = (topic, *records.pop())
        self._writer.send_all(topic, records)
        self._events += len(records) + 1
        if self._writer.full:
            self._writer.flush()

    def _boundary(self, boundary: Boundary) -> None:
        if self._held is not None:
            topic, key, value = self._held
            self._held = None
            self._writer.send(topic, key, mark_last(value))
        self._resume = boundary
        self._snapshots.delivered(boundary.header.gtid)
        if self._snapshots.active:
            self._snapshots.advance(boundary.file, boundary.pos)
        if self._writer.full:
            self._writer.flush()

    def _barrier(self, barrier: Barrier) -> None:
        names = self._barriers.concerned(barrier)
        if not names:
            return
        if self._held is not None:  # rows before a statement in one group: CREATE … SELECT has none
            self._writer.send(*self._held)
            self._held = None
        self._writer.drain()
        self._store_position()
        taken = self._barriers.carry_out(barrier, names, self._transaction(barrier.header))
        self._writer.drain()
        self._fold.counted(taken)
        _log.info("statement at the source", source=self._name, sql=barrier.sql[:500], events=taken)

    def _between(self) -> None:
        """After each stretch of events: the stream may have moved on without a transaction (rotation, heartbeat)."""
        if self._fold.inside:
            return
        if self._late:
            self._take_up_late()
        file, pos = self._stream.point
        if (file, pos) != (self._resume.file, self._resume.pos):
            self._resume = self._resume._replace(file=file, pos=pos)
        if self._snapshots.active:
            self._snapshots.advance(file, pos)

    def _take_up_late(self) -> None:
        """Define the tables that had to wait, now that the stream has passed what their topics hold."""
        file, pos = self._stream.point
        at = (self._context.epoch, binlog_file_number(file), pos, 0)
        for name in sorted(self._late):
            ceiling = self._captured.topic(name).ceiling
            if ceiling is None or at > ceiling:
                self._late.discard(name)
                self._barriers.first_sight(name, self._transaction(Header(file, pos, now_ms(), 0, None)))

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
        boundary, idle = self._resume, not self._behind and not self._fold.inside
        self._writer.mark(lambda: self._acknowledged(boundary, idle))
        if self._source.snapshot == "only" and not self._snapshots.pending:
            self._writer.drain()
            raise SnapshotFinishedError

    def _acknowledged(self, boundary: Boundary, idle: bool) -> None:
        """Everything before `boundary` is in Kafka: say so."""
        self._acked = boundary
        self._send_position()
        self._send_watermark(boundary, idle)

    def _store_position(self) -> None:
        """Store where the last transaction ended; everything sent is acknowledged."""
        self._acked = self._resume
        self._send_position()
        self._writer.drain()

    def _send_position(self) -> None:
        if self._stored == (state := (self._acked, len(self._snapshots.done), self._emitted_markers())):
            return
        self._stored = state
        self._record = msgspec.structs.replace(
            self._record, file=self._acked.file, pos=self._acked.pos, ts_ms=now_ms(),
            snapshot_done=tuple(sorted(self._snapshots.done)), anchors=self._captured.anchors(self._writer.offsets),
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
            error=self._error_text(),
        )  # fmt: skip
        self._writer.send(self._watermarks, self._name.encode(), msgspec.json.encode(watermark))
        if self._on_watermark is not None:
            self._on_watermark(watermark)

    def _error_text(self) -> str | None:
        if not self._errors:
            return None
        return "; ".join(f"{dotted(name)}: {reason}" for name, reason in sorted(self._errors.items()))

    def _repeat_definitions(self) -> None:
        """Long before retention takes the last one away."""
        for state in self._captured.tables.values():
            at = definition_context(self._record, state.defined_at)
            at.ts_ms = at.made_ms  # the time of its first sending would look like a lag
            send_definition(self._writer, self._context, state, at)

    def _say_goodbye(self) -> None:
        """Acknowledge and store what is sent, within a limit: what is not stored now is only sent again."""
        deadline = time.monotonic() + _FAREWELL
        self._writer.stopping = lambda: time.monotonic() > deadline
        try:
            self._writer.drain()
            self._acknowledged(self._resume, idle=False)
            self._writer.drain()
        except (InterruptedWriteError, DeliveryError):
            _log.warning("stopped before Kafka acknowledged everything", source=self._name)


def _mark(header: Header) -> Mark:
    return Mark((binlog_file_number(header.file), header.pos), header.gtid)
