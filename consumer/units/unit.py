"""One unit of a pipeline in this process: its state, with what only that state has, and what all states have.

Frozen values. `transitions` has the table of what leads from one state to another.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from consumer.attempt.reports import CopyNeed
from consumer.units.supervision import TROUBLE_BACKOFF, WatchedUnit
from schemas.backoff import Backoff
from schemas.wire.position import Position

NOT_PROBED = ""


class UnitStop(Struct, frozen=True):
    """The cause of a stop, and when the unit is retried."""

    cause: str
    copy: CopyNeed | None
    """The copy that would resolve the cause."""
    retry_at: float
    """When the unit is retried even if nothing has changed (monotonic seconds)."""
    tried_with: str | None = NOT_PROBED
    """A digest of what the unit depends on, as of its last retry; None: the next probe that can read it leads
    to a retry."""


class Preparing(Struct, frozen=True):
    """The topic and the target table are read."""

    run_at: float | None
    """When the state's operation may start (monotonic seconds); None while it is running."""
    start_asked: bool = False


class AwaitingStart(Struct, frozen=True):
    """The unit is prepared."""


class TakingOver(Struct, frozen=True):
    """The fencing token is raised. No slot has the unit."""

    run_at: float | None
    """See Preparing."""
    stop: UnitStop | None = None
    """The stop that may be resolved."""
    lock_wait: str = ""
    """The encoded problem of a transaction that waits for a row lock; "": none is known to wait."""


class Applying(Struct, frozen=True):
    """A slot has the unit."""

    lock_wait: str = ""
    """See TakingOver."""
    tried_with: str | None = NOT_PROBED
    """See UnitStop, while a retry of a stopped unit has applied nothing."""


class Stopped(Struct, frozen=True):
    """The unit waits until the cause of its stop is resolved, and is probed at intervals."""

    stop: UnitStop
    run_at: float | None
    """See Preparing."""


class Aborting(Struct, frozen=True):
    """The unit is to end, and its running takeover is aborted."""

    cause: str | None
    """The cause with which the unit is recorded as stopped in the target."""


class Fencing(Struct, frozen=True):
    """The fencing token is raised for the last time; then the unit ends."""

    cause: str | None
    """See Aborting."""
    error: str | None = None
    """The error with which the unit ends."""


LocalState = Preparing | AwaitingStart | TakingOver | Applying | Stopped | Aborting | Fencing


class UnitRef(Struct, frozen=True):
    """A unit's topic, assignment and table, as operations and slots need them."""

    topic: str
    source: str
    assignment: int
    """The coordinator's number for this placement; grows with each placement."""
    topic_id: str = ""
    """The topic's id in Kafka; "" until it is read."""
    real: bytes = b""
    """The target table (JSON) as last read."""


class LocalUnit(Struct, frozen=True):
    """An apply unit as this process sees it: its state, and what all states share."""

    ref: UnitRef
    state: LocalState
    epoch: int = 0
    """The highest fencing token this process has written for the unit; 0 before the first takeover."""
    watched: WatchedUnit = WatchedUnit(offset=-1)
    position: Position | None = None
    checked_at: float = 0.0
    """When the target table was last checked (monotonic seconds); 0 before the first takeover."""
    last_logged_cause: str | None = None
    """The cause of a stop that was logged last; None: the next one is logged in any case."""
    backoff: Backoff = TROUBLE_BACKOFF

    def enter(self, state: LocalState) -> LocalUnit:
        return replace(self, state=state)

    def with_backoff(self, now: float) -> LocalUnit:
        """Return the unit after a failure; `backoff` then has the time of the next operation."""
        return replace(self, backoff=self.backoff.with_failure(now))

    @property
    def stop_cause(self) -> str | None:
        """The cause that stops the unit, if any, until it is applied again or has ended."""
        match self.state:
            case Stopped(stop=UnitStop(cause=cause)) | TakingOver(stop=UnitStop(cause=cause)):
                return cause
            case Aborting(cause=known) | Fencing(cause=known):
                return known
        return None

    @property
    def lock_wait(self) -> str:
        """See TakingOver; "" in other states."""
        return self.state.lock_wait if isinstance(self.state, TakingOver | Applying) else ""
