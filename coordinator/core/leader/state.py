"""The data of a leader: configuration, durable records, state, events and effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.core.health import HealthConfig
from coordinator.core.leader.history import History
from coordinator.core.leader.known_agents import Members
from coordinator.core.leader.pipelines import Pipelines
from coordinator.core.leader.plan import Plan
from coordinator.core.leader.term_state import TermClaim, TermConfiguration, TermNumbers
from coordinator.core.leader.unit_sets import UnitSets
from coordinator.core.messages import Down, Up
from coordinator.core.records import DurableRecord
from coordinator.core.schedulers import InventoryUnit, MoveLimits
from schemas.problems import Problem


@dataclass(frozen=True, slots=True)
class LeaderConfig:
    """The settings of a leader. All times are in seconds."""

    interval: float = 1.0
    """Interval between two heartbeats of an agent with few units, and between two computations of
    progress."""
    statuses_per_s: int = 5000
    """Maximum number of unit statuses per second from all agents together. With more units, heartbeats
    are less frequent."""
    lease: float = 10.0
    """An agent may go on writing for this long after it sent the last message that the leader answered."""
    margin: float = 0.25
    """Time added to the lease before an agent is considered lost. It covers clocks that run at different
    rates: an agent counts its lease from sending a message, the leader from receiving it, which is later."""
    leader_lease: float = 5.0
    """A leader sends nothing more after this long without a confirmed record: a later leader may exist."""
    prepare_timeout: float = 60.0
    """A preparation or start without progress is given up after this long."""
    prepare_most: float = 3600.0
    """A preparation is given up after this long even if it makes progress."""
    balance_every: float = 60.0
    retry_first: float = 1.0
    """First wait before a failed unit is tried again; doubled after each failure."""
    retry_most: float = 60.0
    """Longest wait before a failed unit is tried again."""
    stable_after: float = 300.0
    """After this long without failure the wait starts from `retry_first` again, and the unit may be
    placed on the agent where it failed."""
    progress_every: float = 5.0
    """Shortest time between two writes of progress to the control topic. Progress is shown once it is
    stored."""
    doubt: float = 30.0
    """An inventory that lacks most units of a pipeline must be read repeatedly for this long before it
    is adopted."""
    ahead: float = 900.0
    """A source's clock may be ahead of the leader's clock by this much."""
    reload_timeout: float = 30.0
    """Agents must report the content of their files within this time."""
    agents: int = 1000
    """The most agents that are known at once."""
    retire_after: float = 3600.0
    """An expired agent without units is forgotten this long after its last message."""
    limits: MoveLimits = field(default_factory=MoveLimits)
    health: HealthConfig = field(default_factory=HealthConfig)
    """The conditions under which an agent is given no units for a while."""

    @property
    def silence(self) -> float:
        """Seconds after its last message at which an agent is considered lost."""
        return self.lease + self.margin


# events


@dataclass(frozen=True, slots=True)
class Received:
    message: Up


@dataclass(frozen=True, slots=True)
class Persisted:
    """The records of the `Persist` with this token are committed."""

    token: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A record of this leader, with a write that began at `at`, was committed. So it was the leader at
    `at`, by its own clock.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Fenced:
    """The target refuses every assignment of the unit below `assignment` (the answer to `Fence`)."""

    unit: str
    assignment: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """The units that the configuration asks for. Before the first inventory no unit is added or removed."""

    units: tuple[InventoryUnit, ...]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    digest: str = ""
    """The digest of the configuration that it is made from; "": not known."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The digest of each part of that configuration."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Move:
    unit: str
    agent: str


@dataclass(frozen=True, slots=True)
class CancelMove:
    """Leave the unit where it is: a requested move is dropped, and a move in preparation is given up."""

    unit: str


@dataclass(frozen=True, slots=True)
class Drain:
    agent: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """Let the agent keep its units, and give it others again."""

    agent: str


@dataclass(frozen=True, slots=True)
class Rebalance:
    pass


@dataclass(frozen=True, slots=True)
class Pause:
    unit: str


@dataclass(frozen=True, slots=True)
class Resume:
    unit: str


@dataclass(frozen=True, slots=True)
class Resign:
    pass


@dataclass(frozen=True, slots=True)
class Reload:
    """Activate this configuration, if the files of all agents hold the same. It ends with `ReloadEnded`."""

    __match_args__ = ("digest",)
    digest: str
    parts: Mapping[str, str]
    changed: frozenset[str] = frozenset()
    """The parts that differ from the active configuration, if only in a secret."""


LeaderCommand = Move | CancelMove | Drain | Undrain | Rebalance | Pause | Resume | Resign | Reload
LeaderEvent = Received | Persisted | Confirmed | Fenced | Inventory | Tick | LeaderCommand


# effects


@dataclass(frozen=True, slots=True)
class SendMessage:
    agent: str
    message: Down


@dataclass(frozen=True, slots=True)
class Persist:
    """Commit these records in one transaction, in order with the others, then report Persisted(token)."""

    token: int
    records: tuple[tuple[str, DurableRecord | None], ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """Raise the unit's fencing token in the target (of a capture unit: its generation in Kafka), then
    report Fenced. The leader repeats the request until then.

    A fence keeps a paused agent that was considered lost from writing rows of a unit that no agent runs
    any more.
    """

    unit: str
    uid: str
    assignment: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """A state that should not occur, or that a person should know. `what` is a short constant phrase."""

    what: str
    about: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A command that cannot be executed."""

    command: LeaderCommand
    problem: Problem


@dataclass(frozen=True, slots=True)
class StepDown:
    """This leader's term has ended, and it has to exit."""

    why: str


@dataclass(frozen=True, slots=True)
class ReloadEnded:
    """The result of a reload. The configuration `digest` is active once Persist `token` is committed."""

    digest: str
    token: int = 0
    refused: tuple[Problem, ...] = ()
    """Why the configuration is not activated; empty: it is."""


LeaderDecision = SendMessage | Persist | Fence | Alarm | Refused | StepDown | ReloadEnded


@dataclass(slots=True)
class LeaderState:
    """The state of a leader during its term. Its parts are changed by their own methods."""

    owner: str
    rev: int
    config: LeaderConfig
    claim: TermClaim
    numbers: TermNumbers = field(default_factory=TermNumbers)
    configuration: TermConfiguration = field(default_factory=TermConfiguration)
    plan: Plan = field(default_factory=Plan)
    members: Members = field(default_factory=Members)
    sets: UnitSets = field(default_factory=UnitSets)
    pipelines: Pipelines = field(default_factory=Pipelines)
    history: History = field(default_factory=History)
