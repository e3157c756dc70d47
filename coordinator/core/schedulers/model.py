"""The view and the tasks of schedulers, and the loads that they share within one plan.

Load is counted in thousandths of an average unit: every unit costs 1000, plus its measured rows in
relation to the mean (`MoveLimits.rate_weight` × 1000 for the mean rate). Capture and apply units are
balanced separately: one is a process, the other a share of the agent's slots.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from coordinator.core.replication_table import SetState

UNIT_COST = 1000
_COUNTS_AS_MOVING = frozenset({SetState.PREPARE, SetState.COMMIT, SetState.RECOVERING})


class UnitKind(Enum):
    CAPTURE = "capture"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class InventoryUnit:
    """One unit of the inventory."""

    unit: str
    kind: UnitKind
    source: str
    pipeline: str | None = None
    uid: str = ""
    """Distinguishes the unit from a later one of the same name."""
    apart: str | None = None
    """Units with the same label are placed on different agents as far as there are agents."""


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent as the schedulers see it."""

    name: str
    accepts: bool = True
    """Whether it can be given units of `kinds`: synced, within its lease, alive, not draining."""
    draining: bool = False
    kinds: frozenset[UnitKind] = frozenset(UnitKind)
    room: int | None = None
    """How many more units it may be given while it is not fully trusted; None: no limit."""


@dataclass(frozen=True, slots=True)
class UnitView:
    """A unit as the schedulers see it."""

    spec: InventoryUnit
    state: SetState
    primary: str | None = None
    holders: tuple[str, ...] = ()
    rows_per_s: int = 0
    desired: bool = True
    """Whether it is to run as it is: in the inventory, not paused, and placed under the active
    configuration.
    """
    due: bool = True
    """Whether it is not waiting after a failure."""
    avoid: str | None = None
    """The agent on which it failed last."""


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """Agents and units in the order of their names."""

    agents: tuple[AgentView, ...]
    units: tuple[UnitView, ...]
    steady: Mapping[tuple[str, UnitKind, str | None], tuple[int, int]] = field(default_factory=dict)
    """(agent, kind, apart label) → number and rows a second of units that replicate undisturbed and are
    not in `units`. They count as load; a view with such units is only for plans without moves.
    """


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Limits of the number of tasks in a plan."""

    burst: int = 2000
    """Maximum number of units added in one plan, so that planning stays short (a tenth of a second)."""
    agent_burst: int = 20
    """Maximum number of units added to one agent in one plan, so that the first of many agents does not
    get everything."""
    concurrent: int = 10
    """Maximum number of concurrent moves in all."""
    per_agent: int = 5
    """Maximum number of concurrent moves to one agent."""
    rate_weight: int = 1
    """How much a unit's measured rows count besides its fixed cost (0: only the number of units counts)."""


@dataclass(frozen=True, slots=True)
class AddTask:
    unit: str
    agent: str


@dataclass(frozen=True, slots=True)
class MoveTask:
    """Move a unit to another agent."""

    unit: str
    agent: str
    why: str
    """"drain", "move", "rebalance" or "balance"."""


@dataclass(frozen=True, slots=True)
class RemoveTask:
    unit: str


ScheduleTask = AddTask | MoveTask | RemoveTask


class AgentLoads:
    """The load of each agent, including the units that the plan has placed so far."""

    def __init__(self, view: SchedulerView, limits: MoveLimits) -> None:
        self.agents = {agent.name: agent for agent in view.agents}
        self.limits = limits
        rates = [unit.rows_per_s for unit in view.units if unit.holders]
        rows = sum(rates) + sum(rows for _, rows in view.steady.values())
        number = len(rates) + sum(number for number, _ in view.steady.values())
        self._mean = max(1, rows // max(1, number))
        self._units: dict[tuple[str, UnitKind], int] = defaultdict(int)
        self._rows: dict[tuple[str, UnitKind], int] = defaultdict(int)
        self._least: dict[UnitKind, list[tuple[int, str]]] = {}
        self._group: dict[tuple[str, str], int] = defaultdict(int)
        self._incoming: dict[str, int] = defaultdict(int)
        self._added: dict[str, int] = defaultdict(int)
        self._given: dict[str, int] = defaultdict(int)
        self._all_full = {kind: _are_all_full(view.agents, kind) for kind in UnitKind}
        self.moving = 0
        for (agent, kind, apart), (number, rows) in view.steady.items():
            self._units[agent, kind] += number
            self._rows[agent, kind] += rows
            if apart is not None:
                self._group[agent, apart] += number
        for unit in view.units:
            self._count_unit(unit)

    def _count_unit(self, unit: UnitView) -> None:
        """Add a unit to the load of its agent.

        A unit that moves counts where it will be, so that its place is not given twice. If a new leader
        has not yet heard all replicas of a unit, the unit counts as moving; otherwise too many units
        would move.
        """
        if not unit.holders:
            return
        leaves = unit.primary is not None and unit.state in {SetState.PREPARE, SetState.COMMIT}
        at = unit.holders[-1] if leaves or unit.primary is None else unit.primary
        self.place_unit(unit, at)
        if len(unit.holders) > 1 and unit.state in _COUNTS_AS_MOVING:
            self.moving += 1
            self._incoming[unit.holders[-1]] += 1

    def compute_cost(self, unit: UnitView) -> int:
        return UNIT_COST + self.limits.rate_weight * UNIT_COST * unit.rows_per_s // self._mean

    def get_load(self, agent: str, kind: UnitKind) -> int:
        rows = self.limits.rate_weight * UNIT_COST * self._rows[agent, kind] // self._mean
        return UNIT_COST * self._units[agent, kind] + rows

    def place_unit(self, unit: UnitView, agent: str, sign: int = 1) -> None:
        kind = unit.spec.kind
        self._units[agent, kind] += sign
        self._rows[agent, kind] += sign * unit.rows_per_s
        if kind in self._least:
            heapq.heappush(self._least[kind], (self.get_load(agent, kind), agent))
        if unit.spec.apart is not None:
            self._group[agent, unit.spec.apart] += sign

    def count_apart_units(self, unit: UnitView, agent: str) -> int:
        """Return how many other units with its `apart` label are on the agent."""
        if unit.spec.apart is None:
            return 0
        return self._group[agent, unit.spec.apart] - (unit.primary == agent)

    def can_take(self, unit: UnitView, agent: str, *, asked: bool = False) -> bool:
        """Return whether the agent can be given the unit. `asked`: the operator named the agent, so
        trust does not matter.
        """
        return agent not in unit.holders and self._is_open(agent, unit.spec.kind, asked=asked)

    def _is_open(self, agent: str, kind: UnitKind, *, asked: bool = False) -> bool:
        view = self.agents.get(agent)
        if view is None or not view.accepts or kind not in view.kinds:
            return False
        if self._added[agent] >= self.limits.agent_burst:
            return False
        return asked or self._all_full[kind] or self.is_trusted(agent)

    def is_trusted(self, agent: str) -> bool:
        """Return whether the health of the agent allows one more unit.

        If all agents back off, they are not the cause: units without an agent are placed all the same,
        and none is moved.
        """
        allowed = self.agents[agent].room
        return allowed is None or self._given[agent] < allowed

    def place_new_unit(self, unit: UnitView, agent: str) -> None:
        """Place a unit that has no agent."""
        self.place_unit(unit, agent)
        self._added[agent] += 1
        self._given[agent] += 1

    def find_best_agent(self, unit: UnitView) -> str | None:
        """Return the best agent for a unit: apart from its group, not where it failed, least loaded;
        None if there is none.
        """
        if unit.spec.apart is None and unit.avoid is None and not unit.holders:
            return self._find_least_loaded(unit.spec.kind)
        able = [name for name in self.agents if self.can_take(unit, name)]
        return min(able, key=lambda name: self._rank_agent(unit, name), default=None)

    def _find_least_loaded(self, kind: UnitKind) -> str | None:
        """Return the least loaded agent for a unit that may go anywhere, without examining every agent.

        Outdated entries of the heap are skipped; each change of a load has pushed a current one.
        """
        if kind not in self._least:
            able = [name for name in self.agents if self._is_open(name, kind)]
            self._least[kind] = sorted((self.get_load(name, kind), name) for name in able)
        heap = self._least[kind]
        while heap:
            load, name = heap[0]
            if load == self.get_load(name, kind) and self._is_open(name, kind):
                return name
            heapq.heappop(heap)
        return None

    def _rank_agent(self, unit: UnitView, agent: str) -> tuple[int, bool, int, str]:
        return (
            self.count_apart_units(unit, agent),
            agent == unit.avoid,
            self.get_load(agent, unit.spec.kind),
            agent,
        )

    def has_room(self, agent: str) -> bool:
        """Return whether the limits allow another move to this agent."""
        return self.moving < self.limits.concurrent and self._incoming[agent] < self.limits.per_agent

    def move_unit(self, unit: UnitView, agent: str) -> None:
        if unit.primary is not None:
            self.place_unit(unit, unit.primary, -1)
        self.place_unit(unit, agent)
        self.moving += 1
        self._incoming[agent] += 1
        self._given[agent] += 1


def list_movable_units(units: Iterable[UnitView]) -> list[UnitView]:
    """Return the units that replicate undisturbed. Others are left alone, and do not keep these from
    moving.
    """
    return [
        unit
        for unit in units
        if unit.state is SetState.REPLICATING and unit.desired and unit.holders == (unit.primary,)
    ]


def _are_all_full(agents: Iterable[AgentView], kind: UnitKind) -> bool:
    able = [agent for agent in agents if agent.accepts and kind in agent.kinds]
    return all(agent.room == 0 for agent in able)
