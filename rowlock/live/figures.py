"""The figures of the live view, computed from what the coordinator and the sources report. Pure.

Everything comes from the views of `rowlock status` and REST. Rates of sources and pipelines are those that
the agents report; the rate of a copy is computed from two readings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from coordinator.server.operators.copies import CopyRow
from rowlock.commands.slot_lines import format_slot_lines
from rowlock.inspect.observed.first_copy_reader import FirstCopyList
from rowlock.inspect.observed.source_status import SourceStatus
from rowlock.inspect.placement import Placement, PlacementRow
from rowlock.inspect.status import Status
from schemas.units import build_capture_unit_name

SLOW_S = 10.0
"""A table with more lag than this is shown by name."""
SILENT_AFTER_S = 5.0
"""Without a new reading for this many seconds, the view shows the age of its figures."""
_COPIES = ("running", "waiting")
_TROUBLES = ("stopped", "restarting", "left out")
"""The states of what does not run, the worst first."""


@dataclass(frozen=True, slots=True)
class LiveReading:
    """The answers of the coordinator and the last watermarks of the sources, at one moment."""

    time_ms: int
    placement: Placement
    sources: tuple[SourceStatus, ...] = ()
    first_copies: FirstCopyList = field(default_factory=FirstCopyList)


@dataclass(frozen=True, slots=True)
class QuarantinedRows:
    """The quarantined rows by pipeline, and the problems, as `rowlock status` has last read them."""

    time_ms: int
    by_pipeline: Mapping[str, int]
    problems: tuple[str, ...] = ()

    @classmethod
    def from_status(cls, status: Status) -> QuarantinedRows:
        held: dict[str, int] = defaultdict(int)
        for unit in status.units:
            held[unit.pipeline] += unit.quarantined_rows
        return cls(status.time_ms, dict(held), status.problems)


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """A line about a source."""

    name: str
    state: str
    rows_per_s: int
    lag_s: float | None
    snapshot_pending: int
    """Tables whose first copy is not complete."""


@dataclass(frozen=True, slots=True)
class PipelineFigures:
    """A line about a pipeline."""

    name: str
    running: int
    units: int
    rows_per_s: int
    lag_s: float | None
    """The lag of its slowest unit that runs; None: not known."""
    held: int | None
    """Quarantined events; None: not read yet."""


@dataclass(frozen=True, slots=True)
class CopyFigures:
    """A line about the copy of a table."""

    table: str
    phase: str
    rows: int
    estimate: int | None
    rows_per_s: float | None
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class StoppedPart:
    """A table or a unit that does not run, and why."""

    what: str
    state: str
    """stopped | left out | restarting."""
    why: str


@dataclass(frozen=True, slots=True)
class SlowTable:
    """A unit that lags."""

    unit: str
    lag_s: float


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """All that the live view shows."""

    sources: tuple[SourceFigures, ...] = ()
    pipelines: tuple[PipelineFigures, ...] = ()
    copies: tuple[CopyFigures, ...] = ()
    first_copies: FirstCopyList = field(default_factory=FirstCopyList)
    troubles: tuple[StoppedPart, ...] = ()
    slow: tuple[SlowTable, ...] = ()
    problems: tuple[str, ...] = ()
    rest: str = ""
    """The coordinator's REST address; "": not known."""
    silence: str = ""
    """Why the figures are old; "": they are not."""


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """The last readings. `latest` and `earlier`: the last two that succeeded; None: there were none."""

    latest: LiveReading | None = None
    earlier: LiveReading | None = None
    held: QuarantinedRows | None = None
    failure: str = ""
    """Why the last reading failed; "": it did not."""


def compute_figures(seen: LiveSnapshot, now_ms: int) -> LiveFigures:
    """Return the figures at `now_ms`."""
    silence = describe_silence(seen, now_ms)
    if seen.latest is None:
        return LiveFigures(silence=silence)
    reading = seen.latest
    apply_units = [row for row in reading.placement.units.values() if row["kind"] == "apply"]
    return LiveFigures(
        sources=_sort_worst(_build_source(each, reading) for each in reading.sources),
        pipelines=_sort_worst(_build_pipelines(apply_units, reading.time_ms, seen.held)),
        copies=_list_copies(reading, seen.earlier),
        first_copies=reading.first_copies,
        troubles=_list_troubles(reading),
        slow=_list_slow_tables(apply_units, reading.time_ms),
        problems=(
            *format_slot_lines(reading.placement.slots),
            *(() if seen.held is None else seen.held.problems),
        ),
        rest=reading.placement.rest,
        silence=silence,
    )


def describe_silence(seen: LiveSnapshot, now_ms: int) -> str:
    """Return why the view has no figures, or old ones; "": they are new."""
    if seen.latest is None:
        return f"no figures yet: {seen.failure or 'the coordinator starts'}"
    age_s = (now_ms - seen.latest.time_ms) / 1000
    if age_s < SILENT_AFTER_S:
        return ""
    why = seen.failure or "the coordinator does not answer"
    return f"the figures are {age_s:.0f} s old: {why}"


_Part = TypeVar("_Part", SourceFigures, PipelineFigures)


def _sort_worst(parts: Iterable[_Part]) -> tuple[_Part, ...]:
    """Return the parts with the most lag first; a lag that is not known counts as the most."""
    return tuple(sorted(parts, key=lambda each: (each.lag_s is not None, -(each.lag_s or 0.0), each.name)))


def _build_source(source: SourceStatus, reading: LiveReading) -> SourceFigures:
    unit = reading.placement.units.get(build_capture_unit_name(source.name))
    rate = 0 if unit is None else int(unit["rows_per_s"])
    return SourceFigures(source.name, source.state, rate, source.lag_seconds, len(source.snapshot_pending))


def _build_pipelines(
    units: Iterable[PlacementRow], now_ms: int, held: QuarantinedRows | None
) -> list[PipelineFigures]:
    by_pipeline: dict[str, list[PlacementRow]] = defaultdict(list)
    for row in units:
        by_pipeline[str(row["pipeline"])].append(row)
    return [_build_pipeline(name, rows, now_ms, held) for name, rows in by_pipeline.items()]


def _build_pipeline(
    name: str, units: Sequence[PlacementRow], now_ms: int, held: QuarantinedRows | None
) -> PipelineFigures:
    running = [row for row in units if row["health"] == "running"]
    lags = [lag for row in running if (lag := _compute_lag_s(row, now_ms)) is not None]
    return PipelineFigures(
        name=name,
        running=len(running),
        units=len(units),
        rows_per_s=sum(int(row["rows_per_s"]) for row in units),
        lag_s=max(lags, default=None),
        held=None if held is None else held.by_pipeline.get(name, 0),
    )


def _compute_lag_s(unit: PlacementRow, now_ms: int) -> float | None:
    """Return the seconds by which the unit lags; None: its progress is not known."""
    applied_to = unit["checkpoint_ts"]
    return max(0.0, (now_ms - applied_to) / 1000) if applied_to else None


def _list_copies(reading: LiveReading, earlier: LiveReading | None) -> tuple[CopyFigures, ...]:
    """Return the copies that run or wait, those that run first."""
    before = {} if earlier is None else {each.id: each for s in earlier.sources for each in s.copies}
    elapsed_s = 0.0 if earlier is None else (reading.time_ms - earlier.time_ms) / 1000
    open_copies = [each for s in reading.sources for each in s.copies if each.phase in _COPIES]
    ordered = sorted(open_copies, key=lambda each: (_COPIES.index(each.phase), each.source, each.table))
    return tuple(_build_copy(each, before.get(each.id), elapsed_s) for each in ordered)


def _build_copy(row: CopyRow, before: CopyRow | None, elapsed_s: float) -> CopyFigures:
    is_measured = row.phase == "running" and before is not None and elapsed_s > 0
    rate = max(0, row.rows - before.rows) / elapsed_s if is_measured and before is not None else None
    table = f"{row.source}: {row.table}"
    return CopyFigures(table, row.phase, row.rows, row.estimate, rate, row.eta_s)


def _list_troubles(reading: LiveReading) -> tuple[StoppedPart, ...]:
    """Return the tables and units that do not run: the stopped ones first, those that never ran last."""
    tables = [
        StoppedPart(
            f"{source.name}: {each.table}", each.state, ": ".join(filter(None, (each.cause, each.reason)))
        )
        for source in reading.sources
        for each in source.tables
    ]
    units = [
        StoppedPart(name, str(row["health"]), str(row["reason"] or ""))
        for name, row in sorted(reading.placement.units.items())
        if row["health"] in _TROUBLES
    ]
    return tuple(sorted((*tables, *units), key=lambda each: _TROUBLES.index(each.state)))


def _list_slow_tables(units: Iterable[PlacementRow], now_ms: int) -> tuple[SlowTable, ...]:
    """Return the running units that lag much, the slowest first."""
    found = [
        SlowTable(str(row["unit"]), lag)
        for row in units
        if row["health"] == "running" and (lag := _compute_lag_s(row, now_ms)) is not None and lag > SLOW_S
    ]
    return tuple(sorted(found, key=lambda each: (-each.lag_s, each.unit)))
