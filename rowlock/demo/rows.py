"""Counts the rows in the demo's topics. Offsets alone would also count definitions, ends of snapshot
chunks and repetitions.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from confluent_kafka import TopicPartition

from schemas.io.kafka_clients import (
    ClientLog,
    build_client_settings,
    ignore_client_error,
    open_consumer,
    reads_by_offset,
)
from schemas.wire.codec import decode_event
from schemas.wire.event import EventEnvelope
from schemas.wire.position import Position

COUNTED_OPS = frozenset("crud")
GIVE_UP_S = 5.0
_AT_ONCE = 5_000
_POLL_S = 0.1


class TopicRowCount:
    """The rows of one topic, each counted once. `next`: the next offset to add. Pure."""

    def __init__(self) -> None:
        self.next = 0
        self._others: list[int] = []  # few: the offsets of events that are no rows
        self._highest: Position | None = None

    def add_event(self, event: EventEnvelope) -> None:
        position = event.source.position
        # A reader drops events that are not above the highest position (docs/reference/envelope.md).
        new = self._highest is None or position > self._highest
        if new:
            self._highest = position
        if not new or event.op not in COUNTED_OPS:
            self._others.append(self.next)
        self.next += 1

    def count_rows(self, offset: int) -> int:
        """Return the number of rows up to and including `offset`, of those added so far."""
        last = min(offset, self.next - 1)
        return last + 1 - bisect_right(self._others, last)


class RowCounter:
    """Reads the topics of the demo once, from their beginning, as they grow."""

    def __init__(self, bootstrap: str) -> None:
        own = {**reads_by_offset("rowlock-demo"), "log_level": 0}
        self._client: Any = open_consumer(
            build_client_settings(bootstrap, {}, own), log=ClientLog.SILENT, on_error=ignore_client_error
        )
        self._tallies: defaultdict[str, TopicRowCount] = defaultdict(TopicRowCount)

    def close(self) -> None:
        self._client.close()

    def count_rows(self, topic: str, offset: int) -> int:
        """Return the rows of `topic` up to and including `offset`, of those read so far."""
        return self._tallies[topic].count_rows(offset)

    def read_up_to(self, ends: Mapping[str, int]) -> bool:
        """Read on to the offsets `ends` (topic → last). Returns False if Kafka did not return them in
        time.
        """
        deadline = time.monotonic() + GIVE_UP_S
        missing = self._list_missing(ends)
        if not missing:
            return True
        self._client.assign([TopicPartition(topic, 0, self._tallies[topic].next) for topic in missing])
        try:
            while missing and time.monotonic() < deadline:
                self._take_records()
                missing = self._list_missing(ends)
        finally:
            self._client.unassign()
        return not missing

    def _list_missing(self, ends: Mapping[str, int]) -> list[str]:
        return [topic for topic, end in ends.items() if self._tallies[topic].next <= end]

    def _take_records(self) -> None:
        for message in self._client.consume(_AT_ONCE, _POLL_S):
            if message.error() is None and message.offset() == self._tallies[message.topic()].next:
                self._tallies[message.topic()].add_event(decode_event(message.value()))
