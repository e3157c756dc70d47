"""The figures that the processes of an agent report, for `GET /metrics` of the agent.

A capture process counts rows from its own start, and the apply process counts from each preparation of a
unit. Here the counts go on from the agent's start, whatever ends meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from consumer.attempt.reports import NO_FIGURES, LaneFigures
from consumer.units.supervision import WatchedUnit
from schemas.slots import SlotReport


class CopyProgress(msgspec.Struct, frozen=True):
    """Progress of the copy of one table, as capture reports it."""

    phase: str = msgspec.field(name="phase")
    rows: int = msgspec.field(name="rows", default=0)
    """Rows published so far."""
    estimate: int | None = msgspec.field(name="estimate", default=None)
    """About how many rows there will be; None: not known."""


class CapturedLine(msgspec.Struct, frozen=True):
    """The members of capture's line `captured` that metrics use."""

    events: int = msgspec.field(name="events", default=0)
    """Rows since the process started."""
    snapshot_pending: tuple[str, ...] = msgspec.field(name="snapshot_pending", default=())
    stops: dict[str, str] = msgspec.field(name="stops", default_factory=dict)
    """"db.table" → cause of the stop."""
    copies: dict[str, CopyProgress] = msgspec.field(name="copies", default_factory=dict)
    """"db.table" → its last copy."""
    removed: dict[str, int] = msgspec.field(name="removed", default_factory=dict)
    """"db.table" → time of a statement that removed rows which targets may still have, in milliseconds."""
    prepared_ms: int = msgspec.field(name="prepared_ms", default=0)
    """Time of the oldest XA PREPARE whose transaction has not ended, in milliseconds; 0: there is none."""


@dataclass(slots=True)
class CapturedFigures:
    """Figures that the capture processes of one source have reported."""

    last: CapturedLine = field(default_factory=CapturedLine)
    heard_at: float = 0.0
    """Time of the last report of the present process, in seconds since 1970; 0: none yet."""
    rows_before: int = 0
    """Rows of earlier processes."""
    delivery_failures: int = 0
    """How often Kafka has not taken an event, since the agent started."""
    finished: bool = False
    """Whether its snapshot was all it had to do, and is complete."""

    @property
    def rows(self) -> int:
        """Rows since the agent started."""
        return self.rows_before + self.last.events

    def record_line(self, line: CapturedLine, now: float) -> None:
        """Record a report. If it has fewer rows than the one before, another count has begun."""
        if line.events < self.last.events:
            self.rows_before = self.rows
        self.last, self.heard_at = line, now

    def count_delivery_failure(self) -> None:
        self.delivery_failures += 1

    def end_process(self) -> None:
        """Keep the sum alone: the process that has reported the rest has ended."""
        self.rows_before, self.last, self.heard_at = self.rows, CapturedLine(), 0.0
        self.finished = False

    def finish_snapshot(self) -> None:
        """Record that its snapshot was all it had to do, and is complete."""
        self.finished = True


@dataclass(frozen=True, slots=True)
class AppliedFigures:
    """Figures that the apply process has reported of one unit, or of several; see `Report`."""

    applied: int = 0
    held: int = 0
    displaced: int = 0
    lanes: LaneFigures = NO_FIGURES
    left: int | None = None

    @classmethod
    def from_unit(cls, unit: WatchedUnit) -> AppliedFigures:
        return cls(unit.applied, unit.held, unit.displaced, unit.lanes, unit.left)

    def merge(self, other: AppliedFigures) -> AppliedFigures:
        """Return the figures of both. What is in quarantine of both, or left, is added up."""
        merged = self.lanes.merge(other.lanes)
        return AppliedFigures(
            self.applied + other.applied,
            self.held + other.held,
            self.displaced + other.displaced,
            msgspec.structs.replace(
                merged, open_quarantine=_add_known(self.lanes.open_quarantine, other.lanes.open_quarantine)
            ),
            _add_known(self.left, other.left),
        )

    def end_unit(self) -> AppliedFigures:
        """Return what stays true after the unit has ended here."""
        return replace(self, lanes=msgspec.structs.replace(self.lanes, open_quarantine=None), left=None)


def _add_known(*numbers: int | None) -> int | None:
    """Return the sum of the numbers that are known; None: none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


@dataclass(slots=True)
class _UnitFigures:
    """The figures of one unit: of its earlier preparations, and of the present one."""

    before: AppliedFigures = field(default_factory=AppliedFigures)
    present: AppliedFigures = field(default_factory=AppliedFigures)

    @property
    def total(self) -> AppliedFigures:
        return self.before.merge(self.present)

    def record_status(self, unit: WatchedUnit) -> None:
        """Record what the process reports of the unit since it was prepared."""
        self.present = AppliedFigures.from_unit(unit)

    def end_unit(self) -> None:
        """Record that the unit has ended: if it is prepared again, it is counted from 0."""
        self.before, self.present = self.total.end_unit(), AppliedFigures()


class ReportedFigures:
    """All figures that the processes of one agent have reported. Its methods may be called in any thread.

    `wall`: seconds since 1970. `clock`: seconds of a clock that is never set.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._clock = wall, clock
        self._mutex = threading.Lock()
        self._starts: Counter[tuple[str, str]] = Counter()
        self._sources: dict[str, CapturedFigures] = {}
        self._units: dict[tuple[str, str], _UnitFigures] = {}
        self._slots: tuple[SlotReport, float] | None = None
        """The last report of the apply process, and when it arrived."""

    # what is reported

    def begin_capture(self, source: str) -> None:
        """Record that a capture process of the source starts."""
        with self._mutex:
            self._starts["capture", source] += 1
            self._sources.setdefault(source, CapturedFigures())

    def end_capture(self, source: str) -> None:
        """Record that the capture process of the source, or its unit without work, has ended."""
        with self._mutex:
            if (known := self._sources.get(source)) is not None:
                known.end_process()

    def finish_snapshot(self, source: str) -> None:
        """Record that the source's snapshot was all its unit had to do, and is complete."""
        with self._mutex:
            self._sources.setdefault(source, CapturedFigures()).finish_snapshot()

    def record_captured(self, source: str, line: dict[str, Any]) -> None:
        """Record a line `captured` of the source's process."""
        reported = msgspec.convert(line, CapturedLine)
        with self._mutex:
            self._sources.setdefault(source, CapturedFigures()).record_line(reported, self._wall())

    def count_delivery_failure(self, source: str) -> None:
        """Count that Kafka has not taken an event of the source's capture process."""
        with self._mutex:
            self._sources.setdefault(source, CapturedFigures()).count_delivery_failure()

    def begin_apply(self) -> None:
        """Record that the apply process starts. All units of an earlier one have ended."""
        with self._mutex:
            self._starts["apply", ""] += 1
            for unit in self._units.values():
                unit.end_unit()

    def record_slots(self, line: dict[str, Any]) -> None:
        """Record a line `slots` of the apply process."""
        with self._mutex:
            self._slots = msgspec.convert(line, SlotReport), self._clock()

    def forget_slots(self) -> None:
        """Forget the slots of the apply process, which has ended."""
        with self._mutex:
            self._slots = None

    def begin_unit(self, pipeline: str, topic: str) -> None:
        """Record that an apply unit is being prepared. Its counts are reported from now on: Prometheus sees
        no increase in the first value of a series.
        """
        with self._mutex:
            self._units.setdefault((pipeline, topic), _UnitFigures())

    def record_status(self, line: dict[str, Any]) -> None:
        """Record a line `status` of the apply process."""
        units = msgspec.convert(line["units"], dict[str, WatchedUnit])
        with self._mutex:
            for topic, unit in units.items():
                self._units.setdefault((line["pipeline"], topic), _UnitFigures()).record_status(unit)

    def end_unit(self, pipeline: str, topic: str) -> None:
        """Record that an apply unit has ended."""
        with self._mutex:
            if (known := self._units.get((pipeline, topic))) is not None:
                known.end_unit()

    # what a scrape reads

    def list_starts(self) -> Mapping[tuple[str, str], int]:
        """Return (kind of process, its source or "") → how many were started."""
        with self._mutex:
            return dict(self._starts)

    def list_sources(self) -> Mapping[str, CapturedFigures]:
        """Return source → its figures."""
        with self._mutex:
            return {name: _copy_figures(figures) for name, figures in sorted(self._sources.items())}

    def get_slots(self) -> SlotReport | None:
        """Return how many slots in Spark are open now; None: the apply process has not reported it yet."""
        with self._mutex:
            if self._slots is None:
                return None
            report, heard_at = self._slots
            if not report.is_short:
                return report
            elapsed_s = int(self._clock() - heard_at)
            return msgspec.structs.replace(report, short_s=report.short_s + elapsed_s)

    def list_topics(self) -> Mapping[tuple[str, str], AppliedFigures]:
        """Return (pipeline, topic) → its figures."""
        with self._mutex:
            return {key: figures.total for key, figures in sorted(self._units.items())}

    def list_units(self, per_topic: int) -> Mapping[tuple[str, str], AppliedFigures]:
        """Return (pipeline, topic) → its figures. With more than `per_topic` topics, the figures of a
        pipeline's topics are merged under the topic "".
        """
        found = self.list_topics()
        if len(found) <= per_topic:
            return found
        merged: dict[tuple[str, str], AppliedFigures] = {}
        for (pipeline, _), figures in found.items():
            merged[pipeline, ""] = merged.get((pipeline, ""), AppliedFigures()).merge(figures)
        return merged


def _copy_figures(figures: CapturedFigures) -> CapturedFigures:
    return replace(figures)
