"""The sources' watermark topics: one thread reads all of them, and `watermarks` computes the times.

A watermark states that everything up to `commit_ts_ms` is in the topics, and at which offset each topic
that it names ended then. A unit that has applied its topic up to that offset is therefore applied up to
the watermark's time. A topic that is not named has not grown, so an idle table advances with its source.

Per topic a list of (end, time before it) is kept: a unit that has applied less than `end` has reached
that time at most. When the list grows long, two neighbours are merged into (later end, earlier time):
the result is never too late, only coarser.
"""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer.attempt.readers.kafka_reader import build_reader_settings
from schemas.config.model import KafkaConfig
from schemas.errors import EnvelopeError
from schemas.io.kafka_clients import open_consumer
from schemas.wire.codec import decode_watermark
from schemas.wire.copies import CopyState, find_copy_state
from schemas.wire.records import Watermark, decode_claim_key, format_watermark_topic

MAX_TOPIC_ENTRIES = 128
"""Entries kept per topic: two minutes of a busy topic exactly, and hours of a backlog more coarsely."""

UNKNOWN_TIME = 0


@dataclass(slots=True)
class TopicWatermarks:
    """The watermarks of one topic."""

    ends: list[int] = field(default_factory=list)
    """End offsets, rising."""
    before: list[int] = field(default_factory=list)
    """`before[i]`: the source time that a unit has reached at most if it has applied less than `ends[i]`."""

    def add_watermark(self, end: int, before: int) -> None:
        if self.ends and end < self.ends[-1]:  # the topic was created again: earlier watermarks do not apply
            self.ends, self.before, before = [], [], UNKNOWN_TIME
        if not self.ends or end > self.ends[-1]:
            self.ends.append(end)
            self.before.append(before)
        if len(self.ends) > MAX_TOPIC_ENTRIES:
            self._halve_entries()

    def _halve_entries(self) -> None:
        half = len(self.ends) // 4 * 2  # pairs only
        self.ends[:half] = self.ends[1:half:2]
        self.before[:half] = self.before[0 : half - 1 : 2]


@dataclass(slots=True)
class SourceWatermarks:
    """The watermarks of one source, folded."""

    gen: int = 0
    """The highest capture generation seen."""
    resolved_ts: int = UNKNOWN_TIME
    """The source time (ms) up to which the source is captured."""
    topics: dict[str, TopicWatermarks] = field(default_factory=dict)
    copies: Mapping[str, CopyState] = field(default_factory=dict)
    """"db.table" → the state of the last copy."""

    def fold_watermark(self, mark: Watermark) -> None:
        """Fold the next watermark of the topic in. A watermark of a replaced capture process is ignored."""
        if mark.gen < self.gen:
            return
        self.gen = mark.gen
        for topic, last in mark.topics.items():
            known = self.topics.get(topic)
            if known is None:
                self.seed_topic(topic, last)
            else:
                known.add_watermark(last, self.resolved_ts)
        self.resolved_ts = max(self.resolved_ts, mark.commit_ts_ms)
        self.copies = mark.copies

    def fold_claim(self, gen: int) -> None:
        """Note that a capture process has begun, before its first event."""
        self.gen = max(self.gen, gen)

    def seed_topic(self, topic: str, last: int) -> None:
        """Record that `topic`'s last offset was at most `last` at every watermark folded so far."""
        if topic not in self.topics:
            self.topics[topic] = TopicWatermarks([last], [UNKNOWN_TIME])

    def compute_checkpoint(self, topic: str, applied: int) -> int:
        """Return the source time up to which all of `topic` is applied; UNKNOWN_TIME (0) until enough
        was read.

        `applied`: the topic's last applied offset; -1: none.
        """
        known = self.topics.get(topic)
        if known is None:
            return UNKNOWN_TIME
        at = bisect_right(known.ends, applied)
        return self.resolved_ts if at == len(known.ends) else known.before[at]


log = structlog.get_logger(__name__)

WATERMARK_POLL_S = 0.5
TOPIC_RETRY_S = 5.0
"""Interval in seconds at which a source's topic that does not exist yet, or could not be read, is tried
again."""
WATERMARKS_REREAD = 30
"""Number of earlier watermarks that are read at the start: half a minute of them, so that a source that
is quiet or has died is known at once."""


class SourceTimes:
    """The commit times that all sources' watermarks have reached. Methods may be called in any thread."""

    def __init__(self, kafka: KafkaConfig, sources: Iterable[str]) -> None:
        self._options = build_reader_settings(kafka.bootstrap, kafka.options) | {"fetch.wait.max.ms": 500}
        self._prefix = kafka.prefix
        self._topics: dict[str, str] = {}
        self._marks: dict[str, SourceWatermarks] = {}
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._next_look = 0.0
        self._thread = threading.Thread(target=self._run_thread, name="watermarks", daemon=True)
        self.follow_sources(sources)

    def follow_sources(self, sources: Iterable[str]) -> None:
        """Follow these sources too. A source is followed until the end: what was read of it stays true."""
        names = list(sources)
        with self._mutex:
            for name in names:
                self._marks.setdefault(name, SourceWatermarks())
        self._topics = self._topics | {format_watermark_topic(self._prefix, name): name for name in names}

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def seed_topic(self, source: str, topic: str, last: int) -> None:
        """Record that `topic` ended at `last` just now."""
        with self._mutex:
            if source in self._marks:
                self._marks[source].seed_topic(topic, last)

    def get_times(self, source: str, topic: str, applied: int) -> tuple[int, int]:
        """Return (checkpoint_ts, resolved_ts) of a topic that is applied up to the offset `applied`; 0:
        unknown.
        """
        with self._mutex:
            marks = self._marks.get(source)
            return (marks.compute_checkpoint(topic, applied), marks.resolved_ts) if marks else (0, 0)

    def count_left(self, source: str, topic: str, applied: int) -> int | None:
        """Return how many records after the offset `applied` the topic had at the last watermark; None: not
        known.
        """
        with self._mutex:
            marks = self._marks.get(source)
            known = marks.topics.get(topic) if marks else None
            return max(0, known.ends[-1] - applied) if known else None

    def get_copy_state(self, source: str, db: str, table: str) -> CopyState | None:
        """Return the state of the last request to copy a table of a source; None if no request is known."""
        with self._mutex:
            marks = self._marks.get(source)
            return find_copy_state(marks.copies, db, table) if marks else None

    def _run_thread(self) -> None:
        while not self._ended.is_set():
            try:
                with contextlib.closing(open_consumer(self._options)) as consumer:
                    self._follow_topics(consumer)
            except Exception as error:  # of any source: the others' times are still needed
                known = isinstance(error, KafkaException)
                log.warning("watermarks not readable", error=str(error), exc_info=None if known else error)
                self._ended.wait(TOPIC_RETRY_S)

    def _follow_topics(self, consumer: Any) -> None:
        followed: dict[str, int] = {}
        self._next_look = 0.0
        while not self._ended.is_set():
            if len(followed) < len(self._topics) and time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + TOPIC_RETRY_S
                self._follow_new_topics(consumer, followed)
            for message in consumer.consume(500, timeout=WATERMARK_POLL_S) if followed else ():
                error = message.error()
                if error is None:
                    self._take_record(message.topic(), message.key(), message.value())
                    followed[message.topic()] = message.offset() + 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    self._drop_topic(consumer, followed, message.topic(), error)
            if not followed:
                self._ended.wait(WATERMARK_POLL_S)

    def _drop_topic(self, consumer: Any, followed: dict[str, int], topic: str | None, error: Any) -> None:
        """Stop reading a topic that failed, until `TOPIC_RETRY_S` has passed; the other topics are read
        on.
        """
        if topic not in followed:
            raise KafkaException(error)
        log.warning("watermarks of a source not readable", topic=topic, error=str(error))
        del followed[topic]
        self._next_look = time.monotonic() + TOPIC_RETRY_S
        consumer.assign([TopicPartition(each, 0, at) for each, at in followed.items()])

    def _follow_new_topics(self, consumer: Any, followed: dict[str, int]) -> None:
        """Follow the topics that exist by now, from a little before their ends."""
        existing: Mapping[str, Any] = consumer.list_topics(timeout=WATERMARK_POLL_S * 10).topics
        found = [topic for topic in self._topics if topic in existing and topic not in followed]
        for topic in found:
            try:
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, 0), timeout=WATERMARK_POLL_S * 10
                )
            except KafkaException as error:
                log.warning("watermarks of a source not readable", topic=topic, error=str(error))
                continue
            followed[topic] = max(low, high - WATERMARKS_REREAD)
        if found:
            consumer.assign([TopicPartition(topic, 0, at) for topic, at in followed.items()])

    def _take_record(self, topic: str, key: bytes | None, raw: bytes | None) -> None:
        if raw is None:
            gen = decode_claim_key(key)
            if gen is not None:
                with self._mutex:
                    self._marks[self._topics[topic]].fold_claim(gen)
            return
        try:
            mark = decode_watermark(raw)
            with self._mutex:
                self._marks[self._topics[topic]].fold_watermark(mark)
        except Exception as error:  # of one source: its time stays as it is, the others' advance
            known = isinstance(error, EnvelopeError)
            log.warning(
                "watermark not readable", topic=topic, error=str(error), exc_info=None if known else error
            )
