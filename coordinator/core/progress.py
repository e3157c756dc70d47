"""Progress of units and pipelines. A unit's progress only grows; a pipeline's never passes a missing or
slower unit.

The functions are pure, over values that the caller keeps. All times are source commit times in ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from schemas.units import UnitProgress


def advance_mark(known: UnitProgress | None, reported: UnitProgress | None) -> UnitProgress | None:
    """Return the progress after a report: each part is the greater of both, so a late report changes
    nothing.

    A unit cannot have applied what has not been captured, so resolved is at least the checkpoint.
    """
    if known is None or reported is None:
        return known or reported
    if _is_at_least(reported, known):  # nearly always: no new object
        return reported
    checkpoint = max(known.checkpoint_ts, reported.checkpoint_ts)
    positions = [p for p in (known.position, reported.position) if p is not None]
    return UnitProgress(
        checkpoint,
        max(known.resolved_ts, reported.resolved_ts, checkpoint),
        max(positions) if positions else None,
    )


def _is_at_least(mark: UnitProgress, other: UnitProgress) -> bool:
    """Return whether each part of the progress is at least the other's."""
    if mark.position is None or not other.checkpoint_ts <= mark.checkpoint_ts <= mark.resolved_ts:
        return False
    return other.resolved_ts <= mark.resolved_ts and (
        other.position is None or other.position <= mark.position
    )


@dataclass(frozen=True, slots=True)
class PipelineUnits:
    """The apply units of a pipeline by source, from which its progress is computed. A source without
    units is missing, not done.
    """

    pipeline: str
    by_source: Mapping[str, tuple[str, ...]]


class PipelineProgress(msgspec.Struct, frozen=True):
    """The progress of a pipeline, in source commit ms; None: not known yet."""

    checkpoint_ts: int | None = msgspec.field(name="checkpoint_ts", default=None)
    """The minimum of what all units have applied. Every source is applied up to this time (`cut_ts`)."""
    resolved_ts: int | None = msgspec.field(name="resolved_ts", default=None)
    """The minimum of what has been captured for all units."""
    by_source: Mapping[str, int] = msgspec.field(name="by_source", default_factory=dict)
    """The checkpoint of each source."""
    waits_for: tuple[str, ...] = msgspec.field(name="waits_for", default=())
    """What keeps the progress from being computed (units without progress, sources without units), in
    order. Until then it stays where it was.
    """

    @property
    def cut_ts(self) -> int | None:
        return self.checkpoint_ts


def advance_pipeline(
    before: PipelineProgress, units: PipelineUnits, marks: Mapping[str, UnitProgress | None]
) -> PipelineProgress:
    """Return the pipeline's progress after `marks` (of all its units; None or no entry: not known).

    Each source advances by itself and never goes back; the pipeline advances only while no unit is
    missing. A unit that was added with an earlier checkpoint does not take the pipeline back: the
    pipeline waits until the unit has caught up.
    """
    waits: list[str] = []
    by_source = {source: ts for source, ts in before.by_source.items() if source in units.by_source}
    applied: list[int] = []
    resolved: list[int] = []
    for source, names in sorted(units.by_source.items()):
        known = [mark for name in names if (mark := marks.get(name)) is not None]
        if len(known) < len(names) or not names:
            waits.extend([name for name in names if marks.get(name) is None] or [source])
            continue
        lowest = min([mark.checkpoint_ts for mark in known])
        applied.append(lowest)
        by_source[source] = max(lowest, by_source.get(source, lowest))
        resolved.append(min([mark.resolved_ts for mark in known]))
    if waits or not units.by_source:
        return PipelineProgress(before.checkpoint_ts, before.resolved_ts, by_source, tuple(waits))
    checkpoint = _keep_highest(before.checkpoint_ts, applied)
    return PipelineProgress(checkpoint, _keep_highest(before.resolved_ts, resolved), by_source)


def _keep_highest(before: int | None, now: Iterable[int]) -> int:
    lowest = min(now)
    return lowest if before is None else max(before, lowest)
