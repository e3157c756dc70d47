"""A source of two servers under one seed: replication, lost and errant transactions, failovers, and the
product's capture across all of them; and the judge of its topics.

`FailoverSimulation(seed).run()` raises Wrong when a row comes twice, goes back or is missing, when a table is
stopped without a cause, or when one that has a cause is not.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from structlog.testing import capture_logs

from producer.binlog_format import log_event as log
from producer.sources.binlog.flavour import ExecutedGtids
from producer.sources.binlog.server_switch import resume_other_log
from producer.sources.changes import LogStart
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.server_state import AnsweringServer, ReplicaChannel
from producer.start.positions import select_record
from schemas.table.model import Table
from schemas.wire.event import EventEnvelope
from schemas.wire.position import LogPoint, Position
from schemas.wire.records import Identity, StoredPosition
from tests.sim.binlog import Binlog, Change, Group, SourceRow, file_name
from tests.sim.capture import POSITIONS, TOPICS, Capture, in_small
from tests.sim.kafka import Broker
from tests.sim.server import SimulatedServer
from tests.sim.source import START_MS, Logged
from tests.sim.truth import Rows, Wrong, carry_out
from tests.sim.wire import COLUMNS, DB, TABLES

KEYS = ("a", "b", "c", "d", "e")
MOST_STEPS = 20_000
_decode = msgspec.json.Decoder(EventEnvelope).decode


@dataclass(frozen=True)
class Committed:
    """A transaction, as it is replicated."""

    gtid: str
    changes: tuple[tuple[str, Change], ...]

    @property
    def tables(self) -> set[str]:
        return {table for table, _ in self.changes}


class _GtidGroup(Group):
    """A transaction of any server."""

    def __init__(self, binlog: Binlog, gtid: str) -> None:
        self._binlog, self._log, self._db, self._xa = binlog, binlog._log, DB, ""
        self.start, self.row, self.gtid = binlog.end, 0, gtid
        source, number = GtidSet.split_gtid(gtid)
        time = (self._log.now_ms * 1000).to_bytes(7, "little")
        head = b"\0" + uuid.UUID(source).bytes + struct.pack("<Q", number)
        self._log.add(log.GTID, head + b"\2" + bytes(16) + time)
        self.sql("BEGIN")


class Server:
    """A server of the source: what tests.sim.source.Source is to the model of one server."""

    mysql = True
    make_set: type[GtidSet] = GtidSet

    def __init__(self, number: int, world: FailoverSimulation) -> None:
        self.number, self.uuid, self.world = number, str(uuid.UUID(int=number)), world
        self.binlog = Binlog(mysql=self.mysql)
        self.log: list[Logged] = []
        self.tables: dict[str, Rows] = {table: {} for table in TABLES}
        self.defined: dict[str, Table] = dict(TABLES)
        self.executed_set = self.make_set()
        self.done: list[Committed] = []
        self.arrived: list[Committed] = []
        """Received, and not applied yet."""
        self.before = {1: self.make_set()}
        self._last = 0

    seen = property(lambda self: self.tables)
    seen_defined = property(lambda self: self.defined)

    @property
    def visible(self) -> int:
        return len(self.log)

    def show(self) -> None: ...

    @property
    def now_ms(self) -> int:
        return START_MS + 10 * self.world.version

    def shown_until(self) -> LogPoint:
        return self.binlog.end

    def executed(self, _count: int) -> str:
        return str(self.executed_set)

    def first_outside(self, executed: str) -> LogPoint | None:
        known = GtidSet.parse(executed)
        return next((each.start for each in self.log if each.gtid not in known), None)

    def read_identity(self) -> Identity:
        gtids = str(self.executed_set) or None
        return Identity(server_uuid=self.uuid, server_id=1, version="9", gtid_set=gtids)

    def read_executed(self, _captured: GtidSet) -> ExecutedGtids:
        return ExecutedGtids(self.executed_set.copy(), self.executed_set.copy())

    def includes(self, now: str, stored: str) -> bool:
        """Whether GTIDs that a server shows include those of a record."""
        return GtidSet.parse(now).covers(GtidSet.parse(stored))

    # --- what happens

    def choose_tables(self, rng: random.Random) -> list[str]:
        """The tables that a transaction may change."""
        del rng
        return sorted(TABLES)

    def number_transaction(self, tables: list[str]) -> str:
        """The GTID of the next transaction, which may change these tables."""
        del tables
        self._last += 1
        return f"{self.uuid}:{self._last}"

    def begin_group(self, gtid: str) -> Group:
        return _GtidGroup(self.binlog, gtid)

    def commit(self, rng: random.Random, keys: tuple[str, ...] = KEYS, most: int = 3) -> Committed:
        """Commit a transaction of its own, of at most that many rows of these keys."""
        changes: list[tuple[str, Change]] = []
        rows = {table: dict(each) for table, each in self.tables.items()}
        tables = self.choose_tables(rng)
        for _ in range(rng.randint(1, most)):
            table, key = rng.choice(tables), rng.choice(keys)
            old = rows[table].get(key)
            new: SourceRow | None = (key, None, None, self.world.next_version())
            if old is not None and rng.random() < 0.25:
                new = None
            changes.append((table, (old, new)))
            carry_out(rows[table], (old, new))
        made = Committed(self.number_transaction(tables), tuple(changes))
        self.apply(made, rng)
        return made

    def apply(self, made: Committed, rng: random.Random) -> None:
        """Write a transaction to the log, and carry it out."""
        self.binlog.set_clock(self.now_ms)
        if rng.random() < 0.15:
            self.binlog.rotate()
            self.before[self.binlog.end[0]] = self.executed_set.copy()
        group = self.begin_group(made.gtid)
        at = 0
        while at < len(made.changes):
            table = made.changes[at][0]
            run = [change for name, change in made.changes[at:]]
            size = next((n for n, (name, _) in enumerate(made.changes[at:]) if name != table), len(run))
            group.rows(self.defined[table], run[:size])
            at += size
        group.commit()
        for table, (old, new) in made.changes:  # a replica that differs changes what it has
            if old is not None:
                self.tables[table].pop(old[0], None)
            if new is not None:
                self.tables[table][new[0]] = new
        self.executed_set.add_logged(made.gtid)
        self.done.append(made)
        self.log.append(Logged(group.start, group.end, made.gtid, committed_ms=self.now_ms))


class _ServerPort(SimulatedServer):
    """A server as capture starts on it."""

    def read_identity(self) -> Identity:
        source: Any = self._source
        found: Identity = source.read_identity()
        return found

    def resume_log(self, stored: StoredPosition) -> LogStart:
        port: Any = self
        if not stored.identity.is_same_server(self.read_identity()):
            return resume_other_log(port, self._log, stored, lambda: None)
        return super().resume_log(stored)

    def has_gtids(self, stored: StoredPosition, now: Identity) -> bool:
        source: Any = self._source
        return bool(source.includes(now.gtid_set or "", stored.identity.gtid_set or ""))

    def has_failover_setting(self) -> bool:
        return True

    def read_executed(self, captured: GtidSet) -> ExecutedGtids:
        source: Any = self._source
        found: ExecutedGtids = source.read_executed(captured)
        return found

    def is_writable(self) -> bool:
        return True

    def list_channels(self) -> list[ReplicaChannel]:
        return []

    def list_gtid_files(self) -> Iterator[tuple[str, str]]:
        source: Any = self._source
        for number in sorted(source.before, reverse=True):
            yield file_name(number), str(source.before[number])

    def identify_server(self) -> AnsweringServer:
        source: Any = self._source
        return AnsweringServer(source.uuid, 1)


class _Task(Capture):
    def _make_server(self) -> SimulatedServer:
        return _ServerPort(self.source, self.rng, self._log)


@dataclass
class _Topic:
    """What a reader makes of a topic."""

    rows: Rows = field(default_factory=dict)
    taken: set[bytes] = field(default_factory=set)
    gtids: set[str] = field(default_factory=set)
    versions: dict[str, int] = field(default_factory=dict)
    highest: Position | None = None
    gen: int = 0
    stopped: bool = False
    wrong: str = ""

    def take(self, event: EventEnvelope) -> None:
        where = event.source
        if where.gen < self.gen or (self.highest is not None and where.position <= self.highest):
            self.gen = max(self.gen, where.gen)
            return
        if where.prev is not None and (self.highest is None or where.prev > self.highest):
            raise Wrong(f"{where.position} follows {where.prev}, which is not there")
        self.gen, self.highest = where.gen, where.position
        self.stopped = self.stopped or event.stop is not None
        if event.op not in "cudr":
            return
        if self.stopped:
            raise Wrong(f"{event} follows a stop")
        before, after = _row(event.before), _row(event.after)
        if where.gtid is not None:
            self.gtids.add(where.gtid)
            self._note_row(msgspec.json.encode((where.gtid, before, after)))
        if before is not None:
            self.rows.pop(before[0], None)
        if after is not None:
            if after[3] < self.versions.get(after[0], 0):
                self.wrong = self.wrong or f"{after} goes back from {self.versions[after[0]]}"
            self.versions[after[0]] = after[3]
            self.rows[after[0]] = after

    def _note_row(self, row: bytes) -> None:
        if row in self.taken:
            self.wrong = self.wrong or f"{row!r} comes twice"
        self.taken.add(row)


def _row(row: Any) -> SourceRow | None:
    return None if row is None else tuple(row[name] for name in COLUMNS)  # type: ignore[return-value]


class FailoverSimulation:
    server_kind: type[Server] = Server

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.drifting = random.Random(seed ^ 0xD21F)
        self.version = 0
        self.failing = rng.choice((0.0, 0.0, 0.03))
        self.snapshot, self.large = rng.random() < 0.5, 0.3
        self.transactions = rng.randint(15, 40)
        self.failovers = rng.randint(1, 3)
        self.errant = rng.choice((0.0, 0.0, 0.3))
        self.losing = rng.random() < 0.5
        self.zombies = rng.random() < 0.4
        self._servers = 0
        self._depth = 0
        self.primary, self.replica = self._make_server(), self._make_server()
        self.may_stop: set[str] = set()
        first = self.primary.commit(rng)  # a record without GTIDs is refused
        self.replica.apply(first, rng)
        self.broker = Broker()
        self.tasks: list[_Task] = []
        self._assign()

    def _make_server(self) -> Server:
        self._servers += 1
        return self.server_kind(self._servers, self)

    def next_version(self) -> int:
        self.version += 1
        return self.version

    # --- what tests.sim.capture asks of its world

    def source_step(self, source: Any) -> None:
        """Let others change the source between two questions."""
        if source is self.primary and self._has_begun and self.rng.random() < 0.3:
            self._commit()

    def meanwhile(self) -> None:
        if self._depth < 2 and self.rng.random() < 0.5:
            self._depth += 1
            try:
                self._step()
            finally:
                self._depth -= 1

    def refused(self, task: Capture, why: str) -> None:
        if task is self.tasks[-1]:
            raise Wrong(f"capture is refused: {why}")

    # --- the run

    @property
    def _has_begun(self) -> bool:
        return POSITIONS in self.broker.topics and bool(self.broker.topics[POSITIONS].records)

    def _assign(self) -> None:
        for task in self.tasks:
            if not (self.zombies and self.rng.random() < 0.5):
                task.kill()
        world: Any = self
        source: Any = self.primary
        self.tasks = [*(each for each in self.tasks if not each.dead), _Task(source, self.broker, world)]

    def _commit(self) -> None:
        if self.transactions <= 0:
            return
        self.transactions -= 1
        self.replica.arrived.append(self.primary.commit(self.rng))

    def _replicate(self) -> None:
        if self.replica.arrived:
            self.replica.apply(self.replica.arrived.pop(0), self.rng)

    def _write_directly(self) -> None:
        self.may_stop |= self.replica.commit(self.rng).tables

    def _fail_over(self) -> None:
        """The primary dies. What has arrived at the replica is applied; a part may not have arrived."""
        self.failovers -= 1
        replica, lost = self.replica, list[Committed]()
        if self.losing and replica.arrived:
            keep = self.rng.randint(0, len(replica.arrived))
            lost = replica.arrived[keep:]
            del replica.arrived[keep:]
        while replica.arrived:
            self._replicate()
        for made in lost:
            self.may_stop |= made.tables
        self.primary = replica
        self.replica = self._make_server()
        self.replica.arrived = list(self.primary.done)  # it is built anew from the new primary's log
        self._assign()

    def _step(self) -> None:
        rng, luck = self.rng, self.rng.random()
        if luck < 0.12 and self._has_begun:
            self._commit()
        elif luck < 0.3:
            self._replicate()
        elif luck < 0.36 and self._has_begun and self.failovers and self.version > 8 and not self._depth:
            self._fail_over()
        elif luck > 1 - self.errant and self.failovers and not self.replica.arrived:
            self._write_directly()
        else:
            task = rng.choice(self.tasks)
            if task.dead and task is self.tasks[-1]:
                self._assign()
            elif not task.dead and not task.busy:
                task.step()
                if rng.random() < 0.01 and not task.busy:
                    task.kill()

    def run(self) -> None:
        """Run to the end; raises Wrong, or whatever the product raised."""
        with capture_logs(), in_small():
            for _ in range(MOST_STEPS):
                self._step()
                if not self.transactions and not self.failovers and self.rng.random() < 0.01:
                    break
            self._settle()
            self._judge()

    def _settle(self) -> None:
        self.failing, self.zombies, self.failovers = 0.0, False, 0
        self._assign()
        for _ in range(MOST_STEPS):
            if self.tasks[-1].idle and not self.tasks[-1].dead:
                return
            self._step()
        raise Wrong("capture does not come to an end")

    # --- the judge

    def allows_stop(self, reason: str) -> bool:
        """Whether a table may stop for this reason, whatever happened."""
        del reason
        return False

    def _read(self, table: str) -> _Topic:
        found = _Topic()
        topic = self.broker.topics.get(TOPICS[table])
        for message in topic.records if topic is not None else ():
            found.take(_decode(message.value() or b""))
        return found

    def _judge(self) -> None:
        values = [(each.key().decode(), each.value()) for each in self.broker.topics[POSITIONS].records]
        record = select_record(values).newest
        assert record is not None
        for table in TABLES:
            found, stopped = self._read(table), f"{DB}.{table}" in record.stops
            if stopped != found.stopped:
                raise Wrong(f"{table}: the record has a stop: {stopped}, its topic: {found.stopped}")
            if found.wrong:
                raise Wrong(f"{table}: {found.wrong}")
            if stopped:
                reason = record.stops[f"{DB}.{table}"].reason
                if table not in self.may_stop and not self.allows_stop(reason):
                    raise Wrong(f"{table} is stopped without a cause: {reason}")
                continue
            rows = self.primary.tables[table]
            if self.snapshot and found.rows != rows:
                raise Wrong(f"{table}: its topic comes to {found.rows}, the source has {rows}")
            if not self.snapshot and any(rows.get(key) != row for key, row in found.rows.items()):
                raise Wrong(f"{table}: its topic comes to {found.rows}, the source has {rows}")


def run_failovers(seed: int) -> int:
    """Run one seed to its end; returns 1. Raises what went wrong."""
    try:
        FailoverSimulation(seed).run()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return 1
