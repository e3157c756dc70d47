"""The model's source databases, capture tasks and topics: everything up to Kafka.

A source has rows (key, u1, u2, version) with case-insensitive key and unique values, and a log. With semi-sync a
transaction is in the log before a SELECT sees it: `visible` lags behind. A capture task streams the log into its topic,
reads snapshot chunks between two watermarks, and can be replaced at any moment while it goes on as a zombie.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from consumer.dedup import Deduplicator
from consumer.model import LaneProgress
from schemas.position import DEFINITION_ROW, FIRST_SNAPSHOT_ROW, ZERO, Position
from tests.sim.rules import Rules
from tests.sim.wire import event

if TYPE_CHECKING:
    from tests.sim.world import World

SourceRow = tuple[str, str | None, str | None, int]
"""(key, u1, u2, version)."""


@dataclass(frozen=True)
class Logged:
    pos: int  # start of its transaction
    row: int
    before: SourceRow | None
    after: SourceRow | None
    truncate: bool = False  # all rows are gone


@dataclass(frozen=True)
class Record:
    """A record of a topic. `chunk`: number of the chunk whose end it marks; `definition`: the table's, which it begins with."""

    position: Position
    prev: Position | None
    gen: int
    before: SourceRow | None = None
    after: SourceRow | None = None
    snapshot: bool = False
    chunk: int | None = None
    truncate: bool = False
    definition: bool = False


@dataclass
class Topic:
    records: list[Record] = field(
        default_factory=lambda: [Record((0, 1, 0, DEFINITION_ROW), None, 0, definition=True)]
    )
    stored: dict[int, int] = field(
        default_factory=dict
    )  # gen → index into the log up to which all is acknowledged
    values: list[bytes] = field(default_factory=list)  # of the first records, as they were asked for

    def slice(self, begin: int, end: int) -> list[tuple[int, bytes | None]]:
        """Return the records [begin, end) as Kafka has them."""
        self.values += map(event, self.records[len(self.values) : end])
        return list(enumerate(self.values[begin:end], begin))


class Source:
    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world
        self.rows: dict[str, SourceRow] = {}
        self.log: list[Logged] = []
        self.seen: dict[str, SourceRow] = {}  # what a SELECT sees: rows as of `visible`
        self.visible = 0
        self.pos = 10

    def start_with(self, rows: list[SourceRow]) -> None:
        """Rows from before the log begins."""
        for row in rows:
            self.rows[row[0].lower()] = self.seen[row[0].lower()] = row

    def transact(self, rng: random.Random) -> None:
        """Commit a transaction of a few random row changes; SELECTs see it later."""
        start = len(self.log)
        if self.rows and rng.random() < self.world.truncates:
            self._truncate()
        for _ in range(0 if len(self.log) > start else rng.randint(1, 3)):
            change = self.world.random_change(self, rng)
            if change is None:
                continue
            before, after = change
            if before is not None:
                del self.rows[before[0].lower()]
            if after is not None:
                self.rows[after[0].lower()] = after
            self.log.append(Logged(self.pos, len(self.log) - start, before, after))
            self.world.happened(self, before, after)
        self.pos += 10

    def _truncate(self) -> None:
        """TRUNCATE, a transaction of its own."""
        for row in self.rows.values():
            self.world.happened(self, row, None)
        self.rows = {}
        self.log.append(Logged(self.pos, 0, None, None, truncate=True))

    def show(self) -> None:
        """Let SELECTs see the next transaction."""
        if self.visible < len(self.log):
            pos = self.log[self.visible].pos
            while self.visible < len(self.log) and self.log[self.visible].pos == pos:
                entry = self.log[self.visible]
                if entry.truncate:
                    self.seen.clear()
                if entry.before is not None:
                    self.seen.pop(entry.before[0].lower(), None)
                if entry.after is not None:
                    self.seen[entry.after[0].lower()] = entry.after
                self.visible += 1

    def pos_at(self, index: int) -> int:
        return self.log[index].pos if index < len(self.log) else self.pos


class Capture:
    """A capture task of one assignment (`gen`). Dead after a delivery failure; a zombie when a later one is started."""

    def __init__(self, source: Source, topic: Topic, gen: int, chunks: list[list[str]], rules: Rules) -> None:
        self.source, self.topic, self.gen, self.chunks, self.rules = source, topic, gen, chunks, rules
        self.at = topic.stored[max(topic.stored)] if topic.stored else 0
        # Written before the first event: else a zombie's late record, of events that readers drop, would be the highest.
        topic.stored[gen] = self.at
        self.dead = False
        self.flying: list[Record] = []
        self.reading: tuple[int, int, int, dict[str, SourceRow]] | None = None  # (chunk, low, high, rows)
        self.highest, self.done, self.ordinal = self._tail()

    def _tail(self) -> tuple[Position | None, set[int], int]:
        """Read the topic as its readers do: highest position, finished chunks, next snapshot ordinal."""
        marks = Deduplicator([LaneProgress(0, 0, 0, "", -1, ZERO, 0, "")])
        done: set[int] = set()
        ordinal = FIRST_SNAPSHOT_ROW
        for offset, record in enumerate(self.topic.records):
            ordinal = max(ordinal, record.position[3] + 1 if record.position[3] < 0 else ordinal)
            gen = record.gen if self.rules.zombies_are_dropped else 0
            if not marks.judge(offset, record.position, None, gen) or not self.rules.zombies_are_dropped:
                done |= {record.chunk} if record.chunk is not None else set()
        return (marks.position if self.topic.records else None), done, ordinal

    def step(self, rng: random.Random, failing: float) -> None:
        """Do one thing: deliver, fail, store the position, begin a chunk, or read on."""
        if self.flying and rng.random() < 0.35:
            self._deliver(rng.random() < failing)
        elif not self.flying and rng.random() < 0.2:
            self.topic.stored[self.gen] = self._boundary()
        elif self.reading is None and len(self.done) < len(self.chunks) and rng.random() < 0.4:
            self._select(rng)
        elif self.reading is not None and self.at >= self.reading[2]:
            self._emit()
        elif self.at < len(self.source.log):
            entry = self.source.log[self.at]
            place = (0, 1, entry.pos, entry.row)
            self._send(Record(place, None, self.gen, entry.before, entry.after, truncate=entry.truncate))
            self.at += 1

    @property
    def idle(self) -> bool:
        return not self.flying and self.at == len(self.source.log) and len(self.done) == len(self.chunks)

    def _boundary(self) -> int:
        index = self.at
        while 0 < index < len(self.source.log) and self.source.log[index].row:
            index -= 1
        return min(index, self.reading[2]) if self.reading else index

    def _send(self, record: Record) -> None:
        prev = self.highest
        self.highest = record.position if prev is None else max(prev, record.position)
        self.flying.append(replace(record, prev=prev))

    def _deliver(self, fails: bool) -> None:
        if not fails:
            self.topic.records.append(self.flying.pop(0))
            return
        self.dead = True
        if not self.rules.delivery_failure_leaves_no_gap:
            self.topic.records.extend(self.flying[1:])
        self.flying = []

    def _select(self, rng: random.Random) -> None:
        """Read the next chunk. HIGH: a later end of the log."""
        number = min(n for n in range(len(self.chunks)) if n not in self.done)
        low = self.source.visible if self.rules.low_is_what_select_sees else len(self.source.log)
        rows = {key: self.source.seen[key] for key in self.chunks[number] if key in self.source.seen}
        for _ in range(rng.randint(0, 2)):
            self.source.world.source_step(self.source)
        self.reading = (number, low, max(len(self.source.log), self.at), rows)

    def _emit(self) -> None:
        """Emit the chunk at HIGH, without the keys that the log has changed since LOW, and its end marker."""
        if self.reading is None:
            return
        number, low, high, rows = self.reading
        for entry in self.source.log[low:high]:
            if entry.truncate:
                rows.clear()
            for image in (entry.before, entry.after):
                if image is not None:
                    rows.pop(image[0].lower(), None)
        if not self.rules.positions_are_unique:
            self.ordinal = FIRST_SNAPSHOT_ROW
        pos = self.source.pos_at(high)
        for row in rows.values():
            self._send(Record((0, 1, pos, self.ordinal), None, self.gen, None, row, snapshot=True))
            self.ordinal += 1
        self._send(Record((0, 1, pos, self.ordinal), None, self.gen, snapshot=True, chunk=number))
        self.ordinal += 1
        self.done.add(number)
        self.reading = None
