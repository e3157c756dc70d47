"""Reports progress of units in preparation, as long as their processes work.

On a busy machine a process takes many times as long to start, and giving it up would only start all that
work again. A process that hangs uses no processor time; one that waits for its turn does, if slowly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rowlock.agent.unit_ledger import UnitLedger
from schemas.units import PrepareProgress

EVERY_S = 2.0
LEAST = 0.01
"""The growth of an effort (mostly processor seconds) that counts as progress."""


class PreparationMonitor:
    """Reports progress of units in preparation. `effort(unit, assignment)` grows while the preparation
    makes progress.
    """

    def __init__(
        self, ledger: UnitLedger, effort: Callable[[str, int], float], every_s: float = EVERY_S
    ) -> None:
        self._ledger, self._effort, self._every_s = ledger, effort, every_s
        self._known: dict[tuple[str, int], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()

    def report_progress(self) -> None:
        """Report each unit in preparation that has made progress since the last call."""
        now = {one: self._effort(*one) for one in self._ledger.list_preparing()}
        for (unit, assignment), effort in now.items():
            if effort > self._known.get((unit, assignment), effort) + LEAST:
                self._ledger.report_event(unit, PrepareProgress(assignment))
        self._known = now

    def _run_loop(self) -> None:
        while not self._stop.wait(self._every_s):
            self.report_progress()
