"""The thread that writes the control topic: claims, then records in the order given, a beat when there are none.

Whatever was appended while a transaction was under way goes into the next one together. All decisions are the election's;
this does what it is told and reports Claimed or Failed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import structlog

from coordinator.control.codec import Candidate, Change
from coordinator.control.election import Claimed, WriteFailed
from coordinator.control.events import LogEvent, RecordsCommitted, WriteConfirmed
from coordinator.control.producer import WriteFailedError
from coordinator.control.transactions import Term, TermTransactions, WriterConfig
from coordinator.core.records import Record
from schemas.config.model import KafkaConfig

log = structlog.get_logger("control")


class ControlWriter:
    """`report` takes what the election must know, `tell` what the coordinator must know; both from this thread, which alone makes `transactions`."""

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
        self.transactions = TermTransactions(kafka, candidate, nonce, config)
        self._config = config
        self._report, self._tell, self._discarded = report, tell, discarded
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._term: Term | None = None
        self._stopping = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="control-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # what the others ask for; all of it returns at once

    def claim(self) -> None:
        self._do(lambda: self._report(Claimed(self.transactions.claim())))

    def lead(self, rev: int, records: Mapping[str, Record], base: int, end: int, size: int) -> None:
        """From now on records of this term are taken."""
        with self._changed:
            self._term = Term(rev, dict(records), base, end, size, begun=time.monotonic())
            self._changed.notify()
        if base > 0:  # the owner before may have died between its snapshot and this
            self._do(lambda: self.transactions.trim(base))

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
        self._do(lambda: self.transactions.resign(rev))

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
        self.transactions.discard()

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
                    wait = self._term.begun + self._config.beat - time.monotonic()
                    if self._term.pending or wait <= 0:
                        return self._write
                self._changed.wait(wait)

    def _write(self) -> None:
        term = self._term
        if term is None or not self.transactions.claimed:
            return
        with self._changed:
            tokens, changes = term.take(self._config.batch)
        self.transactions.write(term, changes)
        self._tell(WriteConfirmed(term.rev, term.begun))
        for token in tokens:
            self._tell(RecordsCommitted(term.rev, token))
        if self.transactions.shorten(term):
            self._tell(WriteConfirmed(term.rev, term.begun))
            log.info("control topic shortened", before=term.base, records=len(term.records), bytes=term.cost)
            self.transactions.trim(term.base)

    def _discard(self) -> None:
        try:
            self.transactions.discard()
        finally:
            self._discarded()  # else this candidate would never stand again
