"""The answers of a running coordinator (`server.coordinator.Coordinator`) to REST: one view of
everything, and the errors of commands.

The rows are plain frozen values, built in the leader's thread on request, at most once a second, so that
no caller reads changing state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.server.operators.condition import judge_condition
from schemas.problems import Problem
from schemas.slots import SlotReport


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The leader, as the asked coordinator knows it."""

    rev: int
    """The leader's term."""
    name: str
    address: str
    """"host:port" of its gRPC interface."""
    rest: str
    """"host:port" of its REST interface."""
    since_s: float = 0.0
    """Seconds since the asked coordinator has seen its claim, by that coordinator's clock."""
    am_i: bool = False
    """Whether the asked coordinator is the leader."""
    version: str = ""
    """Its version of rowlock, which only the leader itself knows; "" elsewhere."""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent, as operators see it."""

    name: str
    incarnation: str
    agent_epoch: int
    state: str
    """"registered", "synced" or "expired"."""
    liveness: str
    """What the agent itself reports: "alive" or "stopping"."""
    draining: bool
    """Whether an operator has asked for its units to be moved away."""
    last_heard_s: float
    """Seconds since its last message."""
    units: int
    """The number of units that it holds, in whatever state."""
    rows_per_s: int
    """The sum over the units that it writes."""
    connected: bool = False
    """Whether it has an open stream."""
    counters: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    """Preparations that have failed there since one last succeeded."""
    backs_off_s: float | None = None
    """For how many more seconds it is given no units because of them; 0: it is on trial; None: it is
    trusted.
    """
    configuration: str = ""
    """The digest of the configuration under which it runs new units; "": it does not report one."""
    has_active_config: bool = True
    """Whether that is the active configuration. Only then the agent is given units."""
    version: str = ""
    """Its version of rowlock; "": see `Member.version`."""
    slots: SlotReport | None = None
    """The slots of its apply process in Spark; None: not known."""


@dataclass(frozen=True, slots=True)
class UnitRow:
    """A unit, as operators see it."""

    unit: str
    kind: str
    """"capture" or "apply"."""
    source: str
    pipeline: str | None
    state: str
    """The state of the replication set: absent, recovering, prepare, commit, replicating or removing."""
    agent: str | None
    """The agent of the primary, else of the replica that is being prepared."""
    epoch: int
    """The assignment of that replica."""
    checkpoint_ts: int | None
    """Source commit time in ms; None: not known yet."""
    resolved_ts: int | None
    """Source commit time in ms; None: not known yet."""
    position: str | None
    rows_per_s: int
    paused: bool
    error: str | None
    """Why the unit last stopped by itself, until it replicates again."""
    since_s: float
    """Seconds in this state."""
    moving_to: str | None = None
    """The new agent, if the unit is being moved."""
    failures: int = 0
    restricted: str | None = None
    """The invariant that it violates, for which the leader leaves it as it is; None: none."""

    @property
    def health(self) -> str:
        """The unit's health in one word (server.operators.condition)."""
        return judge_condition(self).health

    @property
    def reason(self) -> str | None:
        """The reason why the unit does not run; None: it runs."""
        return judge_condition(self).reason

    @property
    def remedy(self) -> str | None:
        """The remedy; None: no action is needed, or none is known."""
        return judge_condition(self).remedy


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """The progress of a pipeline. Times are source commit times in ms; None: not known yet."""

    pipeline: str
    checkpoint_ts: int | None
    resolved_ts: int | None
    cut_ts: int | None
    by_source: Mapping[str, int] = field(default_factory=dict)
    waits_for: tuple[str, ...] = ()
    """What keeps the checkpoint from advancing."""


@dataclass(frozen=True, slots=True)
class View:
    """All agents, units and pipelines, each list ordered by name.

    If the asked coordinator does not lead, all fields but `leader` and `counters` are empty.
    """

    leader: LeaderView | None = None
    """None while no leader is known."""
    agents: tuple[AgentRow, ...] = ()
    units: tuple[UnitRow, ...] = ()
    pipelines: tuple[PipelineRow, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """Messages dropped by reason, queue lengths, and refusals because a limit was reached."""

    @property
    def leading(self) -> bool:
        """True if the asked coordinator leads. The rows count only then."""
        return self.leader is not None and self.leader.am_i


class ControlError(Exception):
    """A question or command could not be answered. The subclasses give the cause."""


class CommandRefusedError(ControlError):
    """The command cannot be executed, for one problem or several."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class NotLeaderError(ControlError):
    """Another coordinator leads (`leader`: ask that one), or none does at present (None: ask again soon)."""

    def __init__(self, leader: LeaderView | None) -> None:
        where = (
            f"{leader.name} leads: ask {leader.rest}"
            if leader
            else "no coordinator leads at the moment: ask again"
        )
        super().__init__(f"this coordinator does not lead; {where}")
        self.leader = leader


class NoAnswerError(ControlError):
    """The leader did not answer in time. A command may still be executed; all commands can be repeated."""
