"""Reading of a task's next Arrow batches while one is applied.

Spark's JVM makes a batch only while its socket is read, and a socket's buffer holds a fraction of a
batch. Without reading ahead, the worker and the JVM would take turns; with it, both work at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

DEPTH = 2
"""Batches read ahead; bounds the memory (a batch is a few MiB)."""
FULL = 1_000
"""Rows of a batch from which on reading ahead is worth a thread. A live pipeline's batches are smaller."""


def read_ahead(batches: Iterable[Any], *, full: int = FULL, depth: int = DEPTH) -> Iterator[Any]:
    """Yield `batches` in order; from the first one with `full` rows on, a thread reads up to `depth`
    ahead.

    An error of `batches` is raised where the batch would have come. Closing the iterator lets the thread
    end after the batch that it is reading.
    """
    source = iter(batches)
    for batch in source:
        if batch.num_rows >= full:
            yield from _read_ahead(batch, source, depth)
            return
        yield batch


def _read_ahead(first: Any, source: Iterator[Any], depth: int) -> Iterator[Any]:
    reader = _ReadAheadThread(source, depth)
    try:
        yield first
        yield from reader
    finally:
        reader.close()


class _ReadAheadThread:
    """An iterator over the batches that its thread has read. Used by one thread."""

    def __init__(self, source: Iterator[Any], depth: int) -> None:
        self._source, self._depth = source, depth
        self._changed = threading.Condition()
        self._read: deque[Any] = deque()
        self._ended, self._closed = False, False
        self._error: BaseException | None = None
        threading.Thread(target=self._read_batches, name="read-ahead", daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._read or self._ended)
            if self._read:
                batch = self._read.popleft()
                self._changed.notify_all()
                return batch
        if self._error is not None:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _read_batches(self) -> None:
        try:
            while self._wait_for_room():
                batch = next(self._source, None)
                if batch is None:
                    break
                with self._changed:
                    self._read.append(batch)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001  # raised in the thread that asks for the batch
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _wait_for_room(self) -> bool:
        """Wait until another batch may be read; return False if the iterator was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._read) < self._depth)
            return not self._closed
