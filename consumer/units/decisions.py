"""Schedules one pipeline's assigned units: gives each event to its unit, and chooses whose table is checked.

`step_pipeline` changes the state it is given and returns it. It does no I/O. Times are monotonic
seconds. Its events come from operation threads (which ask target and Kafka) and from slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from msgspec.structs import replace

from consumer.units.messages import (
    AttemptsReported,
    CheckTable,
    PipelineEffect,
    PipelineEvent,
    PipelineTick,
    PrepareUnit,
    RemoveUnit,
    ReportEvent,
    SecretsReplaced,
    SlotLost,
    StartUnit,
    TableChecked,
)
from consumer.units.transitions import LocalUnitEvent, step_unit
from consumer.units.unit import Applying, LocalUnit, Preparing, Stopped, UnitRef
from schemas.units import WorkerEnded

PROBE_INTERVAL_S = 10.0
"""Interval in seconds between two probes of a stopped unit."""
MAX_FAST_PROBES = 30
"""Up to this many stopped units are probed at that interval. More units are probed less often, because a
probe costs the target a few queries."""
CHECK_S, CHECK_PAUSE_S = 60.0, 1.0
"""Interval in seconds at which the target table of a running unit is checked, and the pause between two
checks of a pipeline. Triggers, rules and the like change rows or suppress them without any error."""


@dataclass(slots=True)
class PipelineState:
    """The units of one pipeline in this process."""

    units: dict[str, LocalUnit] = field(default_factory=dict)
    """The units by topic."""
    secrets_replaced: bool = False
    """Whether the units know earlier secrets than units that are prepared from now on."""
    _check_at: float = 0.0
    """When the next running unit may be checked (monotonic seconds); infinite while a check is running."""

    def record_new_secrets(self) -> None:
        """Record that units that are prepared from now on know other secrets."""
        self.secrets_replaced = True

    def has_unit(self, topic: str, assignment: int) -> bool:
        return topic in self.units and self.units[topic].ref.assignment == assignment

    @property
    def probe_interval_s(self) -> float:
        stopped = sum(isinstance(unit.state, Stopped) for unit in self.units.values())
        return PROBE_INTERVAL_S * max(1.0, stopped / MAX_FAST_PROBES)

    def step_topic(
        self, topic: str, event: LocalUnitEvent, now: float, probe_interval_s: float = PROBE_INTERVAL_S
    ) -> list[PipelineEffect]:
        """Give an event to the topic's unit, if there is one; return the effects."""
        unit = self.units.get(topic)
        if unit is None:
            return []
        after, effects = step_unit(unit, event, now, probe_interval_s)
        if after is None:
            del self.units[topic]
        else:
            self.units[topic] = after
        return effects

    def begin_check(self, now: float) -> LocalUnit | None:
        """Return the running unit whose table is checked now: the one with the oldest check, if that was
        `CHECK_S` ago.
        """
        if now < self._check_at:
            return None
        self._check_at = now + CHECK_PAUSE_S
        running = (unit for unit in self.units.values() if isinstance(unit.state, Applying))
        unit = min(running, key=lambda each: each.checked_at, default=None)
        if unit is None or now < unit.checked_at + CHECK_S:
            return None
        self.units[unit.ref.topic] = replace(unit, checked_at=now)
        self._check_at = math.inf
        return unit

    def end_check(self, now: float) -> None:
        """Let the next check begin after a pause."""
        self._check_at = now + CHECK_PAUSE_S


def step_pipeline(
    state: PipelineState, event: PipelineEvent, now: float
) -> tuple[PipelineState, list[PipelineEffect]]:
    """Apply `event` at the time `now`; return the state and the effects, in order."""
    out = _handle_event(state, event, now)
    # Units that apply have no operation that is due, and their connections outlive a change of secrets.
    for topic in [topic for topic, unit in state.units.items() if not isinstance(unit.state, Applying)]:
        if state.secrets_replaced:
            out += state.step_topic(topic, SecretsReplaced(), now)
        out += state.step_topic(topic, PipelineTick(), now)
    checked = state.begin_check(now)
    if checked is not None:
        out.append(CheckTable(checked.ref, checked.epoch))
    return state, out


def _handle_event(state: PipelineState, event: PipelineEvent, now: float) -> list[PipelineEffect]:
    match event:
        case PipelineTick():
            return []
        case SecretsReplaced():
            state.record_new_secrets()
            return []
        case PrepareUnit():
            return _add_unit(state, event, now)
        case AttemptsReported(reports):
            steps = (state.step_topic(report.topic, report, now) for report in reports)
            return [effect for effects in steps for effect in effects]
        case TableChecked():
            state.end_check(now)
    if isinstance(event, SlotLost) or state.has_unit(event.topic, event.assignment):
        return state.step_topic(event.topic, event, now, state.probe_interval_s)
    return _report_unknown(event)


def _add_unit(state: PipelineState, event: PrepareUnit, now: float) -> list[PipelineEffect]:
    held = state.units.get(event.topic)
    if held is None:
        ref = UnitRef(event.topic, event.source, event.assignment)
        state.units[event.topic] = LocalUnit(ref, Preparing(now))
    elif held.ref.assignment != event.assignment:
        why = f"the unit is still here under the assignment {held.ref.assignment}"
        return [ReportEvent(event.topic, event.source, event.assignment, WorkerEnded, error=why)]
    return []


def _report_unknown(event: PipelineEvent) -> list[PipelineEffect]:
    """Answer an instruction to an assignment that was never here, or has ended: nothing of it writes."""
    if not isinstance(event, StartUnit | RemoveUnit):
        return []
    why = "this process does not have the unit" if isinstance(event, StartUnit) else None
    return [ReportEvent(event.topic, "", event.assignment, WorkerEnded, error=why)]
