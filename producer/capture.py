"""The capture unit: one source's log into its topics, from a stored position on, until it is asked to
stop.

`run_capture` keeps the unit alive: transient errors of the source and delivery errors of Kafka end a
run, and the next one starts from the stored position under the next gen. This module opens and closes
connections; producer/loop does the work, in the order of the log and on one thread. Only snapshot chunks
are read on helper threads (producer/snapshot/reader.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Protocol

import structlog

from producer.checks import preflight
from producer.copies.recreated_tables import make_repair_limits
from producer.errors import (
    DeliveryError,
    MessageTooLargeError,
    SnapshotFinishedError,
    SourceRefusedError,
    StreamStoppedError,
    TransientSourceError,
)
from producer.kafka.copy_requests import CopyRequestReader
from producer.kafka.event_limits import EventLimits
from producer.kafka.settings import build_capture_producer_settings
from producer.kafka.topic_reader import TopicReader
from producer.kafka.topics import POSITIONS, WATERMARKS, SourceTopics
from producer.kafka.writer import InterruptedWriteError, KafkaWriter, make_client_factory
from producer.loop.loop import CaptureLoop
from producer.ports import Clock, OnWatermark, Ports
from producer.sources.known import load_source_database
from producer.sources.protocols import SourceDatabase
from producer.start.positions import CaptureAssignment, PositionStore
from producer.start.startup import CaptureStarter
from producer.tables import CapturedTables
from schemas.backoff import Backoff
from schemas.clock import read_clock_ms
from schemas.config.model import Config
from schemas.problems import Problem, ProblemError, encode_problem
from schemas.wire.copies import copy_topic
from schemas.wire.records import format_position_topic, format_watermark_topic

_log = structlog.get_logger("capture")

_BACKOFF = Backoff(first=0.2, longest=30.0, quiet=60.0)
_FAREWELL = 10.0
ENDED_AS_ASKED = "capture was asked to end"
#: Errors that a run's last watermark reports.
REPORTED_ERRORS = (TransientSourceError, SourceRefusedError, StreamStoppedError, SnapshotFinishedError)


class OnTrouble(Protocol):
    """A function that is called with an error before a restart."""

    def __call__(self, why: str, /, *, delivery_failed: bool) -> None:
        """`delivery_failed`: whether Kafka has not taken an event."""


def run_capture(
    config: Config,
    source: str,
    stop: Event,
    *,
    new_snapshot: bool = False,
    gen_at_least: int | None = None,
    on_watermark: OnWatermark | None = None,
    on_trouble: OnTrouble | None = None,
    explain_old_agents: Callable[[], str] | None = None,
) -> None:
    """Capture `source` until `stop` is set (or its snapshot is complete, with `snapshot: only`).

    `gen_at_least`: from the assignment (producer.start.positions.CaptureAssignment). `on_watermark`:
    called with every watermark that is sent. `on_trouble`: see OnTrouble. `explain_old_agents`: see
    producer.ports.Ports; None: no agent has started this process.

    Raises SourceRefusedError, KafkaRefusedError, StreamStoppedError, ConfigError, which need a person's
    action. Transient errors of source and Kafka are retried for ever, with backoff.
    """
    backoff = _BACKOFF
    term = CaptureAssignment(gen_at_least or 0)
    database = load_source_database(config, source)
    topics = SourceTopics(config.kafka)
    limits = EventLimits(partial(topics.read_source_limits, source))
    while not stop.is_set():
        backoff = backoff.with_start(time.monotonic())
        try:
            shell = CaptureRunner(
                config, source, database, stop, term=term, limits=limits, on_watermark=on_watermark,
                explain_old_agents=explain_old_agents,
            )  # fmt: skip
            with shell.run_capture(new_snapshot=new_snapshot) as loop:
                new_snapshot = False
                while not stop.is_set():
                    loop.step_capture()
        except (InterruptedWriteError, SnapshotFinishedError):
            return
        except (TransientSourceError, DeliveryError) as error:
            if isinstance(error, MessageTooLargeError):
                limits.record_refusal()
            backoff = backoff.with_failure(time.monotonic())
            _log.warning("capture restarts", source=source, reason=str(error), seconds=backoff.pause)
            if on_trouble is not None:
                on_trouble(_encode_error(error), delivery_failed=isinstance(error, DeliveryError))
            stop.wait(backoff.pause * random.uniform(0.5, 1.0))  # noqa: S311


class CaptureRunner:
    """The resources of one run of capture, from connection to error: connections to the source and to
    Kafka, threads, time.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        source: SourceDatabase,
        stop: Event,
        *,
        term: CaptureAssignment,
        limits: EventLimits,
        on_watermark: OnWatermark | None = None,
        explain_old_agents: Callable[[], str] | None = None,
    ) -> None:
        self._limits = limits
        self._explain_old_agents = explain_old_agents
        self._config = config
        self._name = name
        self._source = source
        self._stop = stop
        self._term = term
        self._on_watermark = on_watermark
        self._loop: CaptureLoop | None = None

    @contextmanager
    def run_capture(self, *, new_snapshot: bool) -> Iterator[CaptureLoop]:
        """Start a run of capture under its own gen, and end it with a last watermark that contains the
        reason.
        """
        preflight.require_source(self._config, self._source)
        self._limits.read_topics()
        settings = build_capture_producer_settings(self._config.kafka, self._limits.batch_bytes)
        with ExitStack() as stack:
            writer = KafkaWriter(make_client_factory(settings), self._stop.is_set)
            stack.callback(writer.abandon_unacknowledged)
            stack.callback(self._source.close)
            self._loop = loop = self._start_capture(stack, writer, new_snapshot=new_snapshot)
            stack.callback(loop.close)
            try:
                yield loop
            except REPORTED_ERRORS as error:
                self._shut_down(
                    loop, writer, _encode_error(error), restarts=isinstance(error, TransientSourceError)
                )
                raise
            self._shut_down(loop, writer, "", restarts=False)

    def _start_capture(self, stack: ExitStack, writer: KafkaWriter, *, new_snapshot: bool) -> CaptureLoop:
        """Start from the stored position or a new beginning, and return the loop that continues from
        there.
        """
        kafka, source, config = self._config.kafka, self._source, self._config.sources[self._name]
        topics = SourceTopics(kafka)
        store = PositionStore(format_position_topic(kafka.prefix, self._name))
        topics.ensure_topics([store.topic], POSITIONS)
        topics.ensure_topics([format_watermark_topic(kafka.prefix, self._name)], WATERMARKS)
        topics.ensure_topics([asked := copy_topic(kafka.prefix, self._name)], POSITIONS)
        reader = stack.enter_context(TopicReader(kafka))
        source.open_source(lambda: self._write_heartbeat(writer))
        captured = CapturedTables(kafka.prefix, self._name)
        started = CaptureStarter(
            source, config, writer, reader, topics, store, captured, self._term
        ).start_capture(new_snapshot=new_snapshot)
        started = replace(started, limits=self._limits)
        record = started.record
        requests = CopyRequestReader(kafka, asked, record.copy_requests, reader)
        stack.callback(requests.close)
        loop = CaptureLoop(
            config,
            started,
            Ports(
                writer=writer, store=store, topics=topics, open_log=source.open_log,
                open_reader=source.open_reader, server=lambda: source, names=source.tables.names,
                definitions=source.definitions, reaches=source.make_impact_finder,
                clock=Clock(time.monotonic, read_clock_ms), stopping=self._stop.is_set,
                poll_requests=requests.poll_requests, reader=reader, on_watermark=self._on_watermark,
                repair=make_repair_limits(self._config, self._name),
                explain_old_agents=self._explain_old_agents or (lambda: ""),
            ),
        )  # fmt: skip
        _log.info(
            "capture started", source=self._name, assignment=record.gen, epoch=record.epoch, file=record.file,
            pos=record.pos, tables=len(started.captured.tables),
        )  # fmt: skip
        return loop

    def _write_heartbeat(self, writer: KafkaWriter) -> None:
        """Report once a second that capture is alive while the log is scanned for statements; raise when
        it is asked to stop.
        """
        if self._stop.is_set():
            raise InterruptedWriteError
        writer.flush()
        if self._loop is not None:
            self._loop.write_heartbeat()

    def _shut_down(self, loop: CaptureLoop, writer: KafkaWriter, why: str, *, restarts: bool) -> None:
        """Store the position and all sent events within a time limit. Later, capture sends the rest again."""
        writer.limit_waiting(time.monotonic() + _FAREWELL)
        try:
            loop.shut_down(why or ENDED_AS_ASKED, restarts=restarts)
        except (InterruptedWriteError, DeliveryError):
            _log.warning("stopped before Kafka acknowledged all records", source=self._name)


def _encode_error(error: Exception) -> str:
    return encode_problem(error.problem if isinstance(error, ProblemError) else Problem(str(error)))
