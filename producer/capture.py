"""The capture unit: one source's log into its topics, from a stored position on, until it is told to stop.

`run_capture` keeps the unit alive: transient errors of the source and delivery errors of Kafka end a stretch, and the next
one starts from the stored position under the next gen. Here connections are opened and closed; what is done with them, in the
order of the log and on one thread, is producer/loop. Only snapshot chunks are read on helper threads (producer/snapshot/reader.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event

import pymysql
import structlog

from producer.checks import preflight
from producer.definitions.proof import Definitions
from producer.definitions.reaches import Reaches
from producer.definitions.scan import StatementScan, statement_scan
from producer.errors import (
    DeliveryError,
    SnapshotFinishedError,
    SourceRefusedError,
    StreamStoppedError,
    TransientSourceError,
)
from producer.flavours.known import flavour_of
from producer.kafka.settings import producer_settings
from producer.kafka.topic_reader import TopicReader
from producer.kafka.topics import POSITIONS, WATERMARKS, Topics
from producer.kafka.writer import InterruptedWriteError, KafkaWriter, kafka_client
from producer.loop.loop import CaptureLoop
from producer.ports import Clock, OnWatermark, Ports
from producer.resume.positions import PositionStore
from producer.resume.proven_log import ProvenLog
from producer.resume.startup import CaptureAssignment, Starter, now_ms
from producer.snapshot.chunks import LogPoint
from producer.snapshot.reader import BackgroundReader, ChunkReader, chunk_connections
from producer.sources.binlog.assembly import Assembly
from producer.sources.binlog.log_stream import source_error
from producer.sources.binlog.spill import spilling
from producer.sources.catalog import Catalog, connect_settings, open_catalog
from producer.tables import Captured
from schemas.config.model import Config, SourceConfig
from schemas.wire.records import position_topic, watermark_topic

_log = structlog.get_logger("capture")

_BACKOFF = (0.2, 30.0)
_FAREWELL = 10.0
ENDED_AS_ASKED = "capture was asked to end"
#: Ends of a stretch that its last watermark tells.
TOLD = (TransientSourceError, SourceRefusedError, StreamStoppedError, SnapshotFinishedError)

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

    `gen_at_least`: of the assignment (producer.resume.startup.CaptureAssignment). `on_watermark`: is given every watermark that is sent;
    `on_trouble`: why it begins anew.

    Raises SourceRefusedError, KafkaRefusedError, StreamStoppedError, ConfigError: a person must act. Transient errors of
    source and Kafka are retried for ever, with backoff.
    """
    delay = _BACKOFF[0]
    term = CaptureAssignment(gen_at_least or 0)
    scan = statement_scan(config.sources[source])
    while not stop.is_set():
        began = time.monotonic()
        try:
            shell = CaptureShell(config, source, stop, term=term, scan=scan, on_watermark=on_watermark)
            with shell.capturing(new_snapshot=new_snapshot) as loop:
                new_snapshot = False
                while not stop.is_set():
                    loop.step()
        except (InterruptedWriteError, SnapshotFinishedError):
            return
        except (TransientSourceError, DeliveryError) as error:
            delay = _BACKOFF[0] if time.monotonic() - began > 60 else min(delay * 2, _BACKOFF[1])
            _log.warning("capture restarts", source=source, reason=str(error), seconds=round(delay, 1))
            if on_trouble is not None:
                on_trouble(str(error))
            stop.wait(delay * random.uniform(0.5, 1.0))  # noqa: S311


class LiveCatalog:
    """The source's catalogue, on a connection that is alive; `topics`: see Catalog."""

    def __init__(self, source: SourceConfig, topics: tuple[str, str]) -> None:
        self._source = source
        self._topics = topics
        self._open: Catalog | None = None

    def __call__(self) -> Catalog:
        """Return it, on another connection if the one before is lost. Raises TransientSourceError, SourceRefusedError."""
        try:
            if self._open is not None and not self._open.alive:
                self.close()
            if self._open is None:
                self._open = open_catalog(self._source, self._topics)
        except pymysql.MySQLError as error:
            raise source_error(error) from error
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class CaptureShell:
    """What one stretch of capture runs with: connections to the source and to Kafka, threads, time."""

    def __init__(
        self,
        config: Config,
        name: str,
        stop: Event,
        *,
        term: CaptureAssignment,
        scan: StatementScan,
        on_watermark: OnWatermark | None = None,
    ) -> None:
        self._config = config
        self._name = name
        self._source = config.sources[name]
        self._stop = stop
        self._term = term
        self._scan = scan
        self._on_watermark = on_watermark
        self._catalog = LiveCatalog(self._source, (config.kafka.prefix, name))
        self._log = ProvenLog(connect_settings(self._source))
        self._loop: CaptureLoop | None = None

    @contextmanager
    def capturing(self, *, new_snapshot: bool) -> Iterator[CaptureLoop]:
        """Bring a stretch of capture up under a gen of its own, and end it with a last watermark that says why."""
        preflight.require_source(self._config, self._name)
        with ExitStack() as stack:
            writer = KafkaWriter(kafka_client(producer_settings(self._config.kafka)), self._stop.is_set)
            stack.callback(writer.abandon)
            stack.callback(self._catalog.close)
            self._loop = loop = self._started(stack, writer, new_snapshot=new_snapshot)
            stack.callback(loop.close)
            try:
                yield loop
            except TOLD as error:
                self._farewell(loop, writer, str(error), restarts=isinstance(error, TransientSourceError))
                raise
            self._farewell(loop, writer, "", restarts=False)

    def _started(self, stack: ExitStack, writer: KafkaWriter, *, new_snapshot: bool) -> CaptureLoop:
        """Start, from the stored position or anew, and return what goes on from there."""
        kafka = self._config.kafka
        topics = Topics(kafka)
        store = PositionStore(position_topic(kafka.prefix, self._name))
        topics.ensure([store.topic], POSITIONS)
        topics.ensure([watermark_topic(kafka.prefix, self._name)], WATERMARKS)
        reader = stack.enter_context(TopicReader(kafka))
        catalog = self._catalog()
        self._scan.index.compare(catalog.names.same)
        definitions = Definitions(self._source, self._catalog, self._scan, lambda: self._beat(writer))
        started = Starter(
            catalog, definitions, writer, reader, topics, store, Captured(kafka.prefix, self._name), self._source,
            self._term, self._log,
        ).start(new_snapshot=new_snapshot)  # fmt: skip
        record = started.record
        loop = CaptureLoop(
            self._source,
            started,
            Ports(
                writer=writer, store=store, topics=topics, open_log=self._log.open, open_reader=self._open_reader,
                assembly=self._assembly, server=self._catalog, names=catalog.names, definitions=definitions,
                reaches=lambda changed: Reaches(definitions, self._catalog, changed, catalog.names),
                clock=Clock(time.monotonic, now_ms), stopping=self._stop.is_set, on_watermark=self._on_watermark,
            ),
        )  # fmt: skip
        _log.info(
            "capture started", source=self._name, gen=record.gen, epoch=record.epoch, file=record.file,
            pos=record.pos, tables=len(started.captured.tables),
        )  # fmt: skip
        return loop

    def _assembly(self, captured: Callable[[str, str], bool]) -> Assembly:
        if self._source.large_transactions == "spill":
            return Assembly(captured, spill=spilling(self._config.state_dir / "spill"))
        return Assembly(captured)

    def _open_reader(self, started: LogPoint) -> BackgroundReader:
        settings = connect_settings(self._source)
        visibility = flavour_of(self._source).visibility(settings)
        return BackgroundReader(ChunkReader(chunk_connections(settings), visibility, started))

    def _beat(self, writer: KafkaWriter) -> None:
        """While the log is scanned for statements: end when told to, and say once a second that capture is alive."""
        if self._stop.is_set():
            raise InterruptedWriteError
        writer.flush()
        if self._loop is not None:
            self._loop.beat()

    def _farewell(self, loop: CaptureLoop, writer: KafkaWriter, why: str, *, restarts: bool) -> None:
        """Have everything stored, within a limit: what is not stored now is only sent again."""
        deadline = time.monotonic() + _FAREWELL
        writer.stopping = lambda: time.monotonic() > deadline
        try:
            loop.farewell(why or ENDED_AS_ASKED, restarts=restarts)
        except (InterruptedWriteError, DeliveryError):
            _log.warning("stopped before Kafka acknowledged everything", source=self._name)
