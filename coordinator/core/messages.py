"""What coordinator and agents say to each other, as values (design.md §7; the wire format is the transport's business).

Up (agent → owner): `Hello`, `Sync`, `Heartbeat`, `DispatchResponse`, `Checkpoint`, `Rejected`.
Down (owner → agent): `Announce`, `HeartbeatResponse`, `Dispatch`, `Superseded`.

Every message has a `Header`. `op_seq` is the sender's own count: an owner counts through its term, an agent through its
incarnation. Times are seconds of the sender's monotonic clock; only the sender compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from schemas.position import Position

#: Major version of the protocol. A higher one is refused, never guessed at.
VERSION = 1


class Reported(Enum):
    """The state of one unit on one agent. `Stopped` is reported until the owner answers it with a forget."""

    ABSENT = "absent"
    PREPARING = "preparing"
    PREPARED = "prepared"
    REPLICATING = "replicating"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Liveness(Enum):
    """Monotone within an incarnation: an agent that drains or stops never becomes alive again."""

    ALIVE = "alive"
    STOPPING = "stopping"


class Op(Enum):
    PREPARE = "prepare"  # add as secondary: get ready, write nothing
    START = "start"  # add as primary: take over the progress row, write
    REMOVE = "remove"  # stop every replica of the unit up to this epoch
    FORGET = "forget"  # the owner has taken note of its final report: report it no longer


@dataclass(frozen=True, slots=True)
class Header:
    owner_rev: int
    agent_epoch: int
    unit_epoch: int = 0
    op_seq: int = 0
    version: int = VERSION


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """How far a unit is. `checkpoint_ts`, `resolved_ts`: source commit time in ms, applied and captured up to."""

    checkpoint_ts: int
    resolved_ts: int
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """All that an agent says about one unit. `rows_per_s` is measured; `error` says why it stopped by itself."""

    unit: str
    epoch: int
    state: Reported
    mark: Mark | None = None
    rows_per_s: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of an agent's incarnation, and again until it is announced to."""

    header: Header
    agent: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Announce:
    """An owner introduces itself and gives (or confirms) the agent's epoch. Valid for `incarnation` only."""

    header: Header
    owner: str
    incarnation: str
    interval: float
    lease: float


@dataclass(frozen=True, slots=True)
class Sync:
    """The answer to an Announce: everything the agent holds, so that the owner can rebuild its sets."""

    header: Header
    agent: str
    sent: float
    running: tuple[UnitStatus, ...] = ()
    adding: tuple[UnitStatus, ...] = ()
    removing: tuple[UnitStatus, ...] = ()
    liveness: Liveness = Liveness.ALIVE

    @property
    def statuses(self) -> tuple[UnitStatus, ...]:
        return self.running + self.adding + self.removing


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The whole state of an agent: a unit that is not in `statuses` is absent. `sent` comes back as `echo`."""

    header: Header
    agent: str
    sent: float
    statuses: tuple[UnitStatus, ...] = ()
    liveness: Liveness = Liveness.ALIVE


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """Renews the leases of `granted` (unit, epoch) to `echo` + `lease` on the agent's clock, of no other unit."""

    header: Header
    echo: float
    lease: float
    interval: float
    granted: tuple[tuple[str, int], ...] = ()
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One instruction for one unit; its epoch is in the header. A start carries a lease like a heartbeat's answer."""

    header: Header
    unit: str
    op: Op
    mark: Mark | None = None
    echo: float = 0.0
    lease: float = 0.0


@dataclass(frozen=True, slots=True)
class DispatchResponse:
    """`answers` is the op_seq of the dispatch, `op` what it asked for (0, None: nobody asked, the state has changed);
    `status` is the unit's whole state after it."""

    header: Header
    agent: str
    answers: int
    status: UnitStatus
    op: Op | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Progress between heartbeats. `marks`: (unit, epoch, mark)."""

    header: Header
    agent: str
    marks: tuple[tuple[str, int, Mark], ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """To an owner whose term is over; `known_rev` is why."""

    header: Header
    agent: str
    known_rev: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """To an incarnation that is no longer the registered one: another process has its name. It must end."""

    header: Header


Up = Hello | Sync | Heartbeat | DispatchResponse | Checkpoint | Rejected
Down = Announce | HeartbeatResponse | Dispatch | Superseded
