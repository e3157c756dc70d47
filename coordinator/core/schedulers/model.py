"""What schedulers see and say, and the loads that they share within one plan.

Load is counted in thousandths of an average unit: every unit costs 1000 for being there, plus up to its measured share
of rows (`Limits.rate_weight` × 1000 for the mean rate). Capture and apply units are balanced apart: one is a process,
the other a share of a Spark query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from coordinator.core.replication_table import SetState

UNIT_COST = 1000


class Kind(Enum):
    CAPTURE = "capture"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """One unit of the catalogue. `uid` tells a unit from a later one of the same name. `apart`: units with the same
    label are kept on different agents as far as there are agents."""

    unit: str
    kind: Kind
    source: str
    pipeline: str | None = None
    uid: str = ""
    apart: str | None = None


@dataclass(frozen=True, slots=True)
class AgentView:
    """`accepts`: synced, within its lease, alive, not draining: it can be given units of `kinds`."""

    name: str
    accepts: bool = True
    draining: bool = False
    kinds: frozenset[Kind] = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class UnitView:
    """`wanted`: in the catalogue and not paused. `due`: not waiting after a failure. `avoid`: where it failed last."""

    spec: UnitSpec
    state: SetState
    primary: str | None = None
    holders: tuple[str, ...] = ()
    rows_per_s: int = 0
    wanted: bool = True
    due: bool = True
    avoid: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Both in the order of their names."""

    agents: tuple[AgentView, ...]
    units: tuple[UnitView, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """`burst`: units added in one plan. `concurrent`: moves under way at once, `per_agent`: of them to one agent.

    `rate_weight`: how much a unit's measured rows count beside its being there (0: count only).
    """

    burst: int = 50
    concurrent: int = 10
    per_agent: int = 5
    rate_weight: int = 1


@dataclass(frozen=True, slots=True)
class AddTask:
    unit: str
    agent: str


@dataclass(frozen=True, slots=True)
class MoveTask:
    """`why`: drain, move, rebalance or balance."""

    unit: str
    agent: str
    why: str


@dataclass(frozen=True, slots=True)
class RemoveTask:
    unit: str


Task = AddTask | MoveTask | RemoveTask


class Loads:
    """Who has how much, with what the plan has given out so far."""

    def __init__(self, view: View, limits: Limits) -> None:
        self.agents = {agent.name: agent for agent in view.agents}
        self.limits = limits
        rates = [unit.rows_per_s for unit in view.units if unit.holders]
        self._mean = max(1, sum(rates) // max(1, len(rates)))
        self._load: dict[tuple[str, Kind], int] = defaultdict(int)
        self._group: dict[tuple[str, str], int] = defaultdict(int)
        self._incoming: dict[str, int] = defaultdict(int)
        self.moving = 0
        for unit in view.units:
            self._count(unit)

    def _count(self, unit: UnitView) -> None:
        """A unit that moves counts where it will be, so that nothing is placed on the same promise twice."""
        if not unit.holders:
            return
        leaves = unit.primary is not None and unit.state in {SetState.PREPARE, SetState.COMMIT}
        at = unit.holders[-1] if leaves or unit.primary is None else unit.primary
        self.place(unit, at)
        if len(unit.holders) > 1 and unit.state in {SetState.PREPARE, SetState.COMMIT}:
            self.moving += 1
            self._incoming[unit.holders[-1]] += 1

    def cost(self, unit: UnitView) -> int:
        return UNIT_COST + self.limits.rate_weight * UNIT_COST * unit.rows_per_s // self._mean

    def load(self, agent: str, kind: Kind) -> int:
        return self._load[agent, kind]

    def place(self, unit: UnitView, agent: str, sign: int = 1) -> None:
        self._load[agent, unit.spec.kind] += sign * self.cost(unit)
        if unit.spec.apart is not None:
            self._group[agent, unit.spec.apart] += sign

    def crowd(self, unit: UnitView, agent: str) -> int:
        """Return how many units of its `apart` label are there, without itself."""
        if unit.spec.apart is None:
            return 0
        return self._group[agent, unit.spec.apart] - (unit.primary == agent)

    def can_take(self, unit: UnitView, agent: str) -> bool:
        view = self.agents.get(agent)
        return (
            view is not None and view.accepts and unit.spec.kind in view.kinds and agent not in unit.holders
        )

    def best(self, unit: UnitView) -> str | None:
        """Return the agent for a unit: apart from its group, not where it failed, least loaded; None if none can."""
        able = [name for name in self.agents if self.can_take(unit, name)]
        return min(able, key=lambda name: self._preference(unit, name), default=None)

    def _preference(self, unit: UnitView, agent: str) -> tuple[int, bool, int, str]:
        return self.crowd(unit, agent), agent == unit.avoid, self.load(agent, unit.spec.kind), agent

    def room(self, agent: str) -> bool:
        """Whether another move may start, to this agent."""
        return self.moving < self.limits.concurrent and self._incoming[agent] < self.limits.per_agent

    def move(self, unit: UnitView, agent: str) -> None:
        if unit.primary is not None:
            self.place(unit, unit.primary, -1)
        self.place(unit, agent)
        self.moving += 1
        self._incoming[agent] += 1


def movable(units: Iterable[UnitView]) -> list[UnitView]:
    """Units that replicate undisturbed. One that does not is left alone, and keeps no other from moving."""
    return [
        unit
        for unit in units
        if unit.state is SetState.REPLICATING and unit.wanted and unit.holders == (unit.primary,)
    ]
