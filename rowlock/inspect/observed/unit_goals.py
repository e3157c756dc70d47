"""The units that have yet to apply their topics up to given offsets.

A stopped unit may continue with a copy that is on its way. Then it has to apply the whole copy, so its goal
moves to the end of the topic once the copy is complete.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from consumer.ordering.model import ApplyUnit, LaneProgress
from consumer.targets.base import UnitTarget
from rowlock.coordinator.units import ApplyUnitName
from rowlock.inspect.observed.stopped_units import StoppedUnits, is_copy_open
from rowlock.views.kafka import KafkaView
from rowlock.views.target import read_known_topics, read_unit_progress, target_session
from schemas.config.model import Config
from schemas.patience import AdaptiveTimeout
from schemas.problems import Problem
from schemas.wire.copies import CopyOutcome, find_copy_state, select_copy

GOAL_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class RemainingUnits:
    """The units that have not reached their goals."""

    late: tuple[ApplyUnitName, ...]
    """Units that run."""
    awaited: tuple[ApplyUnitName, ...]
    """Stopped units that may continue without a person, and those that continue with a copy that is not
    complete yet.
    """
    offsets: Mapping[ApplyUnitName, int]
    """The offset up to which each unit has applied all; -1: none."""


def list_lagging_units(
    ends: Mapping[ApplyUnitName, int], progress: Mapping[ApplyUnitName, list[LaneProgress]]
) -> list[ApplyUnitName]:
    """Return the units with a lane that has not applied all offsets below the unit's end."""
    late = []
    for unit, end in ends.items():
        lanes = progress.get(unit, [])
        done = min((lane.offset for lane in lanes), default=-1)
        if done < end - 1:
            late.append(unit)
    return late


class UnitGoals:
    """Reads repeatedly which units have reached their goals."""

    def __init__(self, config: Config, kafka: KafkaView) -> None:
        self._config, self._kafka = config, kafka
        self._stopped = StoppedUnits()

    def describe_stops(self) -> dict[ApplyUnitName, str]:
        """Return the stopped units at the last reading, and why they have stopped."""
        return self._stopped.describe_stops()

    def read_remaining(self, ends: dict[ApplyUnitName, int]) -> RemainingUnits:
        """Return the units that have yet to reach their `ends`, apart from those that stay stopped. Moves the
        end of a unit that continues with a copy.
        """
        done: dict[ApplyUnitName, list[LaneProgress]] = {}
        stops: dict[ApplyUnitName, str | None] = {}
        for target in sorted({unit.target for unit in ends}):
            with target_session(self._config.targets[target], target, "run") as session:
                for unit, (lanes, stop) in _read_progress(session, target, ends).items():
                    done[unit], stops[unit] = lanes, stop
        watched = self._stopped.watched.union(unit for unit, stop in stops.items() if stop)
        copies = self._read_copies(watched)
        for unit in watched:
            self._stopped.note_unit(unit, stops[unit], copies[unit])
        for unit in self._stopped.take_continued([each for each in watched if is_copy_open(copies[each])]):
            ends[unit] = self._kafka.read_span(unit.topic).high
        watched, stopped = self._stopped.watched, self._stopped.describe_stops()
        late = tuple(unit for unit in list_lagging_units(ends, done) if unit not in watched)
        awaited = (*(unit for unit in watched if unit not in stopped), *self._stopped.list_awaited())
        offsets = {unit: min((lane.offset for lane in lanes), default=-1) for unit, lanes in done.items()}
        return RemainingUnits(late, awaited, offsets)

    def _read_copies(self, units: Collection[ApplyUnitName]) -> dict[ApplyUnitName, CopyOutcome | None]:
        """Return the last copy of each unit's table, as its source's last watermark has it."""
        found: dict[ApplyUnitName, CopyOutcome | None] = dict.fromkeys(units)
        marks = {
            name: self._kafka.read_watermark(name) for name in {each.source for each in units if each.table}
        }
        for unit in units:
            if unit.table is not None and (seen := marks[unit.source]) is not None:
                found[unit] = select_copy(find_copy_state(seen[1].copies, *unit.table))
        return found


def wait_for_goals(
    goals: UnitGoals, ends: dict[ApplyUnitName, int], limit: AdaptiveTimeout
) -> Problem | None:
    """Wait until all units have reached their ends. Returns why some have not; None: all have.

    `limit`: for how long no unit may apply anything.
    """
    offsets: Mapping[ApplyUnitName, int] = {}
    while (left := goals.read_remaining(ends)).late or left.awaited:
        if left.offsets != offsets:
            offsets = left.offsets
            limit.renew()
        elif limit.is_over():
            units = ", ".join(sorted(unit.topic for unit in (*left.late, *left.awaited)))
            seen = f"{units}: nothing was applied for {limit.waited:.0f} s"
            return Problem(seen, "see the reason with `rowlock status`")
        time.sleep(GOAL_POLL_S)
    stops = [f"{unit.topic} has stopped: {why}" for unit, why in sorted(goals.describe_stops().items())]
    return Problem("; ".join(stops)) if stops else None


def _read_progress(
    session: UnitTarget, target: str, units: Collection[ApplyUnitName]
) -> dict[ApplyUnitName, tuple[list[LaneProgress], str | None]]:
    """Return the progress of the units of a target, and why they have stopped."""
    found: dict[ApplyUnitName, tuple[list[LaneProgress], str | None]] = {}
    mine = [unit for unit in units if unit.target == target]
    for pipeline in sorted({unit.pipeline for unit in mine}):
        known = read_known_topics(session, pipeline)
        for unit in (unit for unit in mine if unit.pipeline == pipeline):
            lanes, state = read_unit_progress(session, known, ApplyUnit(pipeline, unit.topic))
            found[unit] = lanes, state.stopped if state is not None else None
    return found
