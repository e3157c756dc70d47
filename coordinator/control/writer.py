"""The thread that writes the control topic: claims, then records in the order given, a beat when there are none.

Whatever was appended while a transaction was under way goes into the next one together. All decisions are the election's;
this does what it is told and reports Claimed or Failed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from coordinator.control.codec import Beat, Candidate, Change, Claim, Resigned, batches, encode, snapshot
from coordinator.control.election import Claimed, WriteFailed
from coordinator.control.events import LogEvent, RecordsCommitted, WriteConfirmed
from coordinator.control.fold import due
from coordinator.control.producer import TermProducer, WriteFailedError
from coordinator.control.topic import ControlTopic
from coordinator.core.owner.state import Record
from schemas.config.model import KafkaConfig

log = structlog.get_logger("control")


@dataclass(frozen=True, slots=True)
class WriterConfig:
    """Seconds; `timeout` of a claim or commit is longer than the owner's own lease: a broker's restart ends no term.
    `snapshot_after` offsets, `snapshot_bytes`: how long the topic may become. `batch`: records in one transaction."""

    beat: float = 0.8
    timeout: float = 10.0
    snapshot_after: int = 5000
    snapshot_bytes: int = 16 << 20
    batch: int = 20_000


@dataclass(slots=True)
class Term:
    """A term that this candidate leads, and the length of the topic. `base`: offset of the snapshot in force, `cost`: its bytes."""

    rev: int
    records: dict[str, Record]
    base: int
    end: int
    size: int
    cost: int = 0
    pending: deque[tuple[int, tuple[Change, ...]]] = field(default_factory=deque)


class ControlWriter:
    """`report` takes what the election must know, `tell` what the coordinator must know; both from this thread."""

    def __init__(
        self,
        kafka: KafkaConfig,
        candidate: Candidate,
        nonce: str,
        config: WriterConfig,
        *,
        report: Callable[[Claimed | WriteFailed], None],
        tell: Callable[[LogEvent], None],
        discarded: Callable[[], None],
    ) -> None:
        self._kafka, self._candidate, self._nonce, self._config = kafka, candidate, nonce, config
        self._report, self._tell, self._discarded = report, tell, discarded
        self._topic: ControlTopic | None = None
        self._producer: TermProducer | None = None
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._term: Term | None = None
        self._last = 0.0
        self._stopping = False
        self.dropped = 0
        self.claimed_at = 0.0
        self._thread = threading.Thread(target=self._run, name="control-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # what the others ask for; all of it returns at once

    def claim(self) -> None:
        self._do(self._claim)

    def lead(self, rev: int, records: Mapping[str, Record], base: int, end: int, size: int) -> None:
        """From now on records of this term are taken."""
        with self._changed:
            self._term = Term(rev, dict(records), base, end, size)
            self._last = time.monotonic()
            self._changed.notify()
        if base > 0:
            self._do(lambda: self._trim(base))  # the owner before may have died between its snapshot and this

    def append(self, rev: int, token: int, changes: tuple[Change, ...]) -> None:
        """Write after everything appended before; then RecordsCommitted(token). Of a term that is over: dropped."""
        with self._changed:
            if self._term is None or self._term.rev != rev:
                self.dropped += 1
                return
            self._term.pending.append((token, changes))
            self._changed.notify()

    def end_term(self) -> None:
        """Discard the records that are not written yet."""
        with self._changed:
            self._term = None

    def give_up(self, rev: int) -> None:
        self._do(lambda: self._give_up(rev))

    def discard(self) -> None:
        self._do(self._discard)

    def stop(self, timeout: float) -> None:
        """Finish the jobs given, end the thread. A Kafka that does not answer is not waited for beyond `timeout`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:  # it was started
            self._thread.join(timeout)

    def _do(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    # the thread

    def _run(self) -> None:
        while True:
            job = self._next()
            if job is None:
                break
            try:
                job()
            except WriteFailedError as error:
                self._report(WriteFailed(str(error)))
            except Exception as error:
                log.exception("control writer failed")
                self._report(WriteFailed(f"internal error: {error}"))
        self._throw_away()

    def _next(self) -> Callable[[], None] | None:
        """Wait for something to do; None: the end."""
        with self._changed:
            while True:
                if self._jobs:
                    return self._jobs.popleft()
                if self._stopping:
                    return None
                wait: float | None = None
                if self._term is not None:
                    wait = self._last + self._config.beat - time.monotonic()
                    if self._term.pending or wait <= 0:
                        return self._write
                self._changed.wait(wait)

    def _claim(self) -> None:
        self._throw_away()
        self._producer = TermProducer(self._kafka, self._config.timeout)
        claim = encode(Claim(self._candidate, self._nonce))
        self.claimed_at = time.monotonic()
        # offset 0 is no term (0 means that nobody is known): the first claim ever is made twice
        rev = self._producer.commit([claim], "claim") or self._producer.commit([claim], "claim")
        self._report(Claimed(rev))

    def _write(self) -> None:
        term = self._term
        if term is None or self._producer is None:
            return
        tokens, changes = self._gather(term)
        began = self._last = time.monotonic()
        payloads = list(batches(term.rev, changes)) or [encode(Beat(term.rev))]
        term.end = self._producer.commit(payloads, "write") + len(payloads) + 1
        term.size += sum(map(len, payloads))
        _apply(term.records, changes)
        self._tell(WriteConfirmed(term.rev, began))
        for token in tokens:
            self._tell(RecordsCommitted(term.rev, token))
        self._shorten(term)

    def _gather(self, term: Term) -> tuple[list[int], list[Change]]:
        tokens: list[int] = []
        changes: list[Change] = []
        with self._changed:
            while term.pending and len(changes) < self._config.batch:
                token, some = term.pending.popleft()
                tokens.append(token)
                changes.extend(some)
        return tokens, changes

    def _shorten(self, term: Term) -> None:
        """Write a snapshot and delete what is before it, once the topic has become long."""
        config = self._config
        long = due(
            term.end - term.base,
            term.size,
            term.cost,
            most=config.snapshot_after,
            most_bytes=config.snapshot_bytes,
        )
        if not long or self._producer is None:
            return
        began = self._last = time.monotonic()
        payloads = list(snapshot(term.rev, self._candidate, self._nonce, term.records))
        term.base = self._producer.commit(payloads, "snapshot")
        term.end = term.base + len(payloads) + 1
        term.size = term.cost = sum(map(len, payloads))
        self._tell(WriteConfirmed(term.rev, began))
        log.info("control topic shortened", before=term.base, records=len(term.records), bytes=term.cost)
        self._trim(term.base)

    def _trim(self, before: int) -> None:
        self._topic = self._topic or ControlTopic(self._kafka)
        self._topic.trim(before)

    def _give_up(self, rev: int) -> None:
        if self._producer is None:
            return
        try:
            self._producer.commit([encode(Resigned(rev))], "resignation", timeout=2.0)
        except WriteFailedError as error:
            log.info("resignation not written", error=str(error))

    def _discard(self) -> None:
        try:
            self._throw_away()
        finally:
            self._discarded()  # else this candidate would never stand again

    def _throw_away(self) -> None:
        if self._producer is not None:
            self._producer.discard()
            self._producer = None


def _apply(records: dict[str, Record], changes: list[Change]) -> None:
    for key, record in changes:
        if record is None:
            records.pop(key, None)
        else:
            records[key] = record
