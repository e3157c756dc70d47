"""One unit of a pipeline in this process: its phase and what the phase needs. Plain values.

```
  prepare ─▶ PREPARING ──(read)──▶ PREPARED ──start──▶ TAKING_OVER ──(fenced, short backlog)──▶ APPLYING
                 │                    │                   ▲  └────────────── failure: retry ───────┘
                 └───── remove ───────┴─▶ (removed)       │ remove            cause to be resolved ─▶ WAITING
                                                          └─▶ STOPPING ──(fenced)──▶ (removed)
```

While the pipeline has a live query, a unit becomes PREPARED only when that query reads its topic;
without one, as soon as topic and target table are read. A WAITING unit is stopped and active in no
query: it is probed at intervals and taken over again (TAKING_OVER) when something has changed, or after
a long time.

`query_number` of a running unit is the query that applies it. A running unit without one (Spark or its
query is starting) is applied directly, a range at a time: either an operation works on it (`busy`) or a
query does, never both, and both write under the fencing token of the takeover. A query subscribes to the
topics of all units of its pipeline in this process and applies only its active units, so starting or
stopping a unit restarts no query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from consumer.attempt.reports import CopyNeed
from consumer.units.supervision import TROUBLE_BACKOFF, WatchedUnit
from schemas.backoff import Backoff
from schemas.wire.position import Position

UnitVersion = tuple[str, bytes]
"""(topic id, target table). A query that knows another version of a topic does not count as reading it."""


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


class QueryKind(Enum):
    """The kinds of a pipeline's queries.

    Units with a backlog have their own, so that the others do not wait for them.
    """

    LIVE = "live"
    CATCHING_UP = "catching-up"


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
    needs_long_run: bool = False
    """Whether the next step takes long and is therefore applied directly."""
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
    query_number: int | None = None
    """The query that applies the unit."""
    has_backlog: bool = False
    """Whether the unit has a backlog and belongs to the catching-up query."""
    polls_near_end: int = 0
    """Number of consecutive polls that found the unit near its topic's end."""
    since: int | None = None
    """The last batch that its query had finished at the first poll after the unit became active in it."""
    expected_offset: int | None = None
    """The offset that the unit should have reached by the next poll."""
    checked: bool = False
    """Whether a poll found the unit at the offset where it should be."""
    try_at: float = 0.0
    """When the next operation may start (monotonic seconds)."""
    trial_at: float | None = None
    """When an attempt without further records tries quarantined keys, or compares ranges of a key sweep
    (monotonic seconds); None: nothing waits for that."""
    sweeping: bool = False
    """Whether a key sweep of the unit's table is under way. No query applies the unit meanwhile, unless it
    has a backlog."""
    backoff: Backoff = TROUBLE_BACKOFF

    @property
    def needs_direct_apply(self) -> bool:
        """True if the unit is to be applied, but neither a query nor an operation serves it yet.

        No query may apply a unit on which an operation works.
        """
        free = self.query_number is None and not self.busy and not self.stop_requested
        return self.phase is ApplyPhase.APPLYING and free

    def note_waiting_work(self, in_s: float, now: float, *, sweeping: bool) -> None:
        """Note what an attempt has left: keys or ranges that need an attempt in `in_s` seconds without
        further records (0: none), and whether a key sweep is under way.
        """
        self.trial_at = now + in_s if in_s else None
        self.sweeping = sweeping

    def is_trial_due(self, now: float) -> bool:
        """Return whether an attempt without further records is due."""
        return self.trial_at is not None and now >= self.trial_at

    def must_leave_query(self, now: float) -> bool:
        """Return whether an operation is to apply the unit in place of its query: none may run while a query
        applies it. A backlog stays with its query.
        """
        is_idle = self.phase is ApplyPhase.APPLYING and not self.has_backlog and not self.busy
        return is_idle and self.query_number is not None and (self.sweeping or self.is_trial_due(now))

    def forget_query_progress(self) -> None:
        """Reset what was seen of the query's progress, because the unit has another query now, or none."""
        self.since, self.expected_offset, self.checked = None, None, False

    @property
    def version(self) -> UnitVersion:
        """The topic id and target table as read: the version of the unit that a query applies."""
        return self.topic_id, self.real

    @property
    def ref(self) -> UnitRef:
        return UnitRef(self.topic, self.source, self.assignment, self.topic_id, self.real)


@dataclass(frozen=True, slots=True)
class UnitRef:
    """A unit's topic, assignment and table, as operations and queries need them."""

    topic: str
    source: str
    assignment: int
    topic_id: str = ""
    real: bytes = b""
