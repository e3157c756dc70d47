"""The units of an agent that have been prepared and have not ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

from schemas.units import PrepareProgress, WorkerEnded, WorkerEvent

OnEvent = Callable[[str, WorkerEvent], None]


class UnitLedger:
    """The units that have been prepared and have not ended. It reports the end of each exactly once,
    whatever detects it.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._assignments: dict[str, int] = {}
        self._preparing: dict[str, int] = {}
        self._on_event: OnEvent = lambda _unit, _event: None

    def listen(self, on_event: OnEvent) -> None:
        self._on_event = on_event

    def register_unit(self, unit: str, assignment: int) -> None:
        with self._mutex:
            self._assignments[unit] = self._preparing[unit] = assignment

    def has_assignment(self, unit: str, assignment: int) -> bool:
        with self._mutex:
            return self._assignments.get(unit) == assignment

    def list_units(self) -> list[tuple[str, int]]:
        with self._mutex:
            return list(self._assignments.items())

    def list_preparing(self) -> list[tuple[str, int]]:
        """Return the units that have not reported yet that they are ready."""
        with self._mutex:
            return list(self._preparing.items())

    def report_event(self, unit: str, event: WorkerEvent) -> None:
        """Pass on a worker's event if the unit is known under its assignment; other events are late."""
        with self._mutex:
            if self._assignments.get(unit) != event.assignment:
                return
            if not isinstance(event, PrepareProgress):
                self._preparing.pop(unit, None)
            if isinstance(event, WorkerEnded):
                del self._assignments[unit]
        self._on_event(unit, event)
