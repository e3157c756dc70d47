"""A run of capture in one thread: a log written by hand, a Kafka that acknowledges when it is asked to, a
clock that only the story moves.

A story is a generator. Each list of events that it yields is what one read of the log brings; when it is
asked for the next one, capture has done with those whatever it does. `Story.notify` runs it to its end, or
until it sets `stop`.

The judges look at what Kafka was given, and when: `judge_positions` (at each stored position everything
before it was acknowledged, and it lies between transactions), `judge_topic` (an unbroken chain in which no
row goes back).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent
from producer.capture import ENDED_AS_ASKED, REPORTED_ERRORS
from producer.decoders.envelope import SourceContext, TopicTail
from producer.definitions.requests import DefinitionPlace, Proof, ProvenDefinition
from producer.kafka.topics import TopicOpenings
from producer.kafka.writer import KafkaWriter
from producer.loop.loop import CaptureLoop
from producer.ports import Clock, Ports
from producer.sources.binlog.assembly import MAX_HELD_BYTES, TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.changes import TimedEnd
from producer.sources.chunk_data import ChunkRead, LowWatermark
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.start.positions import PositionStore
from producer.start.started import StartedCapture
from producer.start.topic_recovery import TableTail
from producer.tables import BegunCopy, CapturedTables, TableName, TableState, TopicState
from schemas.clock import read_clock_ms
from schemas.config.model import SourceConfig
from schemas.table.names import EXACT
from schemas.wire.codec import decode_event, decode_stored_position
from schemas.wire.copies import CopyMark, CopyRequest, RepairLimits
from schemas.wire.event import EventEnvelope as RowEvent
from schemas.wire.position import DEFINITION_ROW, LogPoint, Position, parse_binlog_file_number
from schemas.wire.records import Identity, StoredPosition, Watermark
from tests.kits.log import Log
from tests.kits.row_images import DELETE, INT, UPDATE, WRITE, Made
from tests.stands.chunk_queue import ScriptedChunks

UNUSED: Any = None
"""A port that no story comes to."""
FILE = "binlog.000009"
NUMBER = parse_binlog_file_number(FILE)
TOPIC = "rowlock.b1.bank.acct"
POSITIONS = "rowlock.b1.position"
WATERMARKS = "rowlock.b1.watermark"
DEFINED: Position = (0, 2, 700, DEFINITION_ROW)
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
"""Of the GTIDs of tests.kits.log."""

Change = tuple[int, int | None, int | None]
"""(id, version before, version after) of a row of `acct`; None: there is no such row."""
Events = list[BinlogEvent]


def source_config(*, mysql: bool, snapshot: str) -> SourceConfig:
    """Return the configuration of a source that nobody connects to."""
    return SourceConfig.model_validate({
        "type": "mysql" if mysql else "mariadb", "host": "127.0.0.1", "port": 1, "user": "u", "password": "p",
        "tables": ["bank.*"], "snapshot": snapshot,
    })  # fmt: skip


class Written(NamedTuple):
    """A transaction of the log: where it starts and ends, and how many rows of `acct` it has."""

    start: int
    end: int
    rows: int


class Stored(NamedTuple):
    """A position record, and the acknowledged and the other events of `acct` when Kafka was given it."""

    record: StoredPosition
    acknowledged: list[RowEvent]
    others: list[RowEvent]


class Broker:
    """Kafka's client. `holding`: it acknowledges to those only who wait for it, and `due` messages to
    anybody."""

    def __init__(self) -> None:
        self.holding = False
        self.due = 0
        self.topics: dict[str, list[bytes]] = {}
        self.stored: list[Stored] = []
        self.acknowledged: dict[str, int] = {}
        self._callbacks: deque[tuple[str, int, Callable[[None, Any], None] | None]] = deque()

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        assert partition == 0
        for message in messages:
            values = self.topics.setdefault(topic, [])
            values.append(message["value"])
            self._callbacks.append((topic, len(values) - 1, message.get("callback")))
            if topic == POSITIONS and message["value"] is not None:
                events, known = self.events(), self.acknowledged.get(TOPIC, 0)
                record = decode_stored_position(message["value"])
                self.stored.append(Stored(record, events[:known], events[known:]))
        return len(messages)

    def poll(self, timeout: float) -> None:
        while self._callbacks and (timeout > 0 or not self.holding or self.due):
            self.due = max(0, self.due - 1)
            topic, offset, callback = self._callbacks.popleft()
            self.acknowledged[topic] = offset + 1
            if callback is not None:
                callback(None, SimpleNamespace(topic=lambda topic=topic: topic, offset=lambda at=offset: at))

    def purge(self, **_: object) -> None:
        self._callbacks.clear()

    def events(self) -> list[RowEvent]:
        """What `acct`'s topic was given."""
        return [decode_event(value) for value in self.topics.get(TOPIC, [])]

    def watermarks(self) -> list[Watermark]:
        values = self.topics.get(WATERMARKS, [])
        return [msgspec.json.decode(value, type=Watermark) for value in values if value is not None]


class Story:
    """`bank.acct (id INT PRIMARY KEY, c1 INT)`, where c1 is the row's version; `mysql`: else MariaDB."""

    def __init__(self, *, mysql: bool, snapshot: bool = False, limit: int = MAX_HELD_BYTES) -> None:
        """`limit`: bytes above which a transaction is not held in memory but read a second time.

        What a story may set: `ceiling`, `tails` and `fresh`, what the start finds in the topic; `engines`,
        the tables without transactions; `log_end`, the end of the log as the server reports it; `source_ms`,
        its time; `requests`, what is asked for copies; `proof`, what the catalog proves; `found`, what else
        the start finds; `mode`, the source's `snapshot`.
        """
        self.mysql, self.snapshot, self.limit = mysql, snapshot, limit
        self.made = Made([INT])
        self.log = Log(FILE)
        self.written: list[Written] = []
        self.broker = Broker()
        self.now = 100.0
        self.stop = Event()
        self.repair: RepairLimits | None = RepairLimits(max_rows=1000, max_per_day=3)
        self.ceiling = DEFINED
        self.readers: list[ScriptedChunks] = []
        self.log_end: Callable[[], tuple[str, int] | None] = lambda: self.point
        self.source_ms = 7
        self.engines: dict[tuple[str, str], str] = {}
        self.tails: dict[tuple[str, str], TableTail] = {}
        self.fresh = True
        self.requests: list[CopyRequest] = []
        self.proof: Callable[[DefinitionPlace], Proof] = lambda _place: ProvenDefinition(
            self.made.table, None
        )
        self.found: Callable[[StartedCapture], None] = lambda _started: None
        self.ensured: list[str] = []
        self.waited: list[float] = []
        self.closed = False
        self.mode = ""
        self._polled = 0
        self._telling: Iterator[Events] = iter(())
        self._recent: Events = []
        self._point = 4

    # --- the log

    def transaction(self, *parts: Sequence[Change]) -> Events:
        """Write a transaction with one row event for each of `parts`; returns its events."""
        return self._transaction([self._row_event(part) for part in parts], sum(map(len, parts)))

    def moved(self, old: int, new: int, version: int) -> Events:
        """Write a transaction that gives row `old`, of version 0, the key `new`; returns its events."""
        return self._transaction([(UPDATE, self._image(old, 0) + self._image(new, version))], 1)

    def _transaction(self, row_events: list[tuple[int, bytes]], rows: int, end: str | None = None) -> Events:
        first, start = len(self.log.events), self.log.pos
        if self.mysql:
            self.log.gtid()
            self.log.query("BEGIN")
        else:
            self.log.mariadb_gtid(0)
        for kind, images in row_events:
            self.log.add(log.TABLE_MAP, self.made.table_map)
            self.log.add(kind, self.made.body(kind, [images]))
        if end is None:
            self.log.xid()
        else:
            self.log.query(end)
        self.written.append(Written(start, self.log.pos, rows))
        return self.log.events[first:]

    def _row_event(self, changes: Sequence[Change]) -> tuple[int, bytes]:
        """Return the type and the images of a row event; its changes are all of one kind."""
        (kind,) = {
            WRITE if before is None else DELETE if after is None else UPDATE for _, before, after in changes
        }
        images = [self._image(key, v) for key, *versions in changes for v in versions if v is not None]
        return kind, b"".join(images)

    def _image(self, key: int | None, version: int) -> bytes:
        return self.made.image(key or 0, [version.to_bytes(4, "little")])

    def rolled_back(self, changes: Sequence[Change]) -> Events:
        """Write a transaction that is undone after its rows; a table without transactions keeps them."""
        return self._transaction([self._row_event(changes)], 0, end="ROLLBACK")

    def not_whole(self) -> Events:
        """Write a transaction whose row image lacks a column."""
        kind, images = self._row_event([(1, None, 1)])
        body = bytearray(self.made.body(kind, [images]))
        body[11] &= 1  # of the columns that are there
        events = self._transaction([(kind, images)], 0)
        at = next(i for i, event in enumerate(self.log.events) if event is events[-2])
        events[-2] = self.log.events[at] = events[-2]._replace(body=bytes(body))
        return events

    def truncate(self) -> Events:
        return self.statement("TRUNCATE TABLE acct")

    def statement(self, text: str) -> Events:
        first, start = len(self.log.events), self.log.pos
        if self.mysql:
            self.log.gtid()
        else:
            self.log.mariadb_gtid(log.MARIADB_STANDALONE)
        self.log.query(text)
        self.written.append(Written(start, self.log.pos, 0))
        return self.log.events[first:]

    # --- the snapshot

    @property
    def reads(self) -> int:
        """How often a chunk was asked for."""
        return sum(len(reader.asked) for reader in self.readers)

    def answer(self, rows: Sequence[tuple[int, int]], low: int, request: int = -1) -> None:
        """Answer a request (-1: the last one) with rows (id, version) that hold the first `low` transactions;
        HIGH is the log's end."""
        (reader,) = self.readers
        point = (NUMBER, self.written[low - 1].end if low else 4)
        seen = (
            LowWatermark(None, GtidSet.parse(f"{UUID}:1-{low}" if low else ""))
            if self.mysql
            else LowWatermark(point, None)
        )
        reader.answers.append(ChunkRead(reader.asked[request].request, rows, seen, (NUMBER, self.log.pos)))

    # --- the run

    def tick(self) -> None:
        """Let a second pass."""
        self.now += 1.5

    def read_events(self, timeout: float) -> Events:
        """What capture asks of the log."""
        self.waited.append(timeout)
        events = next(self._telling, None)
        if events is None:
            self.stop.set()
            return []
        if events:
            self._point, self._recent = events[-1].end, events
        return events

    @property
    def point(self) -> tuple[str, int]:
        return FILE, self._point

    def find_evidence(self, _file: str, pos: int) -> tuple[BinlogEvent, ...]:
        return tuple(event for event in self._recent if event.end == pos)

    def close(self) -> None:
        self.closed = True

    def again(self, pos: int, size: int) -> Iterator[Events]:
        """Yield the log from `pos` on, `size` events at a time, as a second reading brings it."""
        events = [event for event in self.log.events if event.start >= pos]
        for at in range(0, len(events), size):
            yield events[at : at + size]

    def poll_requests(self) -> list[tuple[int, CopyRequest | None]]:
        """What capture asks of the requests' topic."""
        first, self._polled = self._polled, len(self.requests)
        return [(offset, each) for offset, each in enumerate(self.requests) if offset >= first]

    def prove_definition(self, place: DefinitionPlace, _name: TableName, /) -> Proof:
        return self.proof(place)

    def _started(self) -> StartedCapture:
        """What a start has found out."""
        topic = TopicState(TOPIC, TopicTail(last=DEFINED), ceiling=self.ceiling)
        name = ("bank", "acct")
        captured = CapturedTables("rowlock", "b1")
        captured.tables = {name: TableState(name, topic, self.made.table, DEFINED, definition_offset=0)}
        captured.topics, captured.known = {TOPIC: topic}, {name}
        if self.fresh and self.tails:
            captured.tables[name].begun = BegunCopy(CopyMark(id="snapshot of era 0"), DEFINED, 0)
        identity = Identity(server_uuid=None, server_id=1, version="11", gtid_set=None)
        record = StoredPosition(source="b1", gen=1, epoch=0, file=FILE, pos=4, ts_ms=7, identity=identity)
        kind = MYSQL_FLAVOUR if self.mysql else MARIADB_FLAVOUR
        context = SourceContext(connector=kind.type, form=kind.table_map, name="b1", epoch=0, gen=1)
        started = StartedCapture(record, context, captured, self.tails, {}, fresh=self.fresh)
        self.found(started)
        return started

    def notify(self, telling: Iterator[Events]) -> None:
        """Run capture through the story, then both judges."""
        self._telling = telling
        source = source_config(
            mysql=self.mysql, snapshot=self.mode or ("initial" if self.snapshot else "never")
        )
        writer = KafkaWriter(lambda _on_error: self.broker, self.stop.is_set)
        started = self._started()
        self.loop = loop = CaptureLoop(source, started, self._ports(writer))
        try:
            while not self.stop.is_set():
                loop.step_capture()
        except REPORTED_ERRORS as error:
            loop.shut_down(str(error), restarts=True)
            raise
        finally:
            loop.close()
        writer.limit_waiting(time.monotonic() + 60)
        loop.shut_down(ENDED_AS_ASKED, restarts=False)
        self.judge_positions()
        self.judge_topic()

    def _ports(self, writer: KafkaWriter) -> Ports:
        server = SimpleNamespace(
            read_timed_end=self._read_timed_end, find_nontransactional_engine=self.engines.get,
            open_topics=self._open_topics, estimate_rows=lambda _name: 7,
            count_partitions=lambda: dict.fromkeys(self.ensured, 1),
        )  # fmt: skip
        story: Any = self
        return Ports(
            writer=writer, store=PositionStore(POSITIONS), topics=server, open_log=self._open_log,
            open_reader=self._open_reader, server=lambda: server, names=EXACT, definitions=story,
            reaches=lambda _changed: UNUSED, clock=Clock(lambda: self.now, read_clock_ms),
            stopping=self.stop.is_set, poll_requests=self.poll_requests, repair=lambda _name: self.repair,
        )  # fmt: skip

    def _read_timed_end(self) -> TimedEnd | None:
        end = self.log_end()
        return None if end is None else TimedEnd(*end, self.source_ms)

    def _open_topics(self, topics: Iterable[str]) -> TopicOpenings:
        made = [topic for topic in topics if topic not in self.ensured]
        self.ensured += made
        return TopicOpenings(set(made), {}, set())

    def _open_log(self, record: StoredPosition, captured: Callable[[str, str], bool]) -> BinlogLog:
        kind, assembly = (
            MYSQL_FLAVOUR if self.mysql else MARIADB_FLAVOUR,
            TransactionBuffer(captured, limit=self.limit),
        )
        return BinlogLog(kind, record, captured, lambda *_: self, assembly)

    def _open_reader(self, _started: LogPoint) -> ScriptedChunks:
        self.readers.append(ScriptedChunks())
        return self.readers[-1]

    # --- the judges

    def judge_positions(self) -> None:
        """Every stored position lies between transactions, and all rows before it were acknowledged when it
        was stored."""
        for record, acknowledged, others in self.broker.stored:
            cut = [each for each in self.written if each.start < record.pos < each.end]
            assert not cut, f"position {record.pos} lies inside the transaction {cut}"
            there = sum(event.op in "cud" and event.source.pos < record.pos for event in acknowledged)
            expected = sum(each.rows for each in self.written if each.end <= record.pos)
            assert there == expected, (
                f"position {record.pos} is stored with {there} of {expected} rows acknowledged"
            )
            late = [event.source.position for event in others if event.source.pos < record.pos]
            assert not late, f"position {record.pos} is stored before {late} are acknowledged"
            over = sum(each.end <= record.pos for each in self.written)
            assert record.identity.gtid_set == self._gtids(over), "the GTIDs of what lies before it"
            assert [proof.end for proof in record.proof] == [record.pos][: record.pos - 4], (
                "the event before proves it"
            )
            self._judge_anchor(record, acknowledged)

    def _judge_anchor(self, record: StoredPosition, acknowledged: list[RowEvent]) -> None:
        """The highest position that a record stores for the topic is one that the topic has, and none up
        to `end` is above it.

        A higher one would be the `prev` of the next event after a start: a gap to readers.
        """
        anchor = record.anchors.get("bank.acct")
        if anchor is None or anchor.highest is None:
            return
        assert max(anchor.definition or 0, anchor.marker or 0, anchor.stop or 0) <= anchor.end, (
            "it is not of one moment"
        )
        positions = [event.source.position for event in acknowledged]
        assert anchor.highest <= max([self.ceiling, *positions]), "its topic may never have that"
        assert anchor.highest >= max([self.ceiling, *positions[: anchor.end + 1]]), (
            "an event would be dropped"
        )

    def _gtids(self, count: int) -> str | None:
        """Return the set of the first `count` transactions."""
        if not count:
            return None
        if not self.mysql:
            return f"0-1-{count}"
        return f"{UUID}:1-{count}" if count > 1 else f"{UUID}:1"

    def judge_topic(self) -> None:
        """Positions rise without a gap, and no row goes back."""
        before, newest = DEFINED, dict[int, int]()
        for event in self.broker.events():
            assert event.source.prev == before, "a gap"
            assert event.source.position > before, "readers would drop it"
            before = event.source.position
            if event.after is not None:
                key, version = int(str(event.after["id"])), int(str(event.after["c1"]))
                assert version >= newest.get(key, version), f"row {key} goes back to {version} at {before}"
                newest[key] = version

    def rows_left(self) -> dict[int, int]:
        """What a reader of the topic holds: id → version."""
        rows: dict[int, int] = {}
        for event in self.broker.events():
            if event.op == "t":
                rows.clear()
            if event.before is not None:
                rows.pop(int(str(event.before["id"])), None)
            if event.after is not None:
                rows[int(str(event.after["id"]))] = int(str(event.after["c1"]))
        return rows
