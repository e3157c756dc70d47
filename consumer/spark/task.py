"""The function that Spark runs in its Python workers: it applies the events of Arrow batches.

Spark passes each topic whole and in offset order; a task may carry several topics, one after the other.
The sink receives no rows: progress is in the target, and figures go to the driver by datagram. State
that a worker process keeps between tasks is in this module, because Spark unpickles the function again
for each task.

The next batches are read while one is applied: Spark's JVM makes a batch only while its socket is read,
and a socket's buffer holds a fraction of a batch. Without reading ahead, the worker and the JVM would
take turns; with it, both work at once.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow.compute as pc

from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.spark.pipeline import TaskConfig
from consumer.spark.worker import QueryWorker

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


TopicSlice = tuple[str, RecordSlice]

SWITCH_INTERVAL_S = 0.0005
"""Lane threads mostly wait for the server; the default of 5 ms would let each answer wait for the
decoding thread."""

_WORKERS: dict[str, QueryWorker] = {}


def run_task(config: TaskConfig, batches: Iterable[Any]) -> Iterator[Any]:
    """Apply all of `batches` (columns topic, offset, value), and return an empty iterator."""
    worker = _get_worker(config)
    apply_all(
        worker,
        config,
        group_by_topic(read_ahead(batches), lambda topic: worker.is_unit_active(config, topic)),
    )
    return iter(())


def apply_all(
    worker: QueryWorker, config: TaskConfig, groups: Iterable[tuple[str, Iterator[RecordSlice]]]
) -> None:
    """Apply the records of each topic in `groups`, one topic after the other, and report the results to
    the driver.
    """
    reports: list[Report] = []
    try:
        for topic, slices in groups:
            report = worker.apply_slices(config, topic, slices)
            if report is not None:
                reports.append(report)
    finally:  # Spark's input may break; the results of earlier topics are known
        worker.send_reports(reports)


def _get_worker(config: TaskConfig) -> QueryWorker:
    """Return this process's worker for the pipeline's run, and close that of an earlier run."""
    worker = _WORKERS.get(config.pipeline)
    if worker is None or worker.run != config.run:
        if worker is not None:
            worker.close()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # Hundreds of thousands of rows are in flight with hardly a cycle among them: the garbage
        # collector would take a third of the time and find nothing. PySpark's worker collects after
        # every task.
        gc.disable()
        worker = _WORKERS[config.pipeline] = QueryWorker(config)
    return worker


def group_by_topic(
    batches: Iterable[Any], applies: Callable[[str], bool] = lambda _topic: True
) -> Iterator[tuple[str, Iterator[RecordSlice]]]:
    """Group consecutive slices of one topic. The rest of a group is skipped when the next group is
    requested.

    `applies`: called for the topics of each batch; a batch without an active topic is not unpacked.
    """
    rest = split_by_topic(batches, applies)
    head = next(rest, None)
    while head is not None:
        following: list[TopicSlice] = []
        group = _yield_group(head, rest, following)
        yield head[0], group
        for _ in group:
            pass  # a later attempt reads again what was not applied
        head = following[0] if following else None


def _yield_group(
    head: TopicSlice, rest: Iterator[TopicSlice], following: list[TopicSlice]
) -> Iterator[RecordSlice]:
    """Yield the slices of `head`'s topic; the first slice of another topic goes to `following`."""
    for topic, records in chain([head], rest):
        if topic != head[0]:
            following.append((topic, records))
            return
        yield records


def split_by_topic(batches: Iterable[Any], applies: Callable[[str], bool]) -> Iterator[TopicSlice]:
    """Split Arrow batches where the topic changes.

    A slice is at most one Arrow batch, so memory stays bounded.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        topics = pc.run_end_encode(batch.column("topic"))
        if not any(applies(topic) for topic in topics.values.to_pylist()):
            continue
        offsets = batch.column("offset").to_pylist()
        values = batch.column("value").to_pylist()
        start = 0
        for end, topic in zip(topics.run_ends.to_pylist(), topics.values.to_pylist(), strict=True):
            yield topic, list(zip(offsets[start:end], values[start:end], strict=True))
            start = end
