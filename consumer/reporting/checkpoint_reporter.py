"""Reports each unit's state and checkpoint to the agent: prepared, progressed, ended.

Progress is reported every `CHECKPOINT_INTERVAL_S` if something changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer.reporting.protocol import LineWriter
from consumer.reporting.source_times import SourceTimes
from consumer.units.messages import ReportEvent
from consumer.units.unit import Applying, LocalUnit, TakingOver
from schemas.findings import WAITS_FOR_LOCK
from schemas.units import Prepared, UnitProgress, UnitProgressed, WorkerEnded, build_apply_unit_name
from schemas.wire.position import Position

CHECKPOINT_INTERVAL_S = 0.5
RATE_WINDOW_S = 2.0
"""The window in seconds over which rows/s are counted."""


@dataclass(slots=True)
class _LastReport:
    """The last progress and rate reported of one unit, and where counting began."""

    mark: UnitProgress | None = None
    rate: int = 0
    error: str | None = None
    _counted: int = 0
    _counted_at: float = 0.0

    def measure_rate(self, applied: int, now: float) -> int:
        """Return the rows/s of the last window; before its end, the rate that was reported.

        `applied`: rows applied since the unit was assigned here.
        """
        seconds = now - self._counted_at
        if seconds < RATE_WINDOW_S:
            return self.rate
        rate = round((applied - self._counted) / seconds) if self._counted_at else self.rate
        self._counted, self._counted_at = applied, now
        return rate

    def record_change(self, mark: UnitProgress, rate: int, error: str | None) -> bool:
        """Record what is to be reported; return whether it differs from the last report."""
        is_changed = (mark, rate, error) != (self.mark, self.rate, self.error)
        self.mark, self.rate, self.error = mark, rate, error
        return is_changed


class CheckpointReporter:
    """Reports the units of one pipeline. `track_unit`, and `report_event` for a unit that the core does not
    know, may be called in another thread than the rest.
    """

    def __init__(
        self, pipeline: str, lines: LineWriter, times: SourceTimes, debezium: frozenset[str] = frozenset()
    ) -> None:
        """`debezium`: sources without watermarks."""
        self._pipeline = pipeline
        self._lines = lines
        self._times = times
        self._debezium = debezium
        self._spoken: dict[tuple[str, int], _LastReport] = {}
        self._next = 0.0

    def track_unit(self, topic: str, assignment: int, mark: UnitProgress | None) -> None:
        """Begin to report a unit. `mark`: its progress when it was assigned here; less is never reported."""
        self._spoken[topic, assignment] = _LastReport(mark)

    def report_event(self, what: ReportEvent) -> None:
        """Report that a unit is prepared or has ended."""
        place = (what.topic, what.assignment)
        mark = self._spoken.get(place, _LastReport()).mark
        if what.offset is not None:
            times = self._compute_times(what.source, what.topic, what.offset, 0)
            mark = _advance_mark(times, what.position, mark)
        unit = build_apply_unit_name(self._pipeline, what.topic)
        if what.event is Prepared:
            self._lines.report_event(unit, Prepared(what.assignment))
            return
        self._spoken.pop(place, None)
        self._lines.report_event(unit, WorkerEnded(what.assignment, mark, what.error))

    def report_changes(self, now: float, units: Mapping[str, LocalUnit]) -> None:
        """Report what has changed, at most once in `CHECKPOINT_INTERVAL_S`."""
        if now < self._next:
            return
        self._next = now + CHECKPOINT_INTERVAL_S
        for unit in units.values():
            has_progress = unit.epoch and isinstance(unit.state, TakingOver | Applying)
            if unit.stop_cause or unit.lock_wait or has_progress:
                self._report_progress(now, unit)

    def _report_progress(self, now: float, unit: LocalUnit) -> None:
        ref, watched = unit.ref, unit.watched
        spoken = self._spoken.get((ref.topic, ref.assignment))
        if spoken is None:
            return
        rate = spoken.measure_rate(watched.applied, now)
        times = self._compute_times(ref.source, ref.topic, watched.offset, watched.commit_ts_ms)
        mark = _advance_mark(times, unit.position, spoken.mark)
        awaited = f"{WAITS_FOR_LOCK}{unit.lock_wait}" if unit.lock_wait else None
        error = awaited if unit.stop_cause is None else unit.stop_cause
        if spoken.record_change(mark, rate, error):
            name = build_apply_unit_name(self._pipeline, ref.topic)
            self._lines.report_event(name, UnitProgressed(ref.assignment, mark, rate, error))

    def _compute_times(self, source: str, topic: str, offset: int, commit_ts_ms: int) -> tuple[int, int]:
        """Return (checkpoint_ts, resolved_ts); 0: unknown. `commit_ts_ms`: of the last event that every
        lane has applied.

        Without watermarks, only the events themselves show how far a topic is applied. More events of
        the last one's millisecond (of its second, if the log counts in seconds) may follow, so the
        checkpoint is one millisecond before it.
        """
        if source not in self._debezium:
            return self._times.get_times(source, topic, offset)
        before = max(0, commit_ts_ms - 1)
        return before, before


def _advance_mark(
    times: tuple[int, int], position: Position | None, before: UnitProgress | None
) -> UnitProgress:
    checkpoint, resolved = times
    if before is not None:
        checkpoint, resolved = max(checkpoint, before.checkpoint_ts), max(resolved, before.resolved_ts)
        position = position if position is not None else before.position
    return UnitProgress(checkpoint, resolved, position)
