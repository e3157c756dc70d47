"""Events of a pipeline's units in this process, and the effects with which `decisions` answers them.

Plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consumer.attempt.reports import CopyNeed, Report
from consumer.units.unit import UnitRef
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
    """An operation has raised the fencing token."""

    topic: str
    assignment: int
    epoch: int
    offset: int
    """The offset of the slowest lane."""
    end: int
    """The topic's next offset."""
    position: Position | None = None
    commit_ts_ms: int = 0
    was: str | None = None
    """Why the unit was stopped before."""
    trial: bool = False
    """Whether an attempt is due although no record may be left; see Report.trial_in_s."""


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
    """Attempts have ended, or wait."""

    reports: Sequence[Report]


@dataclass(frozen=True, slots=True)
class SlotLost:
    """The slot that applied the unit under the fencing token `epoch` is lost."""

    topic: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SecretsReplaced:
    """The secrets of the pipeline have changed, and another shell of this process has the new ones: units end
    here as soon as they do not apply, and are placed again there.
    """


@dataclass(frozen=True, slots=True)
class PipelineTick:
    """Time has passed."""


PipelineEvent = (
    PrepareUnit
    | StartUnit
    | RemoveUnit
    | TargetPrepared
    | UnitTakenOver
    | UnitFenced
    | OperationFailed
    | StoppedProbed
    | TableChecked
    | AttemptsReported
    | SlotLost
    | SecretsReplaced
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
    """Take the unit over for this process: raise its fencing token. Answered by UnitTakenOver or
    OperationFailed.
    """

    unit: UnitRef
    above: int
    """The new fencing token must be greater than this one."""
    look: bool = False
    """Whether to check the target table before anything is written, because the unit was stopped."""


@dataclass(frozen=True, slots=True)
class PlaceUnit:
    """Let a slot apply the unit after its takeover."""

    unit: UnitRef
    taken: UnitTakenOver


@dataclass(frozen=True, slots=True)
class WithdrawUnit:
    """Let no slot apply the unit any more."""

    topic: str


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
    | PlaceUnit
    | WithdrawUnit
    | ProbeStopped
    | CheckTable
    | LogWaiting
    | AbortOperation
    | FenceUnit
    | ReportEvent
)
