"""Progress of units and pipelines: a unit's mark only grows, a pipeline's never passes a unit that is missing or behind.

Pure, over values the caller keeps. All times are source commit times in ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from schemas.units import UnitProgress


def advance_mark(known: UnitProgress | None, reported: UnitProgress | None) -> UnitProgress | None:
    """Return the mark after a report: each part is the greater of both, so a late report changes nothing.

    A unit cannot have applied what has not been captured: resolved is at least the checkpoint.
    """
    if known is None or reported is None:
        return known or reported
    if _is_at_least(reported, known):  # nearly always: nothing is made
        return reported
    checkpoint = max(known.checkpoint_ts, reported.checkpoint_ts)
    positions = [p for p in (known.position, reported.position) if p is not None]
    return UnitProgress(
        checkpoint,
        max(known.resolved_ts, reported.resolved_ts, checkpoint),
        max(positions) if positions else None,
    )


def _is_at_least(mark: UnitProgress, other: UnitProgress) -> bool:
    """Tell whether each part of the mark is at least the other's."""
    if mark.position is None or not other.checkpoint_ts <= mark.checkpoint_ts <= mark.resolved_ts:
        return False
    return other.resolved_ts <= mark.resolved_ts and (
        other.position is None or other.position <= mark.position
    )


@dataclass(frozen=True, slots=True)
class PipelineUnits:
    """A pipeline's apply units by source: all that its progress is computed from. A source without any unit is missing, not done."""

    pipeline: str
    by_source: Mapping[str, tuple[str, ...]]


class PipelineProgress(msgspec.Struct, frozen=True):
    """`checkpoint_ts`, `resolved_ts`: minimum over all units; `cut_ts`: up to where *all* sources are applied.

    None: not known yet. `waits_for`: what keeps it from being computed anew (units without a mark, sources without
    units), in order; it then stays where it was.
    """

    checkpoint_ts: int | None = msgspec.field(name="checkpoint_ts", default=None)
    resolved_ts: int | None = msgspec.field(name="resolved_ts", default=None)
    by_source: Mapping[str, int] = msgspec.field(name="by_source", default_factory=dict)
    waits_for: tuple[str, ...] = msgspec.field(name="waits_for", default=())

    @property
    def cut_ts(self) -> int | None:
        return self.checkpoint_ts


def advance_pipeline(
    before: PipelineProgress, units: PipelineUnits, marks: Mapping[str, UnitProgress | None]
) -> PipelineProgress:
    """Return the pipeline's progress after `marks` (of all its units; None or no entry: not known).

    Each source goes on by itself, never back; the pipeline and its cut only when nothing is missing. A unit that was
    added behind the pipeline's checkpoint does not take it back: the pipeline waits until the unit has caught up.
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
