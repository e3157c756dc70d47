"""Sends a slot's reports, several at once if they come fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from consumer.attempt.reports import Report
from consumer.slots.faults import fault_ends_process
from consumer.slots.messages import SlotAnswer, SlotReports, UnitReleased

SEND_INTERVAL_S = 0.05
"""Least time in seconds between two messages with reports. For each one the apply process looks at all its
units."""


class ReportOutbox:
    """Passes reports and releases on to `answer`, in their order. Thread-safe; never blocks."""

    def __init__(self, answer: Callable[[SlotAnswer], None], name: str) -> None:
        self._answer, self._name = answer, name
        self._changed = threading.Condition()
        self._waiting: dict[str, SlotReports] = {}
        self._next_at = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._send_in_time, name=f"{name} reports", daemon=True)
        self._thread.start()

    def put_report(self, run: str, report: Report) -> None:
        """Send a report at once, or with others within `SEND_INTERVAL_S`."""
        with self._changed:
            waiting = self._waiting.setdefault(run, SlotReports(run, []))
            waiting.reports.append(report)
            if time.monotonic() >= self._next_at:
                self._send_waiting()
            else:
                self._changed.notify()

    def put_release(self, released: UnitReleased) -> None:
        """Send a release at once, after all reports."""
        with self._changed:
            self._send_waiting()
            self._answer(released)

    def close(self) -> None:
        """Send what waits."""
        with self._changed:
            self._send_waiting()
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _send_waiting(self) -> None:
        """Send all reports. Called with the mutex held."""
        if not self._waiting:
            return
        for waiting in self._waiting.values():
            self._answer(waiting)
        self._waiting = {}
        self._next_at = time.monotonic() + SEND_INTERVAL_S

    def _send_in_time(self) -> None:
        with fault_ends_process(self._name), self._changed:
            while not self._closing:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                self._changed.wait_for(lambda: self._closing, self._next_at - time.monotonic())
                self._send_waiting()
