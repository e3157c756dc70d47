"""The units that an agent holds. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator.core import agent_unit
from coordinator.core.agent_unit import AgentUnit, UnitEffect, UnitEvent
from coordinator.core.messages import UnitStatus
from schemas.units import UnitPhase, UnitProgress


@dataclass(slots=True)
class HeldUnits:
    """The units that an agent holds, and those with progress to report."""

    by_name: dict[str, AgentUnit] = field(default_factory=dict)
    moved: dict[str, None] = field(default_factory=dict)
    """Units with progress that has not been sent yet."""

    def find_unit(self, unit: str) -> AgentUnit:
        """Return the unit; one that is not held is absent."""
        return self.by_name.get(unit) or AgentUnit(unit)

    def step_unit(self, unit: str, event: UnitEvent, now: float) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
        """Step the unit, and return it with what has to be done."""
        before = self.find_unit(unit)
        held, effects = agent_unit.step_agent_unit(before, event, now)
        self.by_name[unit] = held
        return held, effects

    def note_progress(self, unit: str) -> None:
        """Report the unit's progress with the next message."""
        self.moved[unit] = None

    def forget_absent(self) -> None:
        """Forget the assignments that earlier leaders have ended."""
        self.by_name = {
            unit: held for unit, held in self.by_name.items() if held.state is not UnitPhase.ABSENT
        }

    def list_statuses(self) -> tuple[UnitStatus, ...]:
        """Return the status of every unit that is held, ordered by unit name."""
        return tuple(h.status for _, h in sorted(self.by_name.items()) if h.state is not UnitPhase.ABSENT)

    def list_writing(self) -> Iterator[AgentUnit]:
        """Yield the units that may write, each as long as its lease lasts."""
        return (held for held in self.by_name.values() if held.state is UnitPhase.REPLICATING)

    def has_running(self) -> bool:
        """Return whether a unit has a worker that has not ended."""
        ended = {UnitPhase.ABSENT, UnitPhase.STOPPED}
        return any(held.state not in ended for held in self.by_name.values())

    def take_statuses(self) -> tuple[UnitStatus, ...]:
        """Return the status of every unit, which contains all progress."""
        self.moved.clear()
        return self.list_statuses()

    def take_progress(self) -> tuple[tuple[str, int, UnitProgress], ...]:
        """Return (unit, assignment, progress) of the units with progress that has not been sent yet."""
        held = [self.by_name[unit] for unit in sorted(self.moved) if unit in self.by_name]
        self.moved.clear()
        return tuple((h.unit, h.assignment, h.mark) for h in held if h.mark is not None)
