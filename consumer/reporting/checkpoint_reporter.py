"""Reports each unit's state and checkpoint to the agent: prepared, progressed (once a second, when something changed), ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer.reporting.protocol import Lines, unit_name
from consumer.reporting.source_times import SourceTimes
from consumer.units.messages import Say
from consumer.units.unit import ApplyPhase, UnitHere
from schemas.units import Ended, Mark, Prepared, Progressed
from schemas.wire.position import Position

INTERVAL_S = 0.5
RATE_S = 2.0
"""Over how long rows/s are counted."""


@dataclass(slots=True)
class _Spoken:
    """Of one unit: the last mark and rate that were said; and where counting began."""

    mark: Mark | None = None
    rate: int = 0
    counted: int = 0
    counted_at: float = 0.0
    error: str | None = None


class CheckpointReporter:
    """Turns offsets into marks. `taken_up` may come from another thread than the rest."""

    def __init__(
        self, pipeline: str, lines: Lines, times: SourceTimes, debezium: frozenset[str] = frozenset()
    ) -> None:
        """`debezium`: sources without watermarks."""
        self._pipeline = pipeline
        self._lines = lines
        self._times = times
        self._debezium = debezium
        self._spoken: dict[tuple[str, int], _Spoken] = {}
        self._next = 0.0

    def taken_up(self, topic: str, assignment: int, mark: Mark | None) -> None:
        """`mark`: how far the unit was when it was given to us; less is never said."""
        self._spoken[topic, assignment] = _Spoken(mark)

    def say(self, what: Say) -> None:
        """Say that a unit is prepared, or has ended."""
        place = (what.topic, what.assignment)
        mark = self._spoken.get(place, _Spoken()).mark
        if what.offset is not None:
            times = self._times_of(what.source, what.topic, what.offset, 0)
            mark = _mark(times, what.position, mark)
        unit = unit_name(self._pipeline, what.topic)
        if what.event is Prepared:
            self._lines.say(unit, Prepared(what.assignment))
            return
        self._spoken.pop(place, None)
        self._lines.say(unit, Ended(what.assignment, mark, what.error))

    def tick(self, now: float, units: Mapping[str, UnitHere]) -> None:
        """Say what has changed, when it is time."""
        if now < self._next:
            return
        self._next = now + INTERVAL_S
        for unit in units.values():
            if unit.waits or (unit.epoch and unit.phase in {ApplyPhase.TAKING_OVER, ApplyPhase.APPLYING}):
                self._progressed(now, unit)

    def _progressed(self, now: float, unit: UnitHere) -> None:
        spoken = self._spoken.get((unit.topic, unit.assignment))
        if spoken is None:
            return
        rate = spoken.rate
        if now - spoken.counted_at >= RATE_S:
            applied = unit.watched.applied
            if spoken.counted_at:
                rate = round((applied - spoken.counted) / (now - spoken.counted_at))
            spoken.counted, spoken.counted_at = applied, now
        watched = unit.watched
        times = self._times_of(unit.source, unit.topic, watched.offset, watched.commit_ts_ms)
        mark = _mark(times, unit.position, spoken.mark)
        error = unit.error if unit.waits else None
        if (mark, rate, error) != (spoken.mark, spoken.rate, spoken.error):
            spoken.mark, spoken.rate, spoken.error = mark, rate, error
            name = unit_name(self._pipeline, unit.topic)
            self._lines.say(name, Progressed(unit.assignment, mark, rate, error))

    def _times_of(self, source: str, topic: str, offset: int, commit_ts_ms: int) -> tuple[int, int]:
        """Return (checkpoint_ts, resolved_ts); 0: unknown. `commit_ts_ms`: of the last event that every lane has applied.

        Without watermarks only the events themselves say how far a topic is. More of the last one's millisecond, or of its
        second where the log counts in seconds, may follow it.
        """
        if source not in self._debezium:
            return self._times.times(source, topic, offset)
        before = max(0, commit_ts_ms - 1)
        return before, before


def _mark(times: tuple[int, int], position: Position | None, before: Mark | None) -> Mark:
    checkpoint, resolved = times
    if before is not None:
        checkpoint, resolved = max(checkpoint, before.checkpoint_ts), max(resolved, before.resolved_ts)
        position = position if position is not None else before.position
    return Mark(checkpoint, resolved, position)
