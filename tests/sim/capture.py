"""Capture tasks of the product (producer.start, producer.loop and all below) on a modelled log, server and
Kafka.

Nothing of capture is written here: these are the ports that it acts on, and what happens to its process.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

from consumer.attempt.copies import sweep
from consumer.ordering import recovery
from producer.binlog_format.log_event import BinlogEvent
from producer.decoders import generate
from producer.decoders.generate import compile_function
from producer.definitions import proof as catalog_wait
from producer.definitions.index import StatementIndex
from producer.definitions.logged_statements import ImpactAnalyzer
from producer.definitions.proof import DefinitionReader
from producer.definitions.scan import StatementScan
from producer.errors import DeliveryError, SourceRefusedError, TransientSourceError
from producer.kafka import writer
from producer.kafka.writer import KafkaWriter
from producer.loop import ticker
from producer.loop.loop import CaptureLoop
from producer.ports import Clock, Ports
from producer.snapshot.reader import ChunkReader
from producer.sources.binlog.assembly import MAX_HELD_BYTES, TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.prepared_rows import MAX_PREPARED_BYTES
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ReadChunk
from producer.sources.mariadb.flavour import MariaDBVisibility
from producer.sources.mysql.flavour import MySQLVisibility
from producer.start.positions import CaptureAssignment, PositionStore
from producer.start.startup import CaptureStarter
from producer.tables import CapturedTables
from schemas.config.model import SourceConfig
from schemas.table.names import EXACT
from schemas.wire.codec import decode_copy_request
from schemas.wire.copies import CopyRequest, copy_topic
from schemas.wire.position import LogPoint
from schemas.wire.records import (
    StoredPosition,
    Watermark,
    format_former_table_topic,
    format_position_topic,
)
from tests.sim.binlog import Dump
from tests.sim.kafka import Broker, Client, KilledError, Topic
from tests.sim.server import Log, SimulatedServer
from tests.sim.source import Session, Source
from tests.sim.wire import DB, SOURCE, TABLES

if TYPE_CHECKING:
    from tests.sim.world import PipelineSimulation

PREFIX = "m"
TOPICS = {table: format_former_table_topic(PREFIX, SOURCE, DB, table) for table in TABLES}
EVENTS = TOPICS["t"]
POSITIONS = format_position_topic(PREFIX, SOURCE)
REQUESTS = copy_topic(PREFIX, SOURCE)

_COMPILED: dict[tuple[str, tuple[str, ...]], Any] = {}


def compiled_once(arguments: str, lines: Sequence[str], names: dict[str, Any]) -> Any:
    """Replaces producer.decoders.generate.compile_function: the model has one table, whose decoders are made
    once for all seeds."""
    made = (arguments, tuple(lines))
    if made not in _COMPILED:
        _COMPILED[made] = compile_function(arguments, list(lines), names)
    return _COMPILED[made]


@contextmanager
def in_small() -> Iterator[None]:
    """Let sizes and times be such that a history of a few transactions meets them."""
    with ExitStack() as stack:
        for module, name, value in (
            (generate, "compile_function", compiled_once),
            (writer, "MAX_BATCH_BYTES", 3000),
            (writer, "IN_FLIGHT", 6000),
            (catalog_wait, "_POLL", 0.0),
            (ticker, "_REPEAT_DEFINITIONS", 5.0),
            (sweep, "MAX_QUICK_SWEEP_KEYS", 5),
            (recovery, "MAX_SECONDS", 0.5),  # by the model's clock; other tests have no limit
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@cache
def source_config(*, mysql: bool, snapshot: str) -> SourceConfig:
    """Return the configuration of a source that nobody connects to."""
    return SourceConfig.model_validate({
        "type": "mysql" if mysql else "mariadb", "host": "h", "port": 1, "user": "u", "password": "p",
        "tables": ["d.*"], "snapshot": snapshot,
    })  # fmt: skip


def is_any_copy_due(record: StoredPosition | Watermark) -> bool:
    """Return whether a copy or key sweep waits or runs. A key sweep of a stopped table waits for a copy."""
    return any(
        copy.phase in ("waiting", "running") and not (copy.keys and name in record.stops)
        for name, copy in record.copies.items()
    )


class Reader:
    """Reads chunks beside the stream: the schedule says when."""

    def __init__(self, source: Source, rng: random.Random, started: LogPoint) -> None:
        self._rng = rng
        session: Any = Session(source, rng)
        visibility = MySQLVisibility(source.first_outside) if source.mysql else MariaDBVisibility()
        self._reader = ChunkReader(lambda: session, visibility, started)
        self._asked: deque[ReadChunk] = deque()

    def submit(self, request: ReadChunk) -> None:
        self._asked.append(request)

    def poll_answer(self) -> ChunkRead | ChunkFailed | None:
        if not self._asked or self._rng.random() < 0.5:
            return None
        request = self._asked.popleft()
        if self._rng.random() < 0.05:
            return ChunkFailed(request.request, "the connection was lost")
        return self._reader.read_chunk(request)

    def close(self) -> None: ...


class Requests:
    """What is asked for copies, from an offset on."""

    def __init__(self, broker: Broker, start: int) -> None:
        self._broker, self._next = broker, start

    def poll_requests(self) -> list[tuple[int, CopyRequest | None]]:
        records = self._broker.topics[REQUESTS].records[self._next :]
        self._next += len(records)
        return [(each.offset(), decode_copy_request(each.value() or b"")) for each in records]


class Kept:
    """A spill in memory, whose room may end."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._events: list[BinlogEvent] = []

    def append(self, event: BinlogEvent) -> None:
        if self._rng.random() < 0.02:
            raise OSError(28, "No space left on device")
        self._events.append(event)

    def __iter__(self) -> Iterator[BinlogEvent]:
        yield from self._events

    def close(self) -> None:
        self._events.clear()


class Capture:
    """A capture task. `dead`: it failed, or was killed; `refused`: a person must act; `busy`: it waits for
    Kafka in the middle of a step.

    `gen`: the one that it has claimed, 0 before it has.
    """

    def __init__(self, source: Source, broker: Broker, world: PipelineSimulation) -> None:
        self.source, self.broker, self.world = source, broker, world
        self.dead = self.refused = self.killed = self.busy = False
        self.now = 0.0
        self._drift_ms = world.drifting.choice((0, 3_600_000, -3_600_000))
        self.gen = 0
        self.rng = world.rng
        self.loop: CaptureLoop | None = None
        self._log = Log(source, self.rng, lambda: self.now)
        self.notified: Watermark | None = None
        self._client = Client(broker, self.rng, lambda: world.failing, self._meanwhile)
        self._writer = KafkaWriter(lambda _on_error: self._client, lambda: False)

    @property
    def topic(self) -> Topic:
        return self.broker.topics[EVENTS]

    @property
    def idle(self) -> bool:
        """Whether it has said that everything is captured, snapshots too."""
        notified = self.notified
        end = self.source.binlog.end
        if notified is None or is_any_copy_due(notified):
            return False
        return notified.idle and not notified.snapshot_pending and notified.position[1:3] == end

    @property
    def clock_ms(self) -> int:
        """The clock of its machine, which may be an hour ahead of the source's or behind it."""
        return self.source.now_ms + self._drift_ms

    def step(self) -> None:
        """Start, or take the next stretch of the log; then let the clock go on."""
        self._run(self._go_on)
        self.now += self.rng.choice((0.0, 0.1, 0.4, 1.1))

    def kill(self) -> None:
        """End its process in the middle of whatever it does."""
        self.dead = self.killed = True
        self._client.end(share=0.5)

    def end(self) -> None:
        """Tell its process to end: it stores what is acknowledged. One that waits for Kafka is killed."""
        if self.loop is not None and not self.dead and not self.busy:
            self._run(self._farewell)
        self.kill()

    def _farewell(self) -> None:
        assert self.loop is not None
        self.loop.shut_down("asked to", restarts=False)
        self.loop.close()

    def _go_on(self) -> None:
        if self.loop is None:
            self.loop = self._start()
        else:
            self.loop.step_capture()

    def _run(self, what: Callable[[], None]) -> None:
        self.busy = True
        try:
            what()
        except (DeliveryError, TransientSourceError):
            self.dead = True
            self._client.end()
        except SourceRefusedError as error:
            self.world.refused(self, str(error))
            self.dead = self.refused = True
            self._client.end()
        except KilledError:
            pass
        finally:
            self.busy = False

    def _meanwhile(self) -> None:
        self.world.meanwhile()
        if self.killed:
            raise KilledError

    def _spill(self) -> Kept | None:
        """Return where a large transaction is kept, if it is: else the log is read again."""
        return Kept(self.rng) if self.rng.random() < 0.5 else None

    def _heard(self, watermark: Watermark) -> None:
        self.notified = watermark

    def _make_server(self) -> SimulatedServer:
        return SimulatedServer(self.source, self.rng, self._log)

    def _start(self) -> CaptureLoop:
        world, server = self.world, self._make_server()
        config = source_config(mysql=self.source.mysql, snapshot="initial" if world.snapshot else "never")
        port: Any = server
        binlog = self.source.binlog
        scan = StatementScan(
            lambda file, pos: Dump(binlog, file, pos, self.rng), StatementIndex(), lambda: self.now
        )
        scan.index.set_name_comparison(EXACT.normalize_table)
        server.definitions = definitions = DefinitionReader(config, lambda: port, scan, self.source.show)
        parts: Any = self.broker, PositionStore(POSITIONS), CapturedTables(PREFIX, SOURCE), self._log
        broker, store, captured, opened = parts
        broker.ensure([POSITIONS, REQUESTS], {})
        started = CaptureStarter(
            port, config, self._writer, broker, broker, store, captured, CaptureAssignment()
        ).start_capture(new_snapshot=False)
        self.gen = started.record.gen
        return CaptureLoop(config, started, Ports(
            writer=self._writer, store=store, topics=broker,
            open_log=lambda record, is_captured: BinlogLog(
                server.flavour, record, is_captured, opened.open_at,
                TransactionBuffer(is_captured,
                 limit=600 if self.rng.random() < world.large else MAX_HELD_BYTES, spill=self._spill,
                 prepared_limit=(0, 700, MAX_PREPARED_BYTES)[started.record.gen % 3]),
            ),
            open_reader=lambda at: Reader(self.source, self.rng, at),
            server=lambda: server, names=EXACT, definitions=definitions,
            reaches=lambda changed: ImpactAnalyzer(definitions, lambda: port, changed),
            clock=Clock(lambda: self.now, lambda: self.clock_ms), stopping=lambda: False,
            reader=broker, poll_requests=Requests(broker, started.record.copy_requests).poll_requests,
            on_watermark=self._heard, chunk_rows=2,
        ))  # fmt: skip
