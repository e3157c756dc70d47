"""The life of a unit: its phases, operations and events, shared by the coordinator, the agents and the
workers.

```
absent ──prepare──▶ preparing ──Prepared──▶ prepared ──start──▶ replicating ──▶ UnitProgressed …
   ▲                     └───────── remove ─────┴──── remove, lease over ──┐
   └─────forget────── stopped ◀─────────────── Ended ───────────────── stopping
```

The coordinator sends operations (`UnitOperation`). Its agent passes them on to the unit's worker, and
reports the unit's phase (`UnitPhase`). The worker reports events (`WorkerEvent`). A process of
apply units receives JSON lines on its stdin (`UnitCommand`) and answers on stdout (`UnitLine`); a capture
process receives `CaptureCommand`.

`assignment` is the coordinator's number of a unit's placement, which grows with every placement: a
message with another number is late. It is not the fencing token of the target's progress rows, their
`epoch` (consumer/ordering/fencing_tokens.py).
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, NamedTuple

import msgspec

#: Bounds of numbers that are stored as 64-bit integers.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class CaptureName(NamedTuple):
    """The part of a capture unit's name, `capture/SOURCE`."""

    source: str


class ApplyName(NamedTuple):
    """The parts of an apply unit's name, `apply/PIPELINE/TOPIC`."""

    pipeline: str
    topic: str


def build_capture_unit_name(source: str) -> str:
    return f"capture/{source}"


def build_apply_unit_name(pipeline: str, topic: str) -> str:
    return f"apply/{pipeline}/{topic}"


def parse_unit_name(unit: str) -> CaptureName | ApplyName | None:
    """Return the parts of a unit's name, or None if it is the name of no unit."""
    kind, _, rest = unit.partition("/")
    if kind == "capture" and rest:
        return CaptureName(rest)
    pipeline, _, topic = rest.partition("/")
    return ApplyName(pipeline, topic) if kind == "apply" and pipeline and topic else None


class UnitPhase(Enum):
    """The phase of one unit on one agent. `STOPPED` is reported until the leader answers with a forget."""

    ABSENT = "absent"
    PREPARING = "preparing"
    PREPARED = "prepared"
    REPLICATING = "replicating"
    STOPPING = "stopping"
    STOPPED = "stopped"


class UnitOperation(Enum):
    PREPARE = "prepare"  # add as secondary: get ready, write nothing
    START = "start"  # add as primary: take over the progress row, write
    REMOVE = "remove"  # stop every replica of the unit up to this assignment
    FORGET = "forget"  # no longer report it: the leader has recorded its final report; not sent to workers


class UnitProgress(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """Progress of a unit.

    `checkpoint_ts`, `resolved_ts`: source commit time in ms, applied and captured up to; 0: unknown.
    """

    checkpoint_ts: Int64 = msgspec.field(name="checkpoint_ts")
    resolved_ts: Int64 = msgspec.field(name="resolved_ts")
    position: tuple[Int64, Int64, Int64, Int64] | None = msgspec.field(name="position", default=None)


class Prepared(msgspec.Struct, frozen=True, tag_field="event", tag="prepared"):
    """The worker is ready to start, and has written nothing."""

    assignment: int = msgspec.field(name="assignment")


class PrepareProgress(msgspec.Struct, frozen=True, tag_field="event", tag="getting on"):
    """The worker is still preparing, and has made progress since its last report."""

    assignment: int = msgspec.field(name="assignment")


class UnitProgressed(msgspec.Struct, frozen=True, tag_field="event", tag="progressed"):
    """Progress of a replicating unit.

    `error`: why the unit waits for a person; its worker exists, but writes nothing meanwhile. With a prefix
    of schemas.findings it is retried, or it waits for a lock.
    """

    assignment: int = msgspec.field(name="assignment")
    mark: UnitProgress = msgspec.field(name="mark")
    rows_per_s: int = msgspec.field(name="rows_per_s", default=0)
    error: str | None = msgspec.field(name="error", default=None)


class WorkerEnded(msgspec.Struct, frozen=True, tag_field="event", tag="ended"):
    """The worker has ended, and none of its writes can happen any more. `error` if it ended by itself."""

    assignment: int = msgspec.field(name="assignment")
    mark: UnitProgress | None = msgspec.field(name="mark", default=None)
    error: str | None = msgspec.field(name="error", default=None)


WorkerEvent = Prepared | PrepareProgress | UnitProgressed | WorkerEnded


class OldestAgents(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The agents of the lowest version, of all agents that may be given units."""

    version: str = msgspec.field(name="version")
    """Their version of rowlock; "": older than 0.1.0."""
    agents: tuple[str, ...] = msgspec.field(name="agents")
    """The names of some of them, in order."""


class CaptureCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line on the stdin of a capture process: that it may begin, or which agents are the oldest."""

    start: bool = msgspec.field(name="start", default=False)
    oldest_agents: OldestAgents | None = msgspec.field(name="oldest_agents", default=None)


class UnitCommand(msgspec.Struct, frozen=True):
    """A line on the stdin of a worker's process.

    `mark`: the unit's progress, as far as the leader knows it.
    """

    do: UnitOperation = msgspec.field(name="do")
    unit: str = msgspec.field(name="unit")
    assignment: int = msgspec.field(name="assignment")
    mark: UnitProgress | None = msgspec.field(name="mark", default=None)


class UnitLine(msgspec.Struct, frozen=True, tag_field="kind", tag="unit"):
    """A line about a unit on a worker's stdout; lines of other kinds are about the process."""

    unit: str = msgspec.field(name="unit")
    event: WorkerEvent = msgspec.field(name="event")
