"""How a capture unit comes up: claim the position, take the tables' state from the topics, define what is new.

The order matters. The gen is claimed durably before the first event. Then every known table's definition is repeated
under the new gen: from that event on readers drop what a zombie may still write, so what stands before it in the topic is
all that counts, and is read.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec
import structlog

from producer.catalog import Catalog
from producer.codec import SourceContext, TransactionContext
from producer.codec_control import encode_definition
from producer.errors import SourceRefusedError
from producer.kafka_writer import KafkaWriter
from producer.positions import PositionStore, Records, check_identity, check_log
from producer.reading import TopicReader
from producer.tables import Captured, TableName, TableState, dotted
from producer.tails import Tail, TopicTails, scan
from producer.topics import EVENTS, Topics
from schemas.findings import START_OVER
from schemas.position import Position, binlog_file_number
from schemas.records import Anchor, StoredPosition

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class Started:
    """What the unit runs with. `tails`: per known table what its topic said; `errors`: tables that are left out.

    `fresh`: the position is a new beginning (first start, or a new snapshot), not a stored one. `late`: new tables whose
    definition must wait until the stream has passed what their topic holds: readers would drop it as old.
    """

    record: StoredPosition
    context: SourceContext
    captured: Captured
    tails: dict[TableName, Tail]
    errors: dict[TableName, str]
    fresh: bool
    late: list[TableName] = field(default_factory=list)


@dataclass(slots=True)
class Term:
    """What a process knows of its assignment, through all its starts. `at_least`: the gen that a coordinator gave, 0
    without one; `claimed`: the last one that this process had."""

    at_least: int = 0
    claimed: int | None = None

    def check(self, source: str, stored: StoredPosition | None) -> None:
        """Raise SourceRefusedError when another process has claimed the source since: with a coordinator it was assigned
        elsewhere, and starting again would only push the rightful one aside: readers would drop what that one writes.

        At its first claim a process tells by the assignment: the gen alone grows with every restart, so it may be above
        that of a later assignment.
        """
        if not self.at_least or stored is None:
            return
        later = stored.assigned > self.at_least
        if later or (self.claimed is not None and stored.gen > self.claimed):
            raise SourceRefusedError(
                f"source {source} is captured by another process now (assignment {stored.assigned}, gen {stored.gen}; "
                f"ours is assignment {self.at_least}): this one was paused, or cut off, and ends"
            )


@dataclass(slots=True)
class Starter:
    """The parts that a start needs, and its steps."""

    catalog: Catalog
    writer: KafkaWriter
    reader: TopicReader
    topics: Topics
    store: PositionStore
    captured: Captured
    patterns: list[str]
    term: Term

    def start(self, *, new_snapshot: bool) -> Started:
        """Claim, recover, define. Raises SourceRefusedError, KafkaRefusedError, TransientSourceError, DeliveryError."""
        names = self.catalog.table_names(self.patterns)
        created = self.topics.ensure((self.captured.topic_of(name) for name in names), EVENTS)
        records = self.store.load(self.reader)
        found = self._scan(names, created, records.newest)
        record = self._record(records, found, new_snapshot=new_snapshot)
        record = self.store.claim(self.writer, self.reader, record, records.older_keys)
        self.term.claimed = record.gen
        context = SourceContext(
            connector="mariadb" if self.catalog.mariadb else "mysql",
            name=self.captured.source, epoch=record.epoch, gen=record.gen,
        )  # fmt: skip
        fresh = records.newest is None or new_snapshot
        started = Started(record, context, self.captured, {}, {}, fresh)
        self._define_all(started, names, found)
        return started

    def _scan(
        self, names: list[TableName], created: set[str], record: StoredPosition | None
    ) -> dict[str, TopicTails]:
        anchors: dict[str, dict[TableName, Anchor]] = defaultdict(dict)
        for name in names:
            anchor = (record.anchors if record else {}).get(dotted(name))
            topic = self.captured.topic_of(name)
            anchors[topic].update({name: anchor} if anchor else {})
        old = {topic: known for topic, known in anchors.items() if topic not in created}
        return {topic: TopicTails() for topic in created} | scan(self.reader, old)

    # --- the record

    def _record(
        self, records: Records, found: dict[str, TopicTails], *, new_snapshot: bool
    ) -> StoredPosition:
        """Return the record to claim: the stored one under the next gen, or a new beginning at the log's end."""
        stored = records.newest
        self.term.check(self.captured.source, stored)
        gen = max([stored.gen if stored else 0, *(tails.gen for tails in found.values())]) + 1
        gen = max(gen, self.term.at_least)
        assigned = max(stored.assigned if stored else 0, self.term.at_least)
        written = max((tails.highest for tails in found.values() if tails.highest), default=None)
        if stored is None and written is not None and not new_snapshot:
            raise SourceRefusedError(
                f"topics of source {self.captured.source} hold events, but {self.store.topic} has no position: it was "
                f"deleted, or another installation uses the prefix: {START_OVER}"
            )
        identity = self.catalog.identity()
        if stored is not None and not new_snapshot:
            check_identity(stored, identity, self.catalog.has_gtids(stored, identity))
            check_log(stored, self.catalog.log_files())
            return msgspec.structs.replace(
                stored, gen=gen, identity=identity, ts_ms=now_ms(), assigned=assigned
            )
        end = self.catalog.log_end()
        if end is None:
            raise SourceRefusedError("the source has no binary log: set log_bin and restart it")
        before = max([stored.epoch if stored else -1, written[0] if written else -1])
        return StoredPosition(
            source=self.captured.source, gen=gen, epoch=before + 1, file=end[0], pos=end[1], identity=identity,
            ts_ms=now_ms(), assigned=assigned,
        )  # fmt: skip

    # --- definitions

    def _define_all(self, started: Started, names: list[TableName], found: dict[str, TopicTails]) -> None:
        known: list[TableName] = []
        for name in names:
            tails = found[self.captured.topic_of(name)]
            topic = self.captured.topic(name)
            topic.ceiling = topic.tail.last = tails.highest
            tail = tails.tables.get(name)
            if tail is not None and self._restore(started, name, tail):
                known.append(name)
        for name in names:
            if name not in self.captured.tables:
                self._define_new(started, name)
        self.writer.drain()
        self._rescan(started, known, found)

    def _restore(self, started: Started, name: TableName, tail: Tail) -> bool:
        """Take over what the topic says, and repeat the definition under the new gen."""
        record = started.record
        started.tails[name] = tail
        in_force = tail.at(binlog_file_number(record.file), record.pos, record.epoch)
        if in_force is None or started.fresh:
            return False
        position, table = in_force
        state = TableState(name, self.captured.topic(name), table, position)
        state.marker_offset = tail.marker_offset
        self.captured.tables[name] = state
        send_definition(self.writer, started.context, state, definition_context(record, position))
        return True

    def _define_new(self, started: Started, name: TableName) -> None:
        reason = self.catalog.unfit(name)
        table = None if reason else self.catalog.table(name)
        if table is None:
            started.errors[name] = reason or "the table is gone"
            _log.error(
                "table left out", source=self.captured.source, table=dotted(name), reason=started.errors[name]
            )
            return
        record, topic = started.record, self.captured.topic(name)
        at = (record.epoch, binlog_file_number(record.file), record.pos)
        if topic.ceiling is not None and (*at, 0) <= topic.ceiling:
            started.late.append(name)
            return
        position = (*at, topic.definition_row(at))
        state = TableState(name, self.captured.topic(name), table, position)
        self.captured.tables[name] = state
        send_definition(self.writer, started.context, state, definition_context(record, position))

    def _rescan(self, started: Started, known: list[TableName], found: dict[str, TopicTails]) -> None:
        """Read what a zombie wrote between the first look and the repeated definitions."""
        names = {self.captured.topic_of(name) for name in known}
        bounds = {name: self.reader.bounds(name) for name in names}
        news = {name: [(max(low, found[name].end), high)] for name, (low, high) in bounds.items()}
        for topic_name, message in self.reader.read_all(news):
            if message.value() is not None:
                found[topic_name].add(message.offset(), message.value())
        for topic_name in names:
            tails, topic = found[topic_name], self.captured.topics[topic_name]
            if tails.highest is not None and (topic.ceiling is None or tails.highest > topic.ceiling):
                topic.ceiling = topic.tail.last = tails.highest
        for name in known:
            state, tail = self.captured.tables[name], started.tails[name]
            state.ahead = {p: t for p, t in tail.definitions.items() if p > state.defined_at}
            state.marker_offset = tail.marker_offset


def definition_context(record: StoredPosition, position: Position) -> TransactionContext:
    """Return a context at `position`; of a repeated definition the file's name is that of the record's series."""
    stem, _, number = record.file.rpartition(".")
    file = record.file if position[1] == int(number) else f"{stem}.{position[1]:0{len(number)}d}"
    return TransactionContext(
        id=f"{file}:{position[2]}", gtid=None, file=file, file_number=position[1], pos=position[2],
        ts_ms=record.ts_ms, server_id=record.identity.server_id, made_ms=now_ms(),
    )  # fmt: skip


def send_definition(
    writer: KafkaWriter,
    context: SourceContext,
    state: TableState,
    transaction: TransactionContext,
    ddl: str | None = None,
) -> None:
    """Send the definition in force at its own position, and remember its offset once acknowledged."""
    if state.defined_at[0] != context.epoch:
        context = msgspec.structs.replace(context, epoch=state.defined_at[0])
    state.topic.note()  # the definition stands lower than what the topic has, and takes its place as the tail
    key, value = encode_definition(
        state.table, context, state.topic.tail, transaction, row=state.defined_at[3], ddl=ddl
    )
    state.topic.raise_ceiling()

    def stored(offset: int) -> None:
        state.definition_offset = offset

    writer.send(state.topic.name, key, value, stored)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
