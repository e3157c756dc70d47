"""The interface of a running coordinator for REST and the command line: one picture of everything, and commands.

`Coordinator` (server.coordinator) is the implementation; a test needs only an object with these three methods. The rows are
plain frozen values, built in the owner's thread on request, at most once a second, so that nobody looks at moving state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.core.owner.state import OwnerCommand
from coordinator.server.operators.condition import judge_condition
from coordinator.server.operators.configuration import FoundConfiguration
from coordinator.server.operators.journal import EventRow


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The leader, as the asked coordinator knows it. `rev`: its term; `address`, `rest`: "host:port" of its gRPC and its REST;
    `since_s`: for how many seconds (by the asked coordinator's clock: since it saw the claim); `am_i`: whether the asked
    coordinator is it. `version`: its version of rowlock, which only the leader itself knows; "" elsewhere."""

    rev: int
    name: str
    address: str
    rest: str
    since_s: float = 0.0
    am_i: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """`state`: registered, synced, expired. `liveness`: alive, stopping (what it says itself); `draining`: asked to give its
    units away. `units`: that it holds in whatever state; `rows_per_s`: over those it writes. `connected`: a stream is open.
    `failures`: preparations that failed there since one last succeeded; `backs_off_s`: for how many more seconds it is given no
    units because of them, 0: it is on trial; None: it is trusted. `configuration`: digest of what it runs new units under, "": it does not say;
    `in_force`: whether that is what is in force: only then it is given units. `version`: its version of rowlock, "": see `Member`."""

    name: str
    incarnation: str
    agent_epoch: int
    state: str
    liveness: str
    draining: bool
    last_heard_s: float
    units: int
    rows_per_s: int
    connected: bool = False
    counters: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    backs_off_s: float | None = None
    configuration: str = ""
    in_force: bool = True
    version: str = ""


@dataclass(frozen=True, slots=True)
class UnitRow:
    """`kind`: capture, apply. `state`: of the replication set (absent, recovering, prepare, commit, replicating, removing).
    `agent`, `epoch` (its assignment): of the primary, else of the one that gets ready; `moving_to`: the new agent of a move under way.
    `checkpoint_ts`, `resolved_ts`: source commit time in ms; None: not known yet. `error`: why it last stopped by itself, until
    it replicates again. `since_s`: seconds in this state."""

    unit: str
    kind: str
    source: str
    pipeline: str | None
    state: str
    agent: str | None
    epoch: int
    checkpoint_ts: int | None
    resolved_ts: int | None
    position: str | None
    rows_per_s: int
    paused: bool
    error: str | None
    since_s: float
    moving_to: str | None = None
    failures: int = 0

    @property
    def health(self) -> str:
        """The unit's health in a word (server.condition)."""
        return judge_condition(self).health

    @property
    def reason(self) -> str | None:
        """The reason why the unit does not run; None where it does."""
        return judge_condition(self).reason

    @property
    def remedy(self) -> str | None:
        """The remedy; None: nothing is to be done, or it is not known."""
        return judge_condition(self).remedy


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """Source commit times in ms; None: not known yet. `waits_for`: what keeps the checkpoint from going on."""

    pipeline: str
    checkpoint_ts: int | None
    resolved_ts: int | None
    cut_ts: int | None
    by_source: Mapping[str, int] = field(default_factory=dict)
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """Everything, each list in order of names. Of a coordinator that does not lead all but `leader` is empty; `leader` is
    None while nobody is known to lead. `counters`: messages dropped by reason, queue lengths, refusals for want of room."""

    leader: LeaderView | None = None
    agents: tuple[AgentRow, ...] = ()
    units: tuple[UnitRow, ...] = ()
    pipelines: tuple[PipelineRow, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def leading(self) -> bool:
        """Tell whether the asked coordinator leads: the rows count only then."""
        return self.leader is not None and self.leader.am_i


class ControlError(Exception):
    """A question or command that could not be answered; each kind says who is to blame."""


class CommandRefusedError(ControlError):
    """The command cannot be carried out; `why` is for the one who gave it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    @property
    def errors(self) -> list[str]:
        """Everything that is wrong, where that is more than one thing."""
        return self.why.splitlines()


class NotLeaderError(ControlError):
    """Another coordinator leads (`leader`: ask it), or nobody does just now (None: ask again soon)."""

    def __init__(self, leader: LeaderView | None) -> None:
        where = f"{leader.name} leads: ask {leader.rest}" if leader else "nobody leads just now: ask again"
        super().__init__(f"this coordinator does not lead; {where}")
        self.leader = leader


class NoAnswerError(ControlError):
    """The owner did not answer within the time given. A command may still be carried out; all of them can be repeated."""


class Control(Protocol):
    """A coordinator as its operators see it. All methods may be called from any thread."""

    def get_leader(self) -> LeaderView | None:
        """Return who leads as far as is known; never waits."""

    def get_view(self) -> View:
        """Return the present picture, at most about a second old. Raises NoAnswerError."""

    def list_events(self, after: int, most: int) -> tuple[EventRow, ...]:
        """Return what happened behind event `after`, oldest first, the newest `most`; never waits."""

    def record_event(self, what: str, about: Mapping[str, object]) -> None:
        """Note something that this coordinator did for somebody among its events."""

    def reload_config(self, *, dry_run: bool = False, by: str = "") -> FoundConfiguration:
        """Read the configuration anew, and put it in force where every agent's file holds the same. Returns what it changes. Raises
        CommandRefusedError, NotLeaderError, NoAnswerError. `dry_run`: only read it, and say what it would change."""

    def execute_command(self, command: OwnerCommand, timeout: float = 5.0, *, by: str = "") -> None:
        """Carry out a command that `by` gave; returns once it is accepted, and durable where it is to outlive this owner. `timeout` in
        seconds. Raises RefusedError, NotLeaderError, NoAnswerError."""
