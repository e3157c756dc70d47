"""The stopped units of a run that ends by itself: whether a copy that is on its way lets them continue.

A stop ends the run only once nothing has changed about it for a while: the unit requests its copy a moment
after the stop, and finds a copy that has begun at its next probe. Pure, apart from the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rowlock.coordinator.units import ApplyUnitName
from rowlock.views.copy_desk import explain_copy
from schemas.patience import scale_timeout
from schemas.problems import decode_problem
from schemas.wire.copies import CopyOutcome

STOP_SETTLES_S = 30.0
"""A stop is final after this many seconds without a change: three probes of a stopped unit."""


def is_copy_open(copy: CopyOutcome | None) -> bool:
    """Return whether a copy waits or runs."""
    return copy is not None and copy.phase in ("waiting", "running")


@dataclass(frozen=True, slots=True)
class _WatchedStop:
    """A stop, and the last copy of the table, as they have been since `since_s` of the clock."""

    why: str
    copy: CopyOutcome | None
    since_s: float

    @property
    def is_copied(self) -> bool:
        return is_copy_open(self.copy)

    def describe(self) -> str:
        """Return why the unit has stopped, and why no copy mends it."""
        refused = self.copy is not None and self.copy.phase in ("refused", "cancelled")
        return f"{self.why}; {explain_copy(self.copy)}" if refused and self.copy else self.why


class StoppedUnits:
    """The stopped units, and those that have continued since with a copy."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stops: dict[ApplyUnitName, _WatchedStop] = {}
        self._continued: set[ApplyUnitName] = set()

    def note_unit(self, unit: ApplyUnitName, stopped: str | None, copy: CopyOutcome | None) -> None:
        """Take in a reading of a unit. `stopped`: its stored stop; `copy`: the last copy of its table, read
        after the stop.
        """
        if stopped is None:
            if self._stops.pop(unit, None) is not None:
                self._continued.add(unit)
            return
        why, known = str(decode_problem(stopped)), self._stops.get(unit)
        if known is None or (known.why, known.copy) != (why, copy):
            self._stops[unit] = _WatchedStop(why, copy, self._clock())

    def list_awaited(self) -> list[ApplyUnitName]:
        """Return the stopped units that may continue without a person."""
        settled = self._clock() - scale_timeout(STOP_SETTLES_S)
        return sorted(unit for unit, stop in self._stops.items() if stop.is_copied or stop.since_s > settled)

    def take_continued(self, copied: Collection[ApplyUnitName]) -> set[ApplyUnitName]:
        """Return the units that have continued, each once, after their copy is complete.

        `copied`: the units with a copy that waits or runs.
        """
        found = self._continued.difference(copied)
        self._continued -= found
        return found

    def describe_stops(self) -> dict[ApplyUnitName, str]:
        """Return the stopped units, and why they have stopped."""
        return {unit: stop.describe() for unit, stop in self._stops.items()}

    @property
    def watched(self) -> set[ApplyUnitName]:
        """The units that have stopped, or have continued with a copy that may not be complete."""
        return {*self._stops, *self._continued}
