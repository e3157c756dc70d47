"""Events of a pipeline's units in this process, and the effects with which `decisions` answers them.

Plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from consumer.attempt.reports import NO_FIGURES, CopyNeed, LaneFigures, Report
from consumer.units.unit import QueryKind, UnitRef, UnitVersion
from schemas.units import Prepared, WorkerEnded
from schemas.wire.position import Position

# events


@dataclass(frozen=True, slots=True)
class PrepareUnit:
    topic: str
    source: str
    assignment: int


@dataclass(frozen=True, slots=True)
class StartUnit:
    topic: str
    assignment: int


@dataclass(frozen=True, slots=True)
class RemoveUnit:
    topic: str
    assignment: int


@dataclass(frozen=True, slots=True)
class TargetPrepared:
    """An operation has read the topic and the target table."""

    topic: str
    assignment: int
    topic_id: str
    real: bytes = b""
    """The target table's definition (JSON); empty if it could not be read."""


@dataclass(frozen=True, slots=True)
class UnitTakenOver:
    """An operation has raised the fencing token and applied a short backlog."""

    topic: str
    assignment: int
    epoch: int
    offset: int
    has_backlog: bool = False
    """Whether a longer backlog is left."""
    position: Position | None = None
    commit_ts_ms: int = 0
    applied: int = 0
    held: int = 0
    displaced: int = 0
    lanes: LaneFigures = NO_FIGURES
    trial_in_s: float = 0.0
    sweeping: bool = False
    """See Report."""


@dataclass(frozen=True, slots=True)
class RangeApplied:
    """Direct apply has applied a range of a unit's events and has ended."""

    topic: str
    assignment: int
    report: Report | None = None
    """The attempt's report; None if there were no events."""
    left: int = 0
    """Number of events after that range."""


@dataclass(frozen=True, slots=True)
class UnitFenced:
    """The unit is fenced: no process of this agent can write to it any more."""

    topic: str
    assignment: int
    offset: int | None = None
    """The offset at which the unit ended; None if the target could not be asked."""
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class OperationFailed:
    """An operation has failed."""

    topic: str
    assignment: int
    error: str
    should_retry: bool
    """Whether a retry may succeed; otherwise the unit stops (`waits`) or ends with `error`."""
    epoch: int = 0
    """The highest fencing token that was written; 0 if none."""
    waits: bool = False
    """Whether the unit is stopped until its cause is resolved."""
    copy: CopyNeed | None = None
    """The copy that would resolve the cause."""


@dataclass(frozen=True, slots=True)
class StoppedProbed:
    """A stopped unit has been probed."""

    topic: str
    assignment: int
    seen: str | None = None
    """A digest of everything the unit depends on; None if it could not be read."""
    topic_id: str = ""
    real: bytes = b""
    message: str | None = None
    """What the unit waits for now; replaces the message with which it stopped."""
    begun: bool = False
    """Whether a copy has begun from which the unit can continue."""


@dataclass(frozen=True, slots=True)
class TableChecked:
    """The target table of a running unit has been checked."""

    topic: str
    assignment: int
    epoch: int
    why: str | None = None
    """Why the table no longer fits; the unit is then stopped. None: it fits, or could not be checked."""


@dataclass(frozen=True, slots=True)
class AttemptsReported:
    """Attempts have ended; each report comes with the number of its query."""

    reports: Sequence[tuple[int, Report]]


@dataclass(frozen=True, slots=True)
class SparkUp:
    """Spark has started, so queries can be started."""


@dataclass(frozen=True, slots=True)
class SecretsReplaced:
    """The secrets of the pipeline have changed, and another shell of this process has the new ones: units end
    here as soon as they do not apply, and are placed again there.
    """


@dataclass(frozen=True, slots=True)
class QueryUp:
    """A query runs."""

    number: int
    kind: QueryKind
    topics: Mapping[str, UnitVersion]
    """The topics that it reads, with the unit version that it knows of each."""


@dataclass(frozen=True, slots=True)
class QueryFailed:
    """A query could not be started."""

    kind: QueryKind
    error: str


@dataclass(frozen=True, slots=True)
class QueryLost:
    """A query has died."""

    number: int
    error: str


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Spark's progress of a query."""

    number: int
    finished: int
    """The number of its last finished batch; -1 before the first."""
    ends: Mapping[str, int]
    """Topic → next offset after the last record that it has read."""
    idle: bool
    """Whether no batch is running."""


@dataclass(frozen=True, slots=True)
class PipelineTick:
    """Time has passed."""


PipelineEvent = (
    PrepareUnit
    | StartUnit
    | RemoveUnit
    | TargetPrepared
    | UnitTakenOver
    | RangeApplied
    | UnitFenced
    | OperationFailed
    | StoppedProbed
    | TableChecked
    | AttemptsReported
    | SparkUp
    | SecretsReplaced
    | QueryUp
    | QueryFailed
    | QueryLost
    | QueryProgress
    | PipelineTick
)


# effects


@dataclass(frozen=True, slots=True)
class PrepareTarget:
    """Read the topic and the target table, without writing.

    Answered by TargetPrepared or OperationFailed.
    """

    unit: UnitRef


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take the unit over for this process: raise its fencing token, and apply a short backlog. Answered
    by UnitTakenOver or OperationFailed.
    """

    unit: UnitRef
    above: int
    """The new fencing token must be greater than this one."""
    look: bool = False
    """Whether to check the target table before anything is written, because the unit was stopped."""
    here: bool = False
    """Whether to apply the backlog directly however long it is, because a query could not."""


@dataclass(frozen=True, slots=True)
class ApplyRange:
    """Apply a range of events after `offset` directly, under the fencing token `epoch`.

    `trial`: run an attempt although no record has come (see Report.trial_in_s). For a running unit that no
    query serves. Answered by RangeApplied or OperationFailed.
    """

    unit: UnitRef
    epoch: int
    offset: int
    trial: bool = False


@dataclass(frozen=True, slots=True)
class ProbeStopped:
    """Probe topic, target table, bookkeeping and copy of a stopped unit, without writing.

    Answered by StoppedProbed.
    """

    unit: UnitRef
    copy: CopyNeed | None = None
    """The copy that would resolve the stop; the operation requests one."""
    why: str = ""
    """The cause of the stop, for that request."""


@dataclass(frozen=True, slots=True)
class CheckTable:
    """Check whether the target table of a running unit still fits, and stop the unit in the target if it
    does not.

    Answered by TableChecked.
    """

    unit: UnitRef
    epoch: int


@dataclass(frozen=True, slots=True)
class LogWaiting:
    """Log once that the unit is stopped, and why."""

    topic: str
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class AbortOperation:
    """End the unit's running operation soon; its result is not needed any more."""

    topic: str
    assignment: int


@dataclass(frozen=True, slots=True)
class FenceUnit:
    """Fence the unit: afterwards no process of this agent can write.

    Retried until it succeeds; answered by UnitFenced.
    """

    unit: UnitRef
    above: int
    stopped: str | None = None
    """The cause with which the unit is recorded as stopped in the target."""


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Start a query for `units`."""

    number: int
    kind: QueryKind
    starting: Mapping[str, int]
    """Topic → first offset; -1: the topic's end."""
    units: Sequence[UnitRef]
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Its active units from the first batch on: topic → fencing token."""


@dataclass(frozen=True, slots=True)
class StopQuery:
    number: int


@dataclass(frozen=True, slots=True)
class PostActiveUnits:
    """Replace the active units of a query."""

    number: int
    epochs: Mapping[str, int]
    """Topic → fencing token."""


@dataclass(frozen=True, slots=True)
class ReportEvent:
    """Report to the agent that the unit is prepared or has ended."""

    topic: str
    source: str
    assignment: int
    event: type[Prepared | WorkerEnded]
    offset: int | None = None
    """The last applied offset, if known."""
    position: Position | None = None
    """The source position of that offset, if known."""
    error: str | None = None


PipelineEffect = (
    PrepareTarget
    | TakeOver
    | ApplyRange
    | ProbeStopped
    | CheckTable
    | LogWaiting
    | AbortOperation
    | FenceUnit
    | StartQuery
    | StopQuery
    | PostActiveUnits
    | ReportEvent
)
