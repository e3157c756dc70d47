"""The thread that writes the control topic: claims, then records in the given order, and a beat if there
are none.

Changes that are appended during a transaction go into the next one together. The election makes all
decisions; the writer executes them and reports Claimed or WriteFailed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import structlog

from coordinator.control.codec import Candidate, RecordChange
from coordinator.control.election import Claimed, WriteFailed
from coordinator.control.events import ControlLogEvent, RecordsCommitted, WriteConfirmed
from coordinator.control.transactions import LedTerm, TermTransactions, WriteFailedError, WriterConfig
from coordinator.core.records import DurableRecord
from schemas.config.model import KafkaConfig

log = structlog.get_logger("control")


class ControlWriter:
    """Writes the control topic in a thread, which alone uses `transactions`.

    From that thread it calls `report` with events for the election, and `notify` with events for the
    coordinator.
    """

    def __init__(
        self,
        kafka: KafkaConfig,
        candidate: Candidate,
        nonce: str,
        config: WriterConfig,
        *,
        report: Callable[[Claimed | WriteFailed], None],
        notify: Callable[[ControlLogEvent], None],
        discarded: Callable[[], None],
    ) -> None:
        self.transactions = TermTransactions(kafka, candidate, nonce, config)
        self._config = config
        self._report, self._notify, self._discarded = report, notify, discarded
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._term: LedTerm | None = None
        self._stopping = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run_thread, name="control-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # requests of other threads; all of them return at once

    def queue_claim(self) -> None:
        self._run_job(lambda: self._report(Claimed(self.transactions.claim_term())))

    def begin_term(
        self, rev: int, records: Mapping[str, DurableRecord], base: int, end: int, size: int
    ) -> None:
        """Accept records of this term from now on."""
        with self._changed:
            self._term = LedTerm(rev, dict(records), base, end, size, begun=time.monotonic())
            self._changed.notify()
        if base > 0:  # the previous leader may have died between its snapshot and the deletion
            self._run_job(lambda: self.transactions.trim_topic(base))

    def append_changes(self, rev: int, token: int, changes: tuple[RecordChange, ...]) -> None:
        """Write changes after all earlier ones, then report RecordsCommitted(token). Changes of a term
        that has ended are dropped.
        """
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
        self._run_job(lambda: self.transactions.resign_term(rev))

    def queue_discard(self) -> None:
        self._run_job(self._discard_term)

    def stop(self, timeout: float) -> None:
        """Finish the queued jobs and end the thread. If Kafka does not answer, it is waited for at most
        `timeout` seconds.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:  # it was started
            self._thread.join(timeout)

    def _run_job(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    # the thread

    def _run_thread(self) -> None:
        while True:
            job = self._wait_for_job()
            if job is None:
                break
            try:
                job()
            except WriteFailedError as error:
                self._report(WriteFailed(str(error)))
            except Exception as error:
                log.exception("control writer failed")
                self._report(WriteFailed(f"internal error: {error}"))
        self.transactions.discard_producer()

    def _wait_for_job(self) -> Callable[[], None] | None:
        """Wait for a job and return it; None: end the thread."""
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
                        return self._write_waiting
                self._changed.wait(wait)

    def _write_waiting(self) -> None:
        term = self._term
        if term is None or not self.transactions.claimed:
            return
        with self._changed:
            tokens, changes = term.take_changes(self._config.batch)
        self.transactions.write_changes(term, changes)
        self._notify(WriteConfirmed(term.rev, term.begun))
        for token in tokens:
            self._notify(RecordsCommitted(term.rev, token))
        if self.transactions.write_snapshot_if_due(term):
            self._notify(WriteConfirmed(term.rev, term.begun))
            log.info(
                "control topic is trimmed",
                before=term.base,
                kept_records=len(term.records),
                kept_bytes=term.cost,
            )
            self.transactions.trim_topic(term.base)

    def _discard_term(self) -> None:
        try:
            self.transactions.discard_producer()
        finally:
            self._discarded()  # otherwise this candidate would never claim again
