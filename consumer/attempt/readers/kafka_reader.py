"""Reads ranges of one topic from Kafka.

An attempt trusts the target's progress and not the records that it is given: those that are missing before
them are read here, in slices, bounded by `upto`. So are the ranges of a unit that reads by itself. A consumer
is created for each call, which is rare or long; a cached one would keep an idle connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer.errors import CopyNeededError, TransientError, UnitStoppedError
from schemas.findings import START_OVER
from schemas.io.kafka_clients import (
    OnError,
    build_client_settings,
    build_loss_settings,
    open_consumer,
    reads_by_offset,
)

TopicRecord = tuple[int, bytes | None]
"""(offset, value)."""

MAX_SLICE_RECORDS = 5000
IDLE_S = 10.0
"""Seconds without an answer of the broker after which a read has failed."""


def build_reader_settings(
    bootstrap: str, options: Mapping[str, str], on_error: OnError | None = None
) -> dict[str, Any]:
    """Return the settings of a consumer that reads topics from and to given offsets. `on_error`: receives
    the client's errors."""
    own = {
        **reads_by_offset("rowlock-apply"),
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
        # Several of these consumers may read at once; by default each would fetch 64 MiB ahead, and pause for
        # a second when it has.
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 16 << 10,
        **build_loss_settings(),
        **({} if on_error is None else {"error_cb": on_error}),
    }
    return build_client_settings(bootstrap, options, own)


def read_range(options: dict[str, Any], topic: str, start: int, upto: int) -> Iterator[list[TopicRecord]]:
    """Yield the records with offsets in [start, upto) in slices.

    Raises CopyNeededError if retention has deleted `start`, TransientError if the broker does not
    answer.
    """
    with _open_consumer(options, topic) as consumer:
        _check_start(consumer, topic, start)
        yield from _read_assigned(consumer, topic, start, upto)


def _read_assigned(consumer: Any, topic: str, start: int, upto: int) -> Iterator[list[TopicRecord]]:
    """Yield the records with offsets in [start, upto), which the topic has, in slices."""
    consumer.assign([TopicPartition(topic, 0, start)])
    position = start
    while position < upto:
        messages = consumer.consume(min(MAX_SLICE_RECORDS, upto - position), timeout=IDLE_S)
        if not messages:
            raise TransientError(
                f"{topic}: Kafka sent nothing for {IDLE_S:.0f} s while reading offset {position}"
            )
        records, ended = _collect_records(messages, topic)
        # The topic ended before `upto`. The batch's own first record existed, so the other offsets
        # are holes.
        position = upto if ended else records[-1][0] + 1
        if records := [record for record in records if record[0] < upto]:
            yield records


def read_new_records(
    options: dict[str, Any], topic: str, start: int, most: int, note_end: Callable[[int], None]
) -> Iterator[list[TopicRecord]]:
    """Yield the records from `start` to the topic's present end, but at most `most` offsets, in slices.

    `note_end` receives the topic's next offset. Raises as `read_range`.
    """
    with _open_consumer(options, topic) as consumer:
        end = _check_start(consumer, topic, start)
        note_end(end)
        yield from _read_assigned(consumer, topic, start, min(end, start + most))


def read_rest(options: dict[str, Any], topic: str, start: int) -> Iterator[list[TopicRecord]]:
    """Yield the records from `start`, or from the topic's beginning, to its present end, in slices.

    Raises TransientError.
    """
    with _open_consumer(options, topic) as consumer:
        low, high = _fetch_bounds(consumer, topic)
    if max(start, low) < high:
        yield from read_range(options, topic, max(start, low), high)


def _fetch_bounds(consumer: Any, topic: str) -> tuple[int, int]:
    """Return the topic's first offset and its end. Raises TransientError if its new leader does not know them
    yet.
    """
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=IDLE_S)
    if low < 0 or high < 0:
        raise TransientError(f"{topic}: Kafka does not know the bounds of the topic at the moment")
    return low, high


@contextmanager
def _open_consumer(options: dict[str, Any], topic: str) -> Iterator[Any]:
    """Open a consumer for one read. Raises TransientError for any error of Kafka until its end."""
    try:
        consumer = open_consumer(options)
    except KafkaException as error:
        raise TransientError(f"{topic}: the Kafka client cannot be created: {error}") from error
    try:
        yield consumer
    except KafkaException as error:
        raise TransientError(f"{topic}: Kafka: {error}") from error
    finally:
        consumer.close()


def _collect_records(messages: Sequence[Any], topic: str) -> tuple[list[TopicRecord], bool]:
    records: list[TopicRecord] = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append((message.offset(), message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            return records, True
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise build_retention_error(topic, None, None)
        else:
            raise TransientError(f"{topic}: Kafka: {error}")
    return records, False


def _check_start(consumer: Any, topic: str, start: int) -> int:
    """Return the topic's next offset. Raises CopyNeededError if the topic begins after `start`,
    UnitStoppedError if it ends before `start`.
    """
    low, high = _fetch_bounds(consumer, topic)
    if (error := find_offset_problem(topic, start, low, high)) is not None:
        raise error
    return high


def find_offset_problem(topic: str, start: int, low: int, high: int) -> UnitStoppedError | None:
    """Return why reading cannot continue at `start` in a topic that holds [low, high); None if it can."""
    if start < low:
        return build_retention_error(topic, start, low)
    if start > high:
        return UnitStoppedError(
            f"{topic}: the target has applied offset {start - 1}, but the topic ends at {high - 1}: the "
            "topic has lost records or was replaced by another one",
            START_OVER,
        )
    return None


def build_retention_error(topic: str, start: int | None, low: int | None) -> CopyNeededError:
    seen = "" if start is None else f" (next needed {start}, the topic begins at {low})"
    return CopyNeededError(
        f"{topic}: Kafka's retention has deleted events that the target does not have{seen}",
        cause="gap", after=start,
        first="raise the topic's retention.ms above the longest outage that you expect",
    )  # fmt: skip
