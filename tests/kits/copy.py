"""A copy of a FakeSource's table as capture would write it, chunk by chunk, into a topic that is a list of
records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from schemas.table.model import Table
from schemas.wire.codec import decode_event, encode_event_value
from schemas.wire.copies import CopyMark
from schemas.wire.event import Chunk, EventEnvelope
from tests.kits.apply import FakeSource, Values

Order = Callable[[int], Any]


@dataclass
class CopyOf:
    """`order`: in which the source has its keys, which are numbered as in `source.rows`: `index` is the
    number of an image's, `value` a number's key; by default they are the same. `limit`: rows of a chunk.
    `late`: markers name the one before the last one as `since`. `keys`: it is a key sweep."""

    source: FakeSource
    topic: list[bytes]
    order: Order = lambda key: key
    index: Callable[[Values], int] = lambda image: int(str(image["id"]))
    value: Callable[[int], Any] = lambda key: key
    limit: int = 3
    id: str = "copy-1"
    partial: bool = False
    late: bool = False
    keys: bool = False
    begins: int = -1
    done: bool = False
    markers: list[int] = field(default_factory=list)
    _after: int | None = None
    _read: dict[int, Values] = field(default_factory=dict)
    _planned: int = 0
    _number: int = 0

    def begin(self, table: Table | None = None) -> int:
        """Let the copy begin; returns the offset."""
        self.begins = self._add(
            self.source.event(
                "k" if self.keys else "m",
                definition=table or self.source.table,
                copy=CopyMark(id=self.id, partial=self.partial, keys=self.keys),
            )
        )
        self.markers = [self.begins, self.begins]
        self.plan()
        return self.begins

    def plan(self) -> None:
        """Read the next chunk, as the source is now."""
        keys = sorted(
            (k for k in self.source.rows if self._after is None or self.order(k) > self.order(self._after)),
            key=self.order,
        )
        self._read = {key: self.source.rows[key] for key in keys[: self.limit]}
        self._planned = len(self.topic)

    def emit(self) -> int:
        """Write what is left of the chunk that was read, its marker, and plan the next one. Returns the
        marker's offset."""
        since = [decode_event(raw) for raw in self.topic[self._planned :]]
        if any(event.op in "tp" for event in since):
            self.plan()
            return self.emit()
        touched = {self.index(image) for event in since for image in (event.before, event.after) if image}
        rows = [row for key, row in self._read.items() if key not in touched]
        if self.keys and rows:
            names = self.source.table.key.columns
            keys = tuple(tuple(row[name] for name in names) for row in rows)
            self._add(self._snapshot(self.source.event("k", keys=keys)))
        for row in () if self.keys else rows:
            self._add(self._snapshot(self.source.event("r", None, row)))
        last = len(self._read) < self.limit
        upto = None if last else list(self._read)[-1]
        self._number += 1
        marker = self.source.event(
            "m",
            chunk=Chunk(
                number=self._number, after=self._key(self._after), upto=self._key(upto), first_row=-1,
                rows=len(rows), last=last, repeated=True,
            ),
            copy=CopyMark(
                id=self.id, partial=self.partial, begins=self.begins,
                since=self.markers[-2 if self.late else -1], keys=self.keys,
            ),
        )  # fmt: skip
        self.markers.append(self._add(self._snapshot(marker)))
        self._after, self.done = upto, last
        if not last:
            self.plan()
        return self.markers[-1]

    def all(self) -> None:
        """Write the whole copy without anything in between."""
        self.begin()
        while not self.done:
            self.emit()

    def _key(self, key: int | None) -> tuple[Any, ...] | None:
        if key is None:
            return None
        return (self.value(key),)

    def _snapshot(self, event: EventEnvelope) -> EventEnvelope:
        """Snapshot rows and markers stand at a negative row."""
        era, file, pos, _ = event.source.position
        self.source.previous = (era, file, pos, -5)
        return replace(
            event, source=replace(event.source, position=self.source.previous, row=-5, snapshot="true")
        )

    def _add(self, event: EventEnvelope) -> int:
        self.topic.append(encode_event_value(event))
        return len(self.topic) - 1
