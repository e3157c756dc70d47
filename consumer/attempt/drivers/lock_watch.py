"""Names the sessions for whose row locks the transactions of this process wait.

A transaction only notes its begin and its end. A thread looks up, over a connection of its own, what the
transactions wait for that are open for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

import structlog

from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.errors import ConsumerError, LockWaitError
from consumer.ordering.model import ApplyUnit
from consumer.targets.dialect_components import LockHolders
from consumer.targets.lock_holders import describe_row_wait
from consumer.targets.session import SqlSession
from schemas.problems import encode_problem

log = structlog.get_logger(__name__)

LOOK_AFTER_S = 3.0
"""Age in seconds from which on a transaction's wait is looked up: less than the 10 s after which a session
gives up a wait for a lock, and more than nearly all transactions take, so that these cost the target nothing.
"""
LOOK_INTERVAL_S = 5.0
"""Seconds between two look-ups for one unit."""
TICK_S = 1.0

_Key = tuple[ApplyUnit, int]
"""(unit, number of the session). A process runs one attempt at a unit at a time."""


@dataclass(frozen=True, slots=True)
class _Transaction:
    """A transaction of a unit, or its pause before it is tried again."""

    session: SqlSession
    connection: int
    epoch: int
    began: float
    """Begin of the first try (monotonic seconds)."""
    is_open: bool = True


class _UnitLooks:
    """The look-ups for one unit, and the wait that they have found, if any."""

    def __init__(self) -> None:
        self.next_at = 0.0
        """The earliest time of the next one (monotonic seconds)."""
        self._epoch = 0
        self._began = 0.0
        self._holders: object = None

    def begin_look(self, now: float, waiting: Sequence[_Transaction]) -> None:
        self.next_at, self._epoch = now + LOOK_INTERVAL_S, waiting[0].epoch
        if self._holders is None:
            self._began = min(each.began for each in waiting)

    def record_wait(self, unit: ApplyUnit, seen: LockHolders, now: float) -> Report:
        """Return the report of a wait; it is logged when it begins, and when others hold the lock."""
        problem = describe_row_wait(seen, now - self._began)
        holders = tuple(each.connection for each in seen.found), seen.unseen
        if self._holders != holders:
            self._holders = holders
            log.warning(
                "unit waits for a row lock", pipeline=unit.pipeline, topic=unit.topic, reason=problem.what,
                remedy=problem.action,
            )  # fmt: skip
        return Report(unit.topic, "waiting", self._epoch, -1, message=encode_problem(problem))

    def end_wait(self, unit: ApplyUnit, now: float) -> Report | None:
        """Return the report that the unit no longer waits; None if it was not known to wait."""
        if self._holders is None:
            return None
        self._holders = None
        log.info(
            "unit no longer waits for a row lock", pipeline=unit.pipeline, topic=unit.topic,
            waited_s=round(now - self._began),
        )  # fmt: skip
        return Report(unit.topic, "waiting", self._epoch, -1)


class LockWatch:
    """Watches the transactions of a process's attempts.

    `report`: receives a report in the state "waiting" at each look-up of a unit that waits, and one without a
    message once it no longer waits. Called in the watch's own thread.
    """

    def __init__(self, report: Callable[[Report], None]) -> None:
        self._report = report
        self._mutex = threading.Lock()
        self._transactions: dict[_Key, _Transaction] = {}
        self._looks: dict[ApplyUnit, _UnitLooks] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch_transaction(self, spec: UnitSpec, number: int, session: SqlSession) -> Iterator[None]:
        """Watch the block, which is a transaction of `session`, the unit's number `number`.

        After a LockWaitError the next transaction counts as another try of the same one.
        """
        self._begin((spec.unit, number), spec.epoch, session)
        try:
            yield
        except LockWaitError:
            self._pause((spec.unit, number))
            raise
        except BaseException:
            self._end((spec.unit, number))
            raise
        self._end((spec.unit, number))

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(LOOK_AFTER_S)

    def _begin(self, key: _Key, epoch: int, session: SqlSession) -> None:
        connection = session.get_connection_id()
        with self._mutex:
            before = self._transactions.get(key)
            is_retry = before is not None and before.epoch == epoch
            began = before.began if before is not None and is_retry else monotonic()
            self._transactions[key] = _Transaction(session, connection, epoch, began)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_thread, name="row locks", daemon=True)
                self._thread.start()

    def _pause(self, key: _Key) -> None:
        with self._mutex:
            open_one = self._transactions[key]
            self._transactions[key] = _Transaction(
                open_one.session, open_one.connection, open_one.epoch, open_one.began, is_open=False
            )

    def _end(self, key: _Key) -> None:
        with self._mutex:
            del self._transactions[key]

    # -- the thread

    def _run_thread(self) -> None:
        while not self._closed.wait(TICK_S):
            try:
                self.look()
            except Exception:  # the transactions are not affected; the next look may succeed
                log.exception("look for row locks failed")

    def look(self) -> None:
        """Look up what is due, and report the waits that have ended."""
        now = monotonic()
        for unit, waiting in self._list_due(now).items():
            self._looks[unit].begin_look(now, waiting)
            self._report_found(unit, waiting, _find_holders(waiting), now)
        may_wait = self._list_waiting_units(now)
        for unit in self._looks:
            if unit not in may_wait:
                self._end_wait(unit, now)

    def _list_due(self, now: float) -> dict[ApplyUnit, list[_Transaction]]:
        """Return the old transactions of the units whose look-up is due."""
        due: dict[ApplyUnit, list[_Transaction]] = {}
        with self._mutex:
            for (unit, _), each in self._transactions.items():
                looks = self._looks.setdefault(unit, _UnitLooks())
                if each.is_open and now >= max(each.began + LOOK_AFTER_S, looks.next_at):
                    due.setdefault(unit, []).append(each)
        return due

    def _list_waiting_units(self, now: float) -> set[ApplyUnit]:
        """Return the units with a transaction that may wait, or that is tried again after a wait."""
        with self._mutex:
            return {
                unit
                for (unit, _), each in self._transactions.items()
                if not each.is_open or now >= each.began + LOOK_AFTER_S
            }

    def _report_found(
        self, unit: ApplyUnit, waiting: Sequence[_Transaction], seen: LockHolders, now: float
    ) -> None:
        """Report what was found, unless the transactions have ended meanwhile."""
        with self._mutex:
            if not any(each in self._transactions.values() for each in waiting):
                return
        if seen:
            self._report(self._looks[unit].record_wait(unit, seen, now))
        else:
            self._end_wait(unit, now)

    def _end_wait(self, unit: ApplyUnit, now: float) -> None:
        report = self._looks[unit].end_wait(unit, now)
        if report is not None:
            self._report(report)


def _find_holders(waiting: Sequence[_Transaction]) -> LockHolders:
    """Return who holds the locks for which the transactions wait; after a failure, why that is not known."""
    try:
        return waiting[0].session.find_row_holders([each.connection for each in waiting])
    except ConsumerError as error:
        return LockHolders(unseen=f"the look-up failed: {error}")
