"""One pipeline's units in this process, and what is said about them. Values only.

```
  prepare ─▶ PREPARING ──(looked at)──▶ PREPARED ──start──▶ TAKING_OVER ──(taken over, what was missing applied)──▶ APPLYING
                 │                         │                     ▲  └────────────── trouble: again ──────────────────┘
                 └──────── remove ─────────┴─▶ gone              │ remove                 waits for a person ─▶ WAITING
                                                                 └─▶ STOPPING ──(epoch raised: nobody can write)──▶ gone
```
While the pipeline has a live query, a unit is PREPARED only when that one reads it; without one, as soon as it has been looked at.
A WAITING unit stays here, on no board: it is looked at now and then, and taken over anew (TAKING_OVER) when something has changed,
or once in a long while.
`home` of a running unit is the query on whose board it is. A running unit without one (Spark starts, or a query that reads it does) is
applied by hands, a stretch at a time: either a hand is at it (`busy`) or it has a home, never both, and both write under the epoch of
the takeover.  Reading a topic and applying it are two things: a query reads
all topics that are open here, and applies those that are on its board. So a start or stop touches no query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from consumer.attempt.reports import CopyNeed
from consumer.units.supervision import TROUBLE_BACKOFF, WatchedUnit
from schemas.backoff import Backoff
from schemas.wire.position import Position

UnitVersion = tuple[str, bytes]
"""(topic id, target table): a query that knows another one of a topic does not read it, for our purposes."""


class ApplyPhase(Enum):
    """The phase of a unit in this process. The state that its agent and the coordinator call `replicating` (schemas/units.py) has
    three stages here."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    TAKING_OVER = "taking over"
    APPLYING = "applying"
    WAITING = "waiting"
    STOPPING = "stopping"


class QueryKind(Enum):
    """A pipeline's queries: units with a backlog have one of their own, so that the others do not wait for them."""

    LIVE = "live"
    CATCHING_UP = "catching-up"


@dataclass(slots=True)
class LocalUnit:
    """`assignment`: the coordinator's epoch. `epoch`: the highest that this process had in the row, 0 before the first.

    `topic_id`, `real`: of the topic in Kafka, and the target table (JSON) as a hand has read it. `busy`: a hand works on it. `try_at`: when a hand is to be asked again. `behind`: belongs to the catching-up query.
    `since`: the last batch that its home had finished at the first look after the unit came onto its board.
    `suspect`: offset that it should have reached by the next look. `checked`: it was found where it should be.
    `near`: looks in a row that found it near the topic's end. `waits`: for a person, because of `error`, which was last told
    as `told`, or for a copy of its table (`copy`); `long`: what comes next takes long, so a hand is to do it; `looking`: a hand looks, which keeps nobody from ending the unit; `seen`: what it waits in front of, as a hand found it (None: not looked yet, or it could not be seen: `blind`);
    `tried`: it was tried after what it waits in front of had been seen; `again_at`: when it is tried whatever has changed. `looked_at`: when it was last looked whether its target table still fits, while it runs.
    """

    topic: str
    source: str
    assignment: int
    phase: ApplyPhase = ApplyPhase.PREPARING
    busy: bool = False
    topic_id: str = ""
    real: bytes = b""
    start_asked: bool = False
    stop_asked: bool = False
    error: str | None = None
    waits: bool = False
    copy: CopyNeed | None = None
    needs_long_run: bool = False
    looking: bool = False
    last_reported_error: str | None = None
    seen: str | None = None
    unobservable: bool = False
    tried: bool = False
    again_at: float = 0.0
    looked_at: float = 0.0
    epoch: int = 0
    watched: WatchedUnit = field(default_factory=lambda: WatchedUnit(offset=-1))
    position: Position | None = None
    query_number: int | None = None
    behind: bool = False
    polls_near_end: int = 0
    since: int | None = None
    expected_offset: int | None = None
    checked: bool = False
    try_at: float = 0.0
    backoff: Backoff = TROUBLE_BACKOFF

    @property
    def needs_direct_apply(self) -> bool:
        """Tell whether it is to be applied, and neither a query nor a hand does: a board is for one that no hand works on."""
        free = self.query_number is None and not self.busy and not self.stop_asked
        return self.phase is ApplyPhase.APPLYING and free

    def forget_query_progress(self) -> None:
        """Note that it is on another board now, or on none."""
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
