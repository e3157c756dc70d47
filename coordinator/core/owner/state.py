"""Data of an owner: configuration, durable records, state, events and effects (`owner` moves them)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.core.health import AgentHealth, HealthConfig
from coordinator.core.members import Member
from coordinator.core.messages import Down, Up
from coordinator.core.progress import PipelineProgress, PipelineUnits
from coordinator.core.records import ConfigRecord, DurableRecord
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import Cell
from coordinator.core.schedulers import InventoryUnit, MoveLimits, MoveRequest
from schemas.units import UnitProgress

#: What `OwnerState.told` holds at most where nobody empties it.
MAX_HISTORY_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class OwnerConfig:
    """All in seconds. `silence` after the last word of an agent it counts as gone.

    `statuses_per_s`: of all agents together; with more units than that in an `interval` heartbeats come more seldom.
    `progress_every`: how often progress is stored at most; it is computed once an `interval`, and shown once it is stored.
    `owner_lease`: an owner whose claim has not been confirmed for so long says nothing more (a later one may be there).
    `prepare_timeout`: for a preparation or a start that does not get on; then it is given up. `prepare_most`: however it does. `retry_first`, `retry_most`: wait before a unit
    that failed is tried again, doubled each time; after `stable_after` without failure it starts from the first, and may go
    where it failed again. `doubt`: how long a catalogue that lacks most units of a pipeline has to be read so before it is
    believed. `ahead`: how far a source's clock may be ahead of this one's. `reload_timeout`: how long agents may take to say what their files hold. `agents`: known at once at most. `health`: when an agent as a whole is given nothing for a while.
    """

    interval: float = 1.0
    statuses_per_s: int = 5000
    lease: float = 10.0
    margin: float = 1.0
    owner_lease: float = 5.0
    prepare_timeout: float = 60.0
    prepare_most: float = 3600.0
    balance_every: float = 60.0
    retry_first: float = 1.0
    retry_most: float = 60.0
    stable_after: float = 300.0
    progress_every: float = 5.0
    doubt: float = 30.0
    ahead: float = 900.0
    reload_timeout: float = 30.0
    agents: int = 1000
    retire_after: float = 3600.0
    limits: MoveLimits = field(default_factory=MoveLimits)
    health: HealthConfig = field(default_factory=HealthConfig)

    @property
    def silence(self) -> float:
        return self.lease + self.margin


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
    """The target refuses every assignment of the unit below `assignment` (the answer to `Fence`)."""

    unit: str
    assignment: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """The desired set of units. Until the first one nothing is removed and nothing is added.

    `digest`, `parts`: of the configuration that it is made of, and of each of its parts; "": not known."""

    units: tuple[InventoryUnit, ...]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    digest: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Move:
    unit: str
    agent: str


@dataclass(frozen=True, slots=True)
class CancelMove:
    """The unit stays where it is: a move that was asked for is dropped, one that prepares is given up."""

    unit: str


@dataclass(frozen=True, slots=True)
class Drain:
    agent: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """The agent keeps its units, and is given others again."""

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
    """Put this configuration in force, if the files of all agents hold the same. `changed`: parts that differ from what is in force, if
    only in a secret. It ends with `ReloadEnded`."""

    __match_args__ = ("digest",)
    digest: str
    parts: Mapping[str, str]
    changed: frozenset[str] = frozenset()


OwnerCommand = Move | CancelMove | Drain | Undrain | Rebalance | Pause | Resume | Resign | Reload
OwnerEvent = Received | Persisted | Confirmed | Fenced | Inventory | Tick | OwnerCommand


# effects


@dataclass(frozen=True, slots=True)
class SendMessage:
    agent: str
    message: Down


@dataclass(frozen=True, slots=True)
class Persist:
    """Commit these in one transaction, in order with the others, then say Persisted(token)."""

    token: int
    records: tuple[tuple[str, DurableRecord | None], ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """Raise the unit's fencing token at the target (or in its topic's gen), so that a paused agent that was taken for gone can
    not write to a unit that nobody runs any more; then say Fenced. Asked again until then."""

    unit: str
    uid: str
    assignment: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that should not be, or that a person should know; `what` is a short stable phrase."""

    what: str
    about: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A command that cannot be carried out, and why."""

    command: OwnerCommand
    why: str


@dataclass(frozen=True, slots=True)
class StepDown:
    """This owner's term is over: it shall exit."""

    why: str


@dataclass(frozen=True, slots=True)
class ReloadEnded:
    """The configuration `digest` is in force once Persist `token` is committed; `refused`: or why it is not."""

    digest: str
    token: int = 0
    refused: str | None = None


OwnerDecision = SendMessage | Persist | Fence | Alarm | Refused | StepDown | ReloadEnded


@dataclass(slots=True)
class UnitMemo:
    """The owner's memory of a unit beside its replicas. `steps`: of its preparation, as last reported, `got_on` then;
    `given_up`: preparations in a row. Times: owner's seconds. `fence`: the assignment under which its target
    is to be fenced (0: none); it is asked for once it is durable, as every assignment that leaves this process. `waits`: what the
    replica that replicates waits for a person for."""

    uid: str = ""
    since: float = 0.0
    mark: UnitProgress | None = None
    rows_per_s: int = 0
    waits: str | None = None
    failures: int = 0
    due_at: float = 0.0
    avoid: str | None = None
    failed_at: float = float("-inf")
    steps: int = 0
    prepare_progressed_at: float = 0.0
    given_up: int = 0
    fence: int = 0
    fence_durable: bool = False
    recorded: tuple[tuple[str, int, int], ...] = ()


@dataclass(slots=True)
class UnitHistory:
    """Of one unit, for those who watch: the agent that runs it (`agent`) or ran it last (`last`); since when it is on its way
    (owner's seconds); why it last went."""

    agent: str | None = None
    last: str | None = None
    begun: float = 0.0
    why: str = "nobody ran it"


class PendingRecord(NamedTuple):
    """A record that becomes durable with a Persist that was asked for at `asked`: (unit, assignment), (agent, agent_epoch), or the (unit,
    assignment) of a fence."""

    asked: float
    unit: tuple[str, int] | None = None
    agent: tuple[str, int] | None = None
    fence: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class PendingInventory:
    """A catalogue is not believed yet; it has been read like that `since`, and at the `last` look too."""

    since: float
    last: float


@dataclass(frozen=True, slots=True)
class Reloading:
    """A reload that waits for agents to say what their files hold. `number`: of the question; `since`: owner's seconds."""

    command: Reload
    number: int
    since: float


@dataclass(slots=True)
class OwnerState:
    """`configuration`: what is in force, None: not known; `adopted`: a catalogue of it has been read; `since`: of its parts. `floor`: the clock of the day (ms) when the term `began`; 0: not known. `alarmed`: (agent, what) → when last. `offered`: the catalogue that was last read, `doubt`: it is not believed yet. `by_agent`: units with a replica there, in a fixed order. `waiting`: by Persist's token. `fencing`: units that are absent and not wanted, and when
    their fence was last asked for. `health`: of agents on which
    units failed; `backing`: those of them that back off. `pipelines`: as last computed; `recording`: the Persist under way and what it stores of
    them; `recorded_pipelines`: as they are stored. Only these are shown: a later owner begins with them. `told`: what happened (a phrase,
    its circumstances), for those who watch; whoever steps the core empties it (core.story)."""

    owner: str
    rev: int
    config: OwnerConfig
    confirmed_at: float
    floor: int = 0
    began: float = 0.0
    counter: int = 0
    op_seq: int = 0
    token: int = 0
    stepped_down: bool = False
    silent: bool = False
    catalogue: dict[str, InventoryUnit] | None = None
    configuration: ConfigRecord | None = None
    is_inventory_adopted: bool = False
    since: dict[str, int] = field(default_factory=dict)
    reloading: Reloading | None = None
    last_inventory: Inventory | None = None
    doubt: PendingInventory | None = None
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    sets: dict[str, ReplicationSet] = field(default_factory=dict)
    memos: dict[str, UnitMemo] = field(default_factory=dict)
    by_agent: dict[str, dict[str, None]] = field(default_factory=dict)
    unsettled: dict[str, None] = field(default_factory=dict)
    retrying: dict[str, None] = field(default_factory=dict)
    health: dict[str, AgentHealth] = field(default_factory=dict)
    backing: dict[str, None] = field(default_factory=dict)
    next_health: float = 0.0
    fencing: dict[str, float] = field(default_factory=dict)
    paused: dict[str, None] = field(default_factory=dict)
    waiting: dict[int, PendingRecord] = field(default_factory=dict)
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
    alarmed: dict[tuple[str, str], float] = field(default_factory=dict)
    whereabouts: dict[str, UnitHistory] = field(default_factory=dict)
    told: deque[tuple[str, dict[str, object]]] = field(
        default_factory=lambda: deque(maxlen=MAX_HISTORY_ENTRIES)
    )
    dropped: Counter[str] = field(default_factory=Counter)
    cells: Counter[Cell] = field(default_factory=Counter)
