"""What a Python worker process keeps between tasks: connections, decoders, and the run's settings (design.md §6).

Workers and topics have no affinity (research/spark.md §4), so connections are cached per (process, target, lane
number), never per topic: slots × lanes of them, whatever the number of topics.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from consumer.definition import InForce
from consumer.errors import ConsumerError, TransientError
from consumer.kafka_reader import client_options, read_range
from consumer.reports import Report, ReportSender
from consumer.targets.base import Session
from consumer.targets.dialect import open_session
from consumer.unit import Slice, UnitSpec, apply_topic
from schemas.config import TargetConfig

log = structlog.get_logger(__name__)

PAUSE_S = 1.0
"""After a failed connection: how long other topics of the task do not try again."""


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """What a run of the query hands to its workers. Pickled, never printed: it holds the target's password.

    `run`: name of this start of the query. `drain`: a file that says, by being there, that no more is to be begun.
    """

    run: str
    pipeline: str
    target: TargetConfig = field(repr=False)
    bootstrap: str
    kafka_options: Mapping[str, str] = field(repr=False)
    units: Mapping[str, UnitSpec]
    drain: str
    report_port: int
    report_token: str = field(repr=False)


class SessionCache:
    """The connections of this process to the target of the run."""

    def __init__(self, config: TaskConfig) -> None:
        self._target = config.target
        self._name = f"rowlock {config.pipeline}"
        self._sessions: dict[int, Session] = {}
        self._failed_at = -PAUSE_S

    def get(self, number: int) -> Session:
        session = self._sessions.get(number)
        if session is None:
            session = self._sessions[number] = self._open(number)
        return session

    def _open(self, number: int) -> Session:
        if time.monotonic() - self._failed_at < PAUSE_S:
            raise TransientError("the target could not be reached a moment ago")
        try:
            return open_session(self._target, name=f"{self._name} lane {number}")
        except TransientError:
            self._failed_at = time.monotonic()
            raise

    def check(self, number: int) -> None:
        session = self._sessions.get(number)
        if session is not None and not session.ping():
            self.drop(number)

    def drop(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            with suppress(ConsumerError):
                session.close()

    def close(self) -> None:
        for number in list(self._sessions):
            self.drop(number)


class Worker:
    """This process's part in one run of the query."""

    def __init__(self, config: TaskConfig) -> None:
        self.config = config
        self._sessions = SessionCache(config)
        self._tables: dict[tuple[str, int], InForce] = {}
        self._sender = ReportSender(config.report_port, config.report_token)
        self._drain = Path(config.drain)
        self._reader = client_options(config.bootstrap, config.kafka_options)
        self._stopped: dict[str, Report] = {}

    @property
    def draining(self) -> bool:
        return self._drain.exists()

    def apply(self, spec: UnitSpec, slices: Iterable[Slice]) -> Report:
        """Run one attempt of a unit; one that was fenced or stopped in this run is not tried again."""
        topic = spec.unit.topic
        if topic in self._stopped:
            return self._stopped[topic]
        report = apply_topic(
            spec,
            self._sessions,
            slices,
            read_missing=lambda start, upto: read_range(self._reader, topic, start, upto),
            tables=self._tables,
        )
        if report.state in ("stopped", "fenced"):
            log.error("unit given up", topic=topic, state=report.state, message=report.message)
            self._stopped[topic] = report
        elif report.state == "behind":
            log.warning("unit behind", topic=topic, offset=report.offset, message=report.message)
        return report

    def send(self, reports: list[Report]) -> None:
        """Tell the driver; figures may be lost, so a full buffer is no error."""
        with suppress(OSError):
            self._sender.send(reports)

    def close(self) -> None:
        self._sessions.close()
        self._sender.close()
