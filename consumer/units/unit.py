"""One unit of a pipeline in this process: its phase and what the phase needs. Plain values.

```
  prepare ─▶ PREPARING ──(read)──▶ PREPARED ──start──▶ TAKING_OVER ──(fenced)──▶ APPLYING
                 │                    │                   ▲  └──────── failure: retry ────┘
                 └───── remove ───────┴─▶ (removed)       │ remove     cause to be resolved ─▶ WAITING
                                                          └─▶ STOPPING ──(fenced)──▶ (removed)
```

A WAITING unit is stopped: it is probed at intervals and taken over again (TAKING_OVER) when something has
changed, or after a long time. While a unit is APPLYING, a slot applies it (consumer.slots). It is withdrawn
from the slots before its fencing token is raised or an operation works on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from consumer.attempt.reports import CopyNeed
from consumer.units.supervision import TROUBLE_BACKOFF, WatchedUnit
from schemas.backoff import Backoff
from schemas.wire.position import Position


class ApplyPhase(Enum):
    """The phase of a unit in this process.

    The state `replicating` of the agent and the coordinator (schemas/units.py) has three phases here.
    """

    PREPARING = "preparing"
    PREPARED = "prepared"
    TAKING_OVER = "taking over"
    APPLYING = "applying"
    WAITING = "waiting"
    STOPPING = "stopping"


@dataclass(slots=True)
class LocalUnit:
    """An apply unit as this process sees it: its assignment, its phase, and what the phase needs."""

    topic: str
    source: str
    assignment: int
    """The coordinator's number for this placement; grows with each placement."""
    phase: ApplyPhase = ApplyPhase.PREPARING
    busy: bool = False
    """Whether an operation works on the unit."""
    topic_id: str = ""
    """The topic's id in Kafka."""
    real: bytes = b""
    """The target table (JSON) as last read."""
    start_asked: bool = False
    stop_requested: bool = False
    error: str | None = None
    """Why the unit is stopped, or ends."""
    waits: bool = False
    """Whether the unit is stopped until `error` is resolved."""
    copy: CopyNeed | None = None
    """The copy that would resolve `error`."""
    lock_wait: str = ""
    """The encoded problem of a transaction that waits for a row lock; "": none is known to wait."""
    looking: bool = False
    """Whether a probe runs; a probe does not keep the unit from ending."""
    last_reported_error: str | None = None
    """The `error` that was logged last."""
    seen: str | None = None
    """A digest of what the stopped unit depends on, as last probed; None: not probed yet, or not
    readable."""
    unobservable: bool = False
    """Set if the last probe could not read what the stopped unit depends on."""
    tried: bool = False
    """Whether the unit was retried after a probe had succeeded."""
    again_at: float = 0.0
    """Time at which the stopped unit is retried even if nothing has changed (monotonic seconds)."""
    looked_at: float = 0.0
    """When the target table of the running unit was last checked (monotonic seconds)."""
    epoch: int = 0
    """The highest fencing token this process has written for the unit; 0 before the first takeover."""
    watched: WatchedUnit = field(default_factory=lambda: WatchedUnit(offset=-1))
    position: Position | None = None
    placed: bool = False
    """Whether the slots have the unit."""
    try_at: float = 0.0
    """When the next operation may start (monotonic seconds)."""
    backoff: Backoff = TROUBLE_BACKOFF

    @property
    def ref(self) -> UnitRef:
        return UnitRef(self.topic, self.source, self.assignment, self.topic_id, self.real)


@dataclass(frozen=True, slots=True)
class UnitRef:
    """A unit's topic, assignment and table, as operations and slots need them."""

    topic: str
    source: str
    assignment: int
    topic_id: str = ""
    real: bytes = b""
