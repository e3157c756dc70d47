"""What an owner keeps, hears and says: configuration, durable records, state, events and effects (`owner` moves them)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.core.members import Member
from coordinator.core.messages import Down, Mark, Up
from coordinator.core.progress import PipelineProgress, PipelineUnits
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import Cell
from coordinator.core.schedulers import Limits, MoveRequest, UnitSpec


@dataclass(frozen=True, slots=True)
class OwnerConfig:
    """All in seconds. `silence` after the last word of an agent it counts as gone.

    `statuses_per_s`: of all agents together; with more units than that in an `interval` heartbeats come more seldom.
    `progress_every`: how often progress is stored at most; it is computed once an `interval`, and shown once it is stored.
    `owner_lease`: an owner whose claim has not been confirmed for so long says nothing more (a later one may be there).
    `prepare_timeout`: for a preparation or a start; then it is given up. `retry_first`, `retry_most`: wait before a unit
    that failed is tried again, doubled each time; after `stable_after` without failure it starts from the first.
    """

    interval: float = 1.0
    statuses_per_s: int = 5000
    lease: float = 10.0
    margin: float = 1.0
    owner_lease: float = 5.0
    prepare_timeout: float = 60.0
    balance_every: float = 60.0
    retry_first: float = 1.0
    retry_most: float = 60.0
    stable_after: float = 300.0
    progress_every: float = 5.0
    retire_after: float = 3600.0
    limits: Limits = field(default_factory=Limits)

    @property
    def silence(self) -> float:
        return self.lease + self.margin


# durable records: the last one under each key counts; None deletes


@dataclass(frozen=True, slots=True)
class CounterRecord:
    """The highest epoch ever given, to a unit or an agent."""

    epoch: int


@dataclass(frozen=True, slots=True)
class AgentRecord:
    agent: str
    incarnation: str
    agent_epoch: int
    draining: bool = False


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """Every (agent, agent_epoch, epoch) that can hold the unit; `uid` of the catalogue's unit they were given for."""

    unit: str
    uid: str
    holders: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class PausedRecord:
    unit: str


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    pipeline: str
    progress: PipelineProgress


Record = CounterRecord | AgentRecord | UnitRecord | PausedRecord | PipelineRecord


def key_of(record: Record) -> str:
    """Return the key of a record in the control topic's fold."""
    match record:
        case CounterRecord():
            return "counter"
        case AgentRecord(agent):
            return f"agent/{agent}"
        case UnitRecord(unit):
            return f"unit/{unit}"
        case PausedRecord(unit):
            return f"paused/{unit}"
        case PipelineRecord(pipeline):
            return f"pipeline/{pipeline}"


# events


@dataclass(frozen=True, slots=True)
class Received:
    message: Up


@dataclass(frozen=True, slots=True)
class Persisted:
    """The records of this `Persist` are committed."""

    token: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A record of ours, whose writing began at `at`, was committed: we were the owner at `at`, by our own clock."""

    at: float


@dataclass(frozen=True, slots=True)
class Fenced:
    """The target refuses every epoch of the unit below `epoch` (the answer to `Fence`)."""

    unit: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All units there shall be. Until the first one nothing is removed and nothing is added."""

    units: tuple[UnitSpec, ...]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Move:
    unit: str
    agent: str


@dataclass(frozen=True, slots=True)
class Drain:
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


Command = Move | Drain | Rebalance | Pause | Resume | Resign
Event = Received | Persisted | Confirmed | Fenced | Catalogue | Tick | Command


# effects


@dataclass(frozen=True, slots=True)
class Send:
    agent: str
    message: Down


@dataclass(frozen=True, slots=True)
class Persist:
    """Commit these in one transaction, in order with the others, then say Persisted(token)."""

    token: int
    records: tuple[tuple[str, Record | None], ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """Raise the unit's epoch at the target (or in its topic's gen), so that a paused agent that was taken for gone can
    not write to a unit that nobody runs any more; then say Fenced. Asked again until then."""

    unit: str
    uid: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that should not be, or that a person should know; `what` is a short stable phrase."""

    what: str
    about: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A command that cannot be carried out, and why."""

    command: Command
    why: str


@dataclass(frozen=True, slots=True)
class StepDown:
    """This owner's term is over: it shall exit."""

    why: str


Effect = Send | Persist | Fence | Alarm | Refused | StepDown


@dataclass(slots=True)
class UnitMemo:
    """What the owner remembers of a unit beside its replicas. Times: owner's seconds. `fence`: the epoch under which its target
    is to be fenced (0: none); it is asked for once it is durable, as every epoch that leaves this process."""

    uid: str = ""
    since: float = 0.0
    mark: Mark | None = None
    rows_per_s: int = 0
    failures: int = 0
    due_at: float = 0.0
    avoid: str | None = None
    fence: int = 0
    fence_durable: bool = False
    recorded: tuple[tuple[str, int, int], ...] = ()


class Waiting(NamedTuple):
    """What becomes durable with a Persist that was asked for at `asked`: (unit, epoch), (agent, agent_epoch), or the (unit,
    epoch) of a fence."""

    asked: float
    unit: tuple[str, int] | None = None
    agent: tuple[str, int] | None = None
    fence: tuple[str, int] | None = None


@dataclass(slots=True)
class OwnerState:
    """`by_agent`: units with a replica there, in a fixed order. `waiting`: by Persist's token. `fencing`: units that are absent and not wanted, and when
    their fence was last asked for. `pipelines`: as last computed; `recording`: the Persist under way and what it stores of
    them; `recorded_pipelines`: as they are stored. Only these are shown: a later owner begins with them."""

    owner: str
    rev: int
    config: OwnerConfig
    confirmed_at: float
    counter: int = 0
    op_seq: int = 0
    token: int = 0
    stepped_down: bool = False
    silent: bool = False
    catalogue: dict[str, UnitSpec] | None = None
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    sets: dict[str, ReplicationSet] = field(default_factory=dict)
    memos: dict[str, UnitMemo] = field(default_factory=dict)
    by_agent: dict[str, dict[str, None]] = field(default_factory=dict)
    unsettled: dict[str, None] = field(default_factory=dict)
    retrying: dict[str, None] = field(default_factory=dict)
    fencing: dict[str, float] = field(default_factory=dict)
    paused: dict[str, None] = field(default_factory=dict)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    pipelines: dict[str, PipelineProgress] = field(default_factory=dict)
    pipeline_units: dict[str, PipelineUnits] = field(default_factory=dict)
    recording: tuple[int, dict[str, PipelineProgress]] | None = None
    recorded_pipelines: dict[str, PipelineProgress] = field(default_factory=dict)
    moves: tuple[MoveRequest, ...] = ()
    rebalance: bool = False
    work: bool = True
    next_balance: float = 0.0
    next_progress: float = 0.0
    next_record: float = 0.0
    dropped: Counter[str] = field(default_factory=Counter)
    cells: Counter[Cell] = field(default_factory=Counter)
