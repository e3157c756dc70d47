"""The control log: one candidate's election and, while it leads, its durable records. The shell around
the pure parts.

There are two threads (reader, writer) and one lock. Under the lock the election is stepped, its effects
are carried out and `on_event` is called, so events come in order: after Lost no more events of that
term. `on_event` must not block, and of this object it may only call `append_changes` and `resign_term`.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from coordinator.control import election
from coordinator.control.codec import Candidate, RecordChange
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
    TopicLost,
)
from coordinator.control.events import (
    ControlLogEvent,
    ControlTopicLost,
    Elected,
    Heard,
    Lost,
    NewLeader,
    RecordsCommitted,
    WriteConfirmed,
)
from coordinator.control.reader import ControlReader
from coordinator.control.transactions import WriterConfig
from coordinator.control.writer import ControlWriter
from schemas.config.model import KafkaConfig

log = structlog.get_logger("control")


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """The settings of a control log, in seconds."""

    election: ElectionConfig = field(default_factory=ElectionConfig)
    writer: WriterConfig = field(default_factory=WriterConfig)
    jitter: float = 0.5
    """The upper limit of the random time added to the patience."""
    probe: float = 0.3
    """Between two checks that the topic is available."""


class ControlLog:
    """A candidate's control log. `on_event` receives each `ControlLogEvent`, from the log's threads."""

    def __init__(
        self,
        kafka: KafkaConfig,
        candidate: Candidate,
        on_event: Callable[[ControlLogEvent], None],
        config: ControlConfig | None = None,
    ) -> None:
        self._kafka, self._candidate, self._on_event = kafka, candidate, on_event
        self._config = config or ControlConfig()
        self._lock = threading.RLock()
        self._election = election.begin_election(time.monotonic(), self._choose_jitter())
        self._led = 0
        self._leader: tuple[int, bool] = (0, True)
        self._nonce = secrets.token_hex(4)
        self._reader = ControlReader(kafka, self._config.probe, self._lock, self._step_election)
        self._writer = ControlWriter(
            kafka,
            candidate,
            self._nonce,
            self._config.writer,
            report=self._step_election,
            notify=self._forward_event,
            discarded=lambda: self._step_election(Discarded(self._choose_jitter())),
        )

    def start(self) -> None:
        """Follow the topic, and lead when no other coordinator does. Raises ControlTopicError. If Kafka
        does not answer, it is awaited.
        """
        self._reader.start()
        self._writer.start()

    def append_changes(self, rev: int, token: int, changes: tuple[RecordChange, ...]) -> None:
        """Write records of term `rev`, in order, several calls in one transaction; then report
        RecordsCommitted. Returns at once.
        """
        self._writer.append_changes(rev, token, changes)

    def resign_term(self, why: str = "asked to resign") -> None:
        """Give up the term, if there is one, so that the others need not wait. Then follow again, and
        let the others go first.
        """
        self._step_election(ResignAsked(why))

    @property
    def phase(self) -> ElectionPhase:
        return self._election.phase

    def get_counters(self) -> dict[str, int]:
        """Return the messages of the topic that did not count, by reason, and the number of appends that
        came too late for their term.
        """
        ignored = {f"control.{why}": count for why, count in self._reader.fold.ignored.items()}
        return {**ignored, "control.late appends": self._writer.dropped}

    def close(self, timeout: float = 5.0) -> None:
        """Resign and end both threads. If Kafka does not answer, it is waited for at most `timeout`
        seconds.
        """
        self.resign_term("shut down")
        self._reader.stop(timeout)
        self._writer.stop(timeout)

    # the election

    def _choose_jitter(self) -> float:
        return random.uniform(0.0, self._config.jitter)  # noqa: S311 - spreads candidates, no secret

    def _step_election(self, event: ElectionEvent) -> None:
        with self._lock:
            now = time.monotonic()
            self._election, effects = election.step_election(
                self._election, event, now, self._config.election
            )
            self._announce_leader()
            for effect in effects:
                self._carry_out(effect)
            if isinstance(event, Observed) and event.alive and event.fresh:
                self._report_leader_alive(now)
            if isinstance(event, TopicLost):
                self._on_event(ControlTopicLost(event.problem))

    def _carry_out(self, effect: ElectionEffect) -> None:
        match effect:
            case StartClaim():
                self._writer.queue_claim()
            case Elect(rev):
                self._begin_term(rev)
            case Lose(why, is_resignation):
                self._end_term(why, is_resignation=is_resignation)
            case GiveUp(rev):
                self._writer.give_up(rev)
            case Discard(why):
                log.info("candidate withdrew", reason=why)
                self._writer.queue_discard()

    def _begin_term(self, rev: int) -> None:
        fold = self._reader.fold
        self._led = rev
        log.info("elected", rev=rev, records=len(fold.records))
        self._writer.begin_term(rev, fold.records, fold.base, fold.end, fold.size)
        self._on_event(Elected(rev, dict(fold.records), self._writer.transactions.claimed_at))

    def _end_term(self, why: str, *, is_resignation: bool) -> None:
        rev, self._led = self._led, 0
        self._writer.end_term()
        if is_resignation:
            log.info("resigned", rev=rev, reason=why)
        else:
            log.warning("term lost", rev=rev, reason=why)
        self._on_event(Lost(rev, why))

    def _announce_leader(self) -> None:
        """Report the leader once the whole topic has been read, and whenever it changes."""
        fold = self._reader.fold
        now = (fold.rev, fold.resigned)
        if fold.rev and now != self._leader and self._reader.complete:
            self._leader = now
            self._on_event(NewLeader(fold.rev, None if fold.resigned else fold.candidate))

    def _report_leader_alive(self, now: float) -> None:
        fold = self._reader.fold
        if (
            not fold.resigned and fold.nonce != self._nonce
        ):  # this coordinator's claim may be read before it is known to be committed
            self._on_event(Heard(fold.rev, now))

    def _forward_event(self, event: ControlLogEvent) -> None:
        """Pass on the writer's event of a term, unless the term has ended."""
        with self._lock:
            if isinstance(event, RecordsCommitted | WriteConfirmed) and event.rev == self._led:
                self._on_event(event)
