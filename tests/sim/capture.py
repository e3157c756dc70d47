"""Capture tasks of the product (producer.resume.startup, producer.loop and all below) on a modelled log, server and Kafka.

Nothing of capture is written here: these are the ports that it acts on, and what happens to its process.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

from producer.binlog_format.log_event import LogEvent
from producer.decoders import generate
from producer.decoders.source import compiled
from producer.definitions.places import Place, Proof, Proven
from producer.errors import DeliveryError, TransientSourceError
from producer.flavours.mariadb import MARIADB, MariaDBVisibility
from producer.flavours.mysql import MYSQL, MySQLVisibility
from producer.kafka import writer
from producer.kafka.writer import KafkaWriter
from producer.loop import ticker
from producer.loop.loop import CaptureLoop
from producer.ports import Clock, Ports
from producer.resume.positions import LogFile, PositionStore
from producer.resume.startup import CaptureAssignment, Starter
from producer.snapshot.chunks import ChunkFailed, ChunkRead, LogPoint, ReadChunk
from producer.snapshot.reader import ChunkReader
from producer.sources.binlog.assembly import LIMIT, Assembly
from producer.sources.binlog.log_proof import check_event
from producer.sources.survey import Surveyed
from producer.tables import Captured, TableName
from schemas.config.model import SourceConfig
from schemas.table.names import EXACT
from schemas.wire.records import Identity, LogProof, StoredPosition, Watermark, position_topic, table_topic
from tests.sim.binlog import FILE
from tests.sim.kafka import Broker, Client, KilledError, Topic
from tests.sim.source import BEGIN, Session, Source
from tests.sim.wire import SOURCE, TABLE

if TYPE_CHECKING:
    from tests.sim.world import World

NAME: TableName = (TABLE.db, TABLE.name)
PREFIX = "m"
EVENTS = table_topic(PREFIX, SOURCE, *NAME)
POSITIONS = position_topic(PREFIX, SOURCE)
NOBODY: Any = None
"""A port that the simulation does not come to."""


_COMPILED: dict[tuple[str, tuple[str, ...]], Any] = {}


def compiled_once(arguments: str, lines: Sequence[str], names: dict[str, Any]) -> Any:
    """Stands in for producer.decoders.source.compiled: the model has one table, whose decoders are made once for all seeds."""
    made = (arguments, tuple(lines))
    if made not in _COMPILED:
        _COMPILED[made] = compiled(arguments, list(lines), names)
    return _COMPILED[made]


@contextmanager
def in_small() -> Iterator[None]:
    """Let capture's sizes and times be such that a history of a few transactions meets them."""
    with ExitStack() as stack:
        for module, name, value in (
            (generate, "compiled", compiled_once),
            (writer, "BATCH", 3000),
            (writer, "IN_FLIGHT", 6000),
            (ticker, "_REPEAT_DEFINITIONS", 5.0),
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


class Server:
    """What capture asks of the source beside its log."""

    names = EXACT

    def __init__(self, source: Source) -> None:
        self._source = source
        self.flavour = MYSQL if source.mysql else MARIADB

    def table_names(self, _patterns: Sequence[str]) -> list[TableName]:
        return [NAME]

    def charsets(self) -> dict[int, str]:
        return {}

    def identity(self) -> Identity:
        gtids = self._source.executed(len(self._source.log)) or None if self._source.mysql else None
        return Identity(server_uuid=None, server_id=1, version="9", gtid_set=gtids)

    def log_end(self) -> tuple[str, int]:
        return FILE, self._source.binlog.end

    def log_files(self) -> list[LogFile]:
        return [LogFile(*self.log_end())]

    def survey(self, names: Collection[TableName]) -> dict[TableName, Surveyed]:
        return dict.fromkeys(names, Surveyed(TABLE, None))

    def has_gtids(self, _stored: StoredPosition, _now: Identity) -> bool:
        return True

    def without_transactions(self, _name: TableName) -> str | None:
        return None

    # --- definitions: nothing changes them

    def all_at(self, _place: Place, names: Collection[TableName]) -> dict[TableName, Proof]:
        return dict.fromkeys(names, Proven(TABLE, None))

    def at(self, _place: Place, _name: TableName) -> Proof:
        return Proven(TABLE, None)

    def partitioning(self, _place: Place, _name: TableName) -> str | None:
        return ""


class LogPort:
    """The source's log from a place on: a few events at a time."""

    def __init__(self, source: Source, rng: random.Random) -> None:
        self._source, self._rng = source, rng
        self._next = 0
        self._recent: list[LogEvent] = []

    def head(self, _file: str) -> tuple[LogProof, ...]:
        return ()

    def require(self, stored: StoredPosition, _files: Sequence[LogFile]) -> tuple[LogProof, ...]:
        self._check(stored.proof)
        return stored.proof

    def open(self, proofs: Sequence[LogProof], _file: str, pos: int) -> LogPort:
        self._check(proofs)
        found = LogPort(self._source, self._rng)
        events = self._source.binlog.events
        found._next = next((at for at, event in enumerate(events) if event.start >= pos), len(events))
        return found

    def _check(self, proofs: Sequence[LogProof]) -> None:
        for proof in proofs:
            check_event(proof, next(e for e in self._source.binlog.events if e.start == proof.start))

    def read(self, _timeout: float) -> list[LogEvent]:
        begin = self._next
        events = self._source.binlog.events[begin : begin + self._rng.randint(0, 12)]
        self._next += len(events)
        self._recent = events or self._recent
        return events

    @property
    def point(self) -> tuple[str, int]:
        events = self._source.binlog.events
        return FILE, events[self._next - 1].end if self._next else BEGIN

    @property
    def at_end(self) -> bool:
        return self._next == len(self._source.binlog.events)

    def evidence(self, _file: str, pos: int) -> tuple[LogEvent, ...]:
        return tuple(event for event in self._recent if event.end == pos)

    def close(self) -> None: ...


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

    def poll(self) -> ChunkRead | ChunkFailed | None:
        if not self._asked or self._rng.random() < 0.5:
            return None
        request = self._asked.popleft()
        if self._rng.random() < 0.05:
            return ChunkFailed(request.request, "the connection was lost")
        return self._reader.read(request)

    def close(self) -> None: ...


class Capture:
    """A capture task. `dead`: it failed, or was killed; `busy`: it waits for Kafka in the middle of a step."""

    def __init__(self, source: Source, broker: Broker, world: World) -> None:
        self.source, self.broker, self.world = source, broker, world
        self.dead = self.killed = self.busy = False
        self.now = 0.0
        self.rng = world.rng
        self.loop: CaptureLoop | None = None
        self._log = LogPort(source, self.rng)
        self._told: Watermark | None = None
        self._client = Client(broker, self.rng, lambda: world.failing, self._meanwhile)
        self._writer = KafkaWriter(lambda _on_error: self._client, lambda: False)

    @property
    def topic(self) -> Topic:
        return self.broker.topics[EVENTS]

    @property
    def idle(self) -> bool:
        """Whether it has said that everything is captured, snapshots too."""
        told = self._told
        end = self.source.binlog.end
        return told is not None and told.idle and not told.snapshot_pending and told.position[2] == end

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
        self.loop.farewell("asked to", restarts=False)
        self.loop.close()

    def _go_on(self) -> None:
        if self.loop is None:
            self.loop = self._start()
        else:
            self.loop.step()

    def _run(self, what: Callable[[], None]) -> None:
        self.busy = True
        try:
            what()
        except (DeliveryError, TransientSourceError):
            self.dead = True
            self._client.end()
        except KilledError:
            pass
        finally:
            self.busy = False

    def _meanwhile(self) -> None:
        self.world.meanwhile()
        if self.killed:
            raise KilledError

    def _heard(self, watermark: Watermark) -> None:
        self._told = watermark

    def _start(self) -> CaptureLoop:
        world, server = self.world, Server(self.source)
        config = source_config(mysql=self.source.mysql, snapshot="initial" if world.snapshot else "never")
        port: Any = server
        parts: Any = self.broker, PositionStore(POSITIONS), Captured(PREFIX, SOURCE), self._log
        broker, store, captured, opened = parts
        broker.ensure([POSITIONS], {})
        started = Starter(
            port, port, self._writer, broker, broker, store, captured, config, CaptureAssignment(), opened
        ).start(new_snapshot=False)
        return CaptureLoop(config, started, Ports(
            writer=self._writer, store=store, topics=broker, open_log=opened.open,
            open_reader=lambda at: Reader(self.source, self.rng, at),
            assembly=lambda is_captured: Assembly(is_captured, limit=self.rng.choice((LIMIT, LIMIT, 600))),
            server=lambda: server, names=EXACT, definitions=server, reaches=lambda _changed: NOBODY,
            clock=Clock(lambda: self.now, lambda: int(self.now * 1000)), stopping=lambda: False,
            on_watermark=self._heard, chunk_rows=2,
        ))  # fmt: skip
