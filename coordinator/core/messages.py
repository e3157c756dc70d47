"""Messages between coordinator and agents (design.md §7): the values that the cores work with, and the format on the wire.

Up (agent → owner): `Hello`, `Sync`, `Heartbeat`, `DispatchResponse`, `Checkpoint`, `Rejected`.
Down (owner → agent): `Announce`, `HeartbeatResponse`, `Dispatch`, `Superseded`.

Every message has a `Header`. `op_seq` is the sender's own count: an owner counts through its term, an agent through its
incarnation. Times are seconds of the sender's monotonic clock; only the sender compares them.

What stands in them about a unit is in `schemas/units.py`, which the units' workers know as well. These classes are the only description of the wire format (docs/adr/0015): `coordinator.transport.wire` encodes them as they stand. A
message is a list: the name of its class, then its fields in order. So classes keep their names, and fields their order, within a
version of the protocol. A new field comes last and has a default: older readers ignore it, and older senders leave it out. The
bounds of a field hold for what arrives; nothing checks them where a message is made.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

from schemas.units import Int64, UnitOperation, UnitPhase, UnitProgress

#: Version of the protocol. Both sides refuse another one; a change that older readers can ignore does not raise it.
PROTOCOL_VERSION = 2

UInt32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class Liveness(Enum):
    """Monotone within an incarnation: an agent that drains or stops never becomes alive again."""

    ALIVE = "alive"
    STOPPING = "stopping"


class WirePart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value inside messages."""


class WireMessage(WirePart, frozen=True, tag=True):
    """A message of the protocol: on the wire, the name of its class comes before its fields."""


class Header(WirePart, frozen=True):
    owner_rev: Int64
    agent_epoch: Int64
    assignment: Int64 = 0
    op_seq: Int64 = 0


class UnitStatus(WirePart, frozen=True):
    """All that an agent says about one unit. `rows_per_s` is measured; `error` says why it stopped by itself. `steps`: how often
    it has got on while it prepares."""

    unit: str
    assignment: Int64
    state: UnitPhase
    mark: UnitProgress | None = None
    rows_per_s: Int64 = 0
    error: str | None = None
    steps: UInt32 = 0


class ConfigVersion(WirePart, frozen=True):
    """A configuration that is in force: what tells it from others, and the number of the reload that it came with (secrets are not in
    `digest`, so that two in a row may have the same)."""

    digest: str
    revision: Int64 = 0


class FileAnswer(WirePart, frozen=True):
    """The content of an agent's configuration file: the answer to `asked`. `problems`: why it could not take that, a line each."""

    asked: Int64
    digest: str
    problems: tuple[str, ...] = ()


class Hello(WireMessage, frozen=True):
    """The first message of an agent's incarnation, and again until it is announced to."""

    header: Header
    agent: str
    incarnation: str


class Announce(WireMessage, frozen=True):
    """An owner introduces itself and gives (or confirms) the agent's epoch. Valid for `incarnation` only."""

    header: Header
    owner: str
    incarnation: str
    interval: float
    lease: float


class Sync(WireMessage, frozen=True):
    """The answer to an Announce: everything the agent holds, so that the owner can rebuild its sets.

    `version`: the agent's version of rowlock; "": it is older than 0.1.0. Each owner learns it before it gives the agent units."""

    header: Header
    agent: str
    sent: float
    running: tuple[UnitStatus, ...] = ()
    adding: tuple[UnitStatus, ...] = ()
    removing: tuple[UnitStatus, ...] = ()
    liveness: Liveness = Liveness.ALIVE
    config: ConfigVersion | None = None
    version: str = ""

    @property
    def statuses(self) -> tuple[UnitStatus, ...]:
        return self.running + self.adding + self.removing


class Heartbeat(WireMessage, frozen=True):
    """The whole state of an agent: a unit that is not in `statuses` is absent. `sent` comes back as `echo`. `config`: what units that it
    is given from now on run under; `file`: what it has been asked for last."""

    header: Header
    agent: str
    sent: float
    statuses: tuple[UnitStatus, ...] = ()
    liveness: Liveness = Liveness.ALIVE
    config: ConfigVersion | None = None
    file: FileAnswer | None = None


class HeartbeatResponse(WireMessage, frozen=True):
    """Renews the leases of `granted` (unit, assignment) to `echo` + `lease` on the agent's clock, of no other unit.

    `draining`: its units are given away, for it to know; that may be undone, so the agent draws nothing from it. `config`: what is in force,
    None: not known; an agent that has another one takes it from its file. `ask`: above 0, it shall say what its file holds (FileAnswer).
    """

    header: Header
    echo: float
    lease: float
    interval: float
    granted: tuple[tuple[str, Int64], ...] = ()
    draining: bool = False
    config: ConfigVersion | None = None
    ask: Int64 = 0


class Dispatch(WireMessage, frozen=True):
    """One instruction for one unit; its assignment is in the header. A start carries a lease like a heartbeat's answer."""

    header: Header
    unit: str
    op: UnitOperation
    mark: UnitProgress | None = None
    echo: float = 0.0
    lease: float = 0.0


class DispatchResponse(WireMessage, frozen=True):
    """`answers` is the op_seq of the dispatch, `op` what it asked for (0, None: nobody asked, the state has changed);
    `status` is the unit's whole state after it."""

    header: Header
    agent: str
    answers: Int64
    status: UnitStatus
    op: UnitOperation | None = None


class Checkpoint(WireMessage, frozen=True):
    """Progress between heartbeats. `marks`: (unit, assignment, mark)."""

    header: Header
    agent: str
    marks: tuple[tuple[str, Int64, UnitProgress], ...]


class Rejected(WireMessage, frozen=True):
    """To an owner whose term is over; `known_rev` is why."""

    header: Header
    agent: str
    known_rev: Int64


class Superseded(WireMessage, frozen=True):
    """To an incarnation that is no longer the registered one: another process has its name. It must end."""

    header: Header


Up = Hello | Sync | Heartbeat | DispatchResponse | Checkpoint | Rejected
Down = Announce | HeartbeatResponse | Dispatch | Superseded
