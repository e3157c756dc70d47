"""The control log: one candidate's election and, while it leads, its durable records. The shell around the pure parts.

Two threads (reader, writer) and one lock: under it the election is stepped, its effects carried out, and `on_event` called, so
that events come in order: after Lost nothing more of that term. `on_event` must not block and must not call back into
this object, except `append` and `resign`.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from confluent_kafka import KafkaException

from coordinator.control import election
from coordinator.control.codec import Candidate, Change
from coordinator.control.election import (
    Discard,
    Discarded,
    Elect,
    ElectionConfig,
    ElectionEffect,
    ElectionEvent,
    ElectionPhase,
    GiveUp,
    Lose,
    Observed,
    ResignAsked,
    StartClaim,
)
from coordinator.control.events import (
    Elected,
    Heard,
    LogEvent,
    Lost,
    NewLeader,
    RecordsCommitted,
    WriteConfirmed,
)
from coordinator.control.reader import ControlReader
from coordinator.control.topic import ControlTopic
from coordinator.control.transactions import WriterConfig
from coordinator.control.writer import ControlWriter
from schemas.config.model import KafkaConfig

log = structlog.get_logger("control")


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """Seconds. `jitter` at most, on top of the patience. `probe`: how often the topic is asked whether it is there."""

    election: ElectionConfig = field(default_factory=ElectionConfig)
    writer: WriterConfig = field(default_factory=WriterConfig)
    jitter: float = 0.5
    probe: float = 0.3


class ControlLog:
    """`on_event` gets the LogEvents, from the log's threads."""

    def __init__(
        self,
        kafka: KafkaConfig,
        candidate: Candidate,
        on_event: Callable[[LogEvent], None],
        config: ControlConfig | None = None,
    ) -> None:
        self._kafka, self._candidate, self._on_event = kafka, candidate, on_event
        self._config = config or ControlConfig()
        self._lock = threading.RLock()
        self._election = election.begin(time.monotonic(), self._jitter())
        self._led = 0
        self._leader: tuple[int, bool] = (0, True)
        self._nonce = secrets.token_hex(4)
        self._reader = ControlReader(kafka, self._config.probe, self._lock, self._step)
        self._writer = ControlWriter(
            kafka,
            candidate,
            self._nonce,
            self._config.writer,
            report=self._step,
            tell=self._tell,
            discarded=lambda: self._step(Discarded(self._jitter())),
        )

    def start(self) -> None:
        """Follow the topic, and lead when nobody does. Raises ControlTopicError; a Kafka that does not answer is awaited."""
        try:
            ControlTopic(self._kafka).ensure()
        except KafkaException as error:
            log.warning("control topic not ready yet", bootstrap=self._kafka.bootstrap, error=str(error))
        else:
            self._reader.ensured = True
        self._writer.start()
        self._reader.start()

    def append(self, rev: int, token: int, changes: tuple[Change, ...]) -> None:
        """Write records of term `rev`, in order, several calls in one transaction; then Persisted. Returns at once."""
        self._writer.append(rev, token, changes)

    def resign(self, why: str = "asked to resign") -> None:
        """Give up the term, if there is one: the others need not wait. Then follow again, and let them go first."""
        self._step(ResignAsked(why))

    @property
    def phase(self) -> ElectionPhase:
        return self._election.phase

    def counters(self) -> dict[str, int]:
        """Return messages of the topic that did not count, by reason, and records that came too late for their term."""
        ignored = {f"control.{why}": count for why, count in self._reader.fold.ignored.items()}
        return {**ignored, "control.late appends": self._writer.dropped}

    def close(self, timeout: float = 5.0) -> None:
        """Resign and end both threads; a Kafka that does not answer is not waited for beyond `timeout` seconds."""
        self.resign("shut down")
        self._reader.stop(timeout)
        self._writer.stop(timeout)

    # the election

    def _jitter(self) -> float:
        return random.uniform(0.0, self._config.jitter)  # noqa: S311 - spreads candidates, no secret

    def _step(self, event: ElectionEvent) -> None:
        with self._lock:
            now = time.monotonic()
            self._election, effects = election.step(self._election, event, now, self._config.election)
            self._announce()
            for effect in effects:
                self._carry_out(effect)
            if isinstance(event, Observed) and event.alive and event.fresh:
                self._another_is_alive(now)

    def _carry_out(self, effect: ElectionEffect) -> None:
        match effect:
            case StartClaim():
                self._writer.claim()
            case Elect(rev):
                self._elect(rev)
            case Lose(why):
                self._lose(why)
            case GiveUp(rev):
                self._writer.give_up(rev)
            case Discard(why):
                log.info("candidate steps back", why=why)
                self._writer.discard()

    def _elect(self, rev: int) -> None:
        fold = self._reader.fold
        self._led = rev
        log.info("elected", rev=rev, records=len(fold.records))
        self._writer.lead(rev, fold.records, fold.base, fold.end, fold.size)
        self._on_event(Elected(rev, dict(fold.records), self._writer.transactions.claimed_at))

    def _lose(self, why: str) -> None:
        rev, self._led = self._led, 0
        self._writer.end_term()
        log.warning("term lost", rev=rev, why=why)
        self._on_event(Lost(rev, why))

    def _announce(self) -> None:
        """Say who leads, once the whole topic was read and whenever it changes."""
        fold = self._reader.fold
        now = (fold.rev, fold.resigned)
        if fold.rev and now != self._leader and self._reader.complete:
            self._leader = now
            self._on_event(NewLeader(fold.rev, None if fold.resigned else fold.candidate))

    def _another_is_alive(self, now: float) -> None:
        fold = self._reader.fold
        if (
            not fold.resigned and fold.nonce != self._nonce
        ):  # our own claim may be read before it is known to be committed
            self._on_event(Heard(fold.rev, now))

    def _tell(self, event: LogEvent) -> None:
        """Pass on what the writer says of a term, unless it is over."""
        with self._lock:
            if isinstance(event, RecordsCommitted | WriteConfirmed) and event.rev == self._led:
                self._on_event(event)
