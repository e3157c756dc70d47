"""Events of a pipeline's units in this process, and the effects with which `decisions` answers them.

Plain values.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from consumer.attempt.reports import CopyNeed, Report
from consumer.units.unit import UnitRef
from schemas.units import Prepared, WorkerEnded
from schemas.wire.position import Position

# events


class AssignedEvent(Struct, frozen=True):
    """An event of one assignment of a unit."""

    topic: str
    assignment: int


class PrepareUnit(Struct, frozen=True):
    topic: str
    source: str
    assignment: int


class StartUnit(AssignedEvent, frozen=True):
    pass


class RemoveUnit(AssignedEvent, frozen=True):
    pass


class TargetPrepared(AssignedEvent, frozen=True):
    """An operation has read the topic and the target table."""

    topic_id: str
    real: bytes = b""
    """The target table's definition (JSON); empty if it could not be read."""


class UnitTakenOver(AssignedEvent, frozen=True):
    """An operation has raised the fencing token."""

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


class UnitFenced(AssignedEvent, frozen=True):
    """The unit is fenced: no process of this agent can write to it any more."""

    offset: int | None = None
    """The offset at which the unit ended; None if the target could not be asked."""
    position: Position | None = None


class OperationFailed(AssignedEvent, frozen=True):
    """An operation has failed."""

    error: str
    should_retry: bool
    """Whether a retry may succeed; otherwise the unit stops (`waits`) or ends with `error`."""
    epoch: int = 0
    """The highest fencing token that was written; 0 if none."""
    waits: bool = False
    """Whether the unit is stopped until its cause is resolved."""
    copy: CopyNeed | None = None
    """The copy that would resolve the cause."""


class StoppedProbed(AssignedEvent, frozen=True):
    """A stopped unit has been probed."""

    seen: str | None = None
    """A digest of everything the unit depends on; None if it could not be read."""
    topic_id: str = ""
    real: bytes = b""
    message: str | None = None
    """What the unit waits for now; replaces the message with which it stopped."""
    begun: bool = False
    """Whether a copy has begun from which the unit can continue."""


class TableChecked(AssignedEvent, frozen=True):
    """The target table of a running unit has been checked."""

    epoch: int
    why: str | None = None
    """Why the table no longer fits; the unit is then stopped. None: it fits, or could not be checked."""


class AttemptsReported(Struct, frozen=True):
    """Attempts have ended, or wait."""

    reports: Sequence[Report]


class SlotLost(Struct, frozen=True):
    """The slot that applied the unit under the fencing token `epoch` is lost."""

    topic: str
    epoch: int


class SecretsReplaced(Struct, frozen=True):
    """The secrets of the pipeline have changed, and another shell of this process has the new ones: units end
    here as soon as they do not apply, and are placed again there.
    """


class PipelineTick(Struct, frozen=True):
    """Time has passed."""


PipelineEvent = (
    PrepareUnit | StartUnit | RemoveUnit | TargetPrepared | UnitTakenOver | UnitFenced
    | OperationFailed | StoppedProbed | TableChecked | AttemptsReported | SlotLost | SecretsReplaced
    | PipelineTick
)  # fmt: skip


# effects


class PrepareTarget(Struct, frozen=True):
    """Read the topic and the target table, without writing.

    Answered by TargetPrepared or OperationFailed.
    """

    unit: UnitRef


class TakeOver(Struct, frozen=True):
    """Take the unit over for this process: raise its fencing token. Answered by UnitTakenOver or
    OperationFailed.
    """

    unit: UnitRef
    above: int
    """The new fencing token must be greater than this one."""
    look: bool = False
    """Whether to check the target table before anything is written, because the unit was stopped."""


class PlaceUnit(Struct, frozen=True):
    """Let a slot apply the unit after its takeover."""

    unit: UnitRef
    taken: UnitTakenOver


class WithdrawUnit(Struct, frozen=True):
    """Let no slot apply the unit any more."""

    topic: str


class ProbeStopped(Struct, frozen=True):
    """Probe topic, target table, bookkeeping and copy of a stopped unit, without writing.

    Answered by StoppedProbed.
    """

    unit: UnitRef
    copy: CopyNeed | None = None
    """The copy that would resolve the stop; the operation requests one."""
    why: str = ""
    """The cause of the stop, for that request."""


class CheckTable(Struct, frozen=True):
    """Check whether the target table of a running unit still fits, and stop the unit in the target if it
    does not.

    Answered by TableChecked.
    """

    unit: UnitRef
    epoch: int


class LogWaiting(Struct, frozen=True):
    """Log once that the unit is stopped, and why."""

    topic: str
    source: str
    why: str


class AbortOperation(Struct, frozen=True):
    """End the unit's running operation soon; its result is not needed any more."""

    topic: str
    assignment: int


class FenceUnit(Struct, frozen=True):
    """Fence the unit: afterwards no process of this agent can write.

    Retried until it succeeds; answered by UnitFenced.
    """

    unit: UnitRef
    above: int
    stopped: str | None = None
    """The cause with which the unit is recorded as stopped in the target."""


class ReportEvent(Struct, frozen=True):
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
    PrepareTarget | TakeOver | PlaceUnit | WithdrawUnit | ProbeStopped | CheckTable | LogWaiting
    | AbortOperation | FenceUnit | ReportEvent
)  # fmt: skip
