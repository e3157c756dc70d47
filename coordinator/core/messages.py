"""The messages between coordinator and agents: the values that the cores use, and their format on the
wire.

Up (agent → leader): `Hello`, `Sync`, `Heartbeat`, `DispatchResponse`, `Checkpoint`, `Rejected`. Down
(leader → agent): `Announce`, `HeartbeatResponse`, `Dispatch`, `Superseded`.

Every message has a `Header`. `op_seq` is the sender's own count: a leader counts through its term, an
agent through its incarnation. Times are seconds of the sender's monotonic clock; only the sender
compares them.

The parts about a unit are in `schemas/units.py`, which the units' workers use as well. These classes are
the only description of the wire format (docs/adr/0015-messages-are-their-own-wire-format.md);
`coordinator.transport.wire` encodes them. A message is a list: the name of its class, then its fields in
order. Classes therefore keep their names, and fields their order, within a version of the protocol. A
new field comes last and has a default: older readers ignore it, and older senders leave it out. The
bounds of a field are checked when a message arrives, not when it is made.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

from schemas.slots import SlotReport
from schemas.units import Int64, OldestAgents, UnitOperation, UnitPhase, UnitProgress

#: The version of the protocol. Both sides refuse another one. A change that older readers can ignore
#: does not raise it.
PROTOCOL_VERSION = 2

UInt32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class Liveness(Enum):
    """The state that an agent reports of itself. It never becomes alive again within an incarnation after it
    drains or stops.
    """

    ALIVE = "alive"
    STOPPING = "stopping"


class WirePart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value inside messages."""


class WireMessage(WirePart, frozen=True, tag=True):
    """A message of the protocol. On the wire, the name of its class comes before its fields."""


class Header(WirePart, frozen=True):
    owner_rev: Int64
    agent_epoch: Int64
    assignment: Int64 = 0
    op_seq: Int64 = 0


class UnitStatus(WirePart, frozen=True):
    """An agent's report of one unit."""

    unit: str
    assignment: Int64
    state: UnitPhase
    mark: UnitProgress | None = None
    rows_per_s: Int64 = 0
    """The measured rows a second."""
    error: str | None = None
    """Why the unit stopped by itself, or what it waits for."""
    steps: UInt32 = 0
    """How many steps the worker has reported while it prepares."""


class ConfigVersion(WirePart, frozen=True):
    """An active configuration: its digest, and the number of the reload that activated it.

    Secrets are not in `digest`, so two configurations in a row may have the same one.
    """

    digest: str
    revision: Int64 = 0


class FileAnswer(WirePart, frozen=True):
    """The content of an agent's configuration file: the answer to question `asked`."""

    asked: Int64
    digest: str
    problems: tuple[str, ...] = ()
    """Why the agent could not load it, one line each."""


class Hello(WireMessage, frozen=True):
    """The first message of an agent's incarnation, repeated until a leader announces itself."""

    header: Header
    agent: str
    incarnation: str


class Announce(WireMessage, frozen=True):
    """A leader announces itself and gives (or confirms) the agent's epoch. Valid for `incarnation` only."""

    header: Header
    owner: str
    incarnation: str
    interval: float
    lease: float


class Sync(WireMessage, frozen=True):
    """The answer to an Announce: every unit that the agent holds, so that the leader can rebuild its sets."""

    header: Header
    agent: str
    sent: float
    running: tuple[UnitStatus, ...] = ()
    adding: tuple[UnitStatus, ...] = ()
    removing: tuple[UnitStatus, ...] = ()
    liveness: Liveness = Liveness.ALIVE
    config: ConfigVersion | None = None
    version: str = ""
    """The agent's version of rowlock; "": older than 0.1.0. A leader learns it before it gives the agent
    units.
    """

    @property
    def statuses(self) -> tuple[UnitStatus, ...]:
        return self.running + self.adding + self.removing


class Heartbeat(WireMessage, frozen=True):
    """The whole state of an agent: a unit that is not in `statuses` is absent."""

    header: Header
    agent: str
    sent: float
    """The agent's time of sending, which the response returns as `echo`."""
    statuses: tuple[UnitStatus, ...] = ()
    liveness: Liveness = Liveness.ALIVE
    config: ConfigVersion | None = None
    """The configuration under which the agent runs units that it is given from now on."""
    file: FileAnswer | None = None
    """The answer to the last question about its file."""
    slots: SlotReport | None = None
    """The slots of its apply process in Spark; None: not known."""


class HeartbeatResponse(WireMessage, frozen=True):
    """Renews the leases of `granted` (unit, assignment), and of no other unit.

    The leases last until `echo` + `lease` on the agent's clock.
    """

    header: Header
    echo: float
    lease: float
    interval: float
    granted: tuple[tuple[str, Int64], ...] = ()
    draining: bool = False
    """Whether the agent's units are being moved away. This is information only: it may be undone, so the
    agent does nothing about it.
    """
    config: ConfigVersion | None = None
    """The active configuration; None: not known. An agent with another one loads it from its file."""
    ask: Int64 = 0
    """The number of a question: above 0, the agent has to report the content of its file (`FileAnswer`)."""
    oldest: OldestAgents | None = None
    """The oldest agents; None: not every agent has reported its version in this term."""


class Dispatch(WireMessage, frozen=True):
    """One instruction for one unit; its assignment is in the header. A start carries a lease like the
    answer to a heartbeat.
    """

    header: Header
    unit: str
    op: UnitOperation
    mark: UnitProgress | None = None
    echo: float = 0.0
    lease: float = 0.0


class DispatchResponse(WireMessage, frozen=True):
    """A unit's whole state, after a dispatch or after a change."""

    header: Header
    agent: str
    answers: Int64
    """The `op_seq` of the dispatch; 0: the unit's state has changed by itself."""
    status: UnitStatus
    op: UnitOperation | None = None
    """The instruction that is answered; None: none."""


class Checkpoint(WireMessage, frozen=True):
    """Progress between heartbeats."""

    header: Header
    agent: str
    marks: tuple[tuple[str, Int64, UnitProgress], ...]
    """(unit, assignment, progress)."""


class Rejected(WireMessage, frozen=True):
    """The answer to a leader with a term that has ended: the agent knows the later term `known_rev`."""

    header: Header
    agent: str
    known_rev: Int64


class Superseded(WireMessage, frozen=True):
    """Ends an incarnation that is no longer the registered one, because another process has its name."""

    header: Header


Up = Hello | Sync | Heartbeat | DispatchResponse | Checkpoint | Rejected
Down = Announce | HeartbeatResponse | Dispatch | Superseded
