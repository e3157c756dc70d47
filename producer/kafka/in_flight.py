"""Batches of messages that Kafka has not acknowledged yet, and the actions that wait for that. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class ProducedBatch:
    """Messages that were produced together.

    `waiting`: the number of topics with an unacknowledged last message.
    """

    __slots__ = ("marks", "size", "waiting")

    def __init__(self, size: int, waiting: int) -> None:
        self.size = size
        self.waiting = waiting
        self.marks: list[Callable[[], None]] = []


class InFlightBatches:
    """The batches in the order in which they were produced. `size`: their bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._batches: deque[ProducedBatch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add_batch(self, size: int, topics: int) -> ProducedBatch:
        """Add a batch of `size` bytes for a number of topics."""
        batch = ProducedBatch(size, topics)
        self.size += size
        self._batches.append(batch)
        return batch

    def call_when_acknowledged(self, action: Callable[[], None]) -> None:
        """Call `action` once all batches are acknowledged."""
        if self._batches:
            self._batches[-1].marks.append(action)
        else:
            action()

    def drop_acknowledged(self) -> None:
        """Remove the acknowledged batches and call their actions."""
        while self._batches and not self._batches[0].waiting:
            batch = self._batches.popleft()
            self.size -= batch.size
            for action in batch.marks:
                action()
