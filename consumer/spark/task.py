"""The function that Spark runs in its Python workers: Arrow batches in, applied events out (design.md §6).

Spark hands over each topic whole and in offset order; a task may carry several, one after the other. Nothing comes
back through the sink: progress is in the target, figures go to the driver by datagram. What a worker process keeps
between tasks hangs on this module, because Spark unpickles the function anew for each task.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow.compute as pc

from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.spark.pipeline import TaskConfig
from consumer.spark.read_ahead import read_ahead
from consumer.spark.worker import QueryWorker

TopicSlice = tuple[str, RecordSlice]

SWITCH_INTERVAL_S = 0.0005
"""Lane threads mostly wait for the server; the default of 5 ms would let each answer wait for the decoding thread."""

_WORKERS: dict[str, QueryWorker] = {}


def run_task(config: TaskConfig, batches: Iterable[Any]) -> Iterator[Any]:
    """Apply everything in `batches` (columns topic, offset, value) and end; yields no rows."""
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
    """Apply the records of each topic in `groups`, one topic after the other, and tell the driver what became of them."""
    reports: list[Report] = []
    try:
        for topic, slices in groups:
            report = worker.apply_slices(config, topic, slices)
            if report is not None:
                reports.append(report)
    finally:  # Spark's input may break; what became of the topics before is known
        worker.send_reports(reports)


def _get_worker(config: TaskConfig) -> QueryWorker:
    """Return this process's state for the pipeline's run; that of an earlier run of it is closed."""
    worker = _WORKERS.get(config.pipeline)
    if worker is None or worker.run != config.run:
        if worker is not None:
            worker.close()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # Hundreds of thousands of rows in flight and hardly a cycle among them: the collector would take a third of
        # the time to find nothing. PySpark's worker collects after every task.
        gc.disable()
        worker = _WORKERS[config.pipeline] = QueryWorker(config)
    return worker


def group_by_topic(
    batches: Iterable[Any], applies: Callable[[str], bool] = lambda _topic: True
) -> Iterator[tuple[str, Iterator[RecordSlice]]]:
    """Group slices of one topic that follow each other. What is left of a group when the next is asked for is passed over.

    `applies`: asked for each stretch of a topic; what nobody wants is not even unpacked.
    """
    rest = split_by_topic(batches, applies)
    head = next(rest, None)
    while head is not None:
        following: list[TopicSlice] = []
        group = _yield_group(head, rest, following)
        yield head[0], group
        for _ in group:
            pass  # what was not applied is read again by a later attempt
        head = following[0] if following else None


def _yield_group(
    head: TopicSlice, rest: Iterator[TopicSlice], following: list[TopicSlice]
) -> Iterator[RecordSlice]:
    """Yield the slices of `head`'s topic; the first slice of another one goes to `following`."""
    for topic, records in chain([head], rest):
        if topic != head[0]:
            following.append((topic, records))
            return
        yield records


def split_by_topic(batches: Iterable[Any], applies: Callable[[str], bool]) -> Iterator[TopicSlice]:
    """Cut Arrow batches where the topic changes; a slice is at most an Arrow batch, so memory stays bounded."""
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
