"""Events of a pipeline's units in this process, and the effects that `decisions` answers them with. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from consumer.attempt.reports import CopyNeed, Report
from consumer.units.unit import QueryKind, UnitRef, UnitVersion
from schemas.units import Prepared, WorkerEnded
from schemas.wire.position import Position

# what happens


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
    """A hand has looked at topic and target."""

    topic: str
    assignment: int
    topic_id: str
    real: bytes = b""


@dataclass(frozen=True, slots=True)
class UnitTakenOver:
    """A hand has raised the epoch and applied what was missing, if it was little; else the unit is `behind`."""

    topic: str
    assignment: int
    epoch: int
    offset: int
    behind: bool = False
    position: Position | None = None
    commit_ts_ms: int = 0
    applied: int = 0
    displaced: int = 0


@dataclass(frozen=True, slots=True)
class RangeApplied:
    """A hand has applied a stretch of what came, and does nothing for the unit any more. `report`: what came of it; None: there was nothing.
    `left`: events that were there behind it."""

    topic: str
    assignment: int
    report: Report | None = None
    left: int = 0


@dataclass(frozen=True, slots=True)
class UnitFenced:
    """Nothing of ours can write any more. `offset`: None where the target could not be asked."""

    topic: str
    assignment: int
    offset: int | None = None
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class OperationFailed:
    """A hand has given up. `again`: it may go better later; otherwise the unit ends with `error`.

    `epoch`: the highest one written, if any. `waits`: the unit waits for a person; `copy`: or for a copy of its table.
    """

    topic: str
    assignment: int
    error: str
    again: bool
    epoch: int = 0
    waits: bool = False
    copy: CopyNeed | None = None


@dataclass(frozen=True, slots=True)
class StoppedProbed:
    """A hand has looked at what a waiting unit waits in front of. `seen`: a digest of it; None: it could not be seen now.

    `said`: what the unit says it waits for, instead of what stopped it; `begun`: a copy begins where it can go on.
    """

    topic: str
    assignment: int
    seen: str | None = None
    topic_id: str = ""
    real: bytes = b""
    said: str | None = None
    begun: bool = False


@dataclass(frozen=True, slots=True)
class TableChecked:
    """A hand has looked at the target table of a unit that runs. `why`: it does not fit any more, and `epoch` may not write."""

    topic: str
    assignment: int
    epoch: int
    why: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptsReported:
    """Attempts have ended; the report of each comes with the number of its query."""

    reports: Sequence[tuple[int, Report]]


@dataclass(frozen=True, slots=True)
class SparkUp:
    """Spark has started: queries can be."""


@dataclass(frozen=True, slots=True)
class QueryUp:
    """A query runs. `topics`: what it reads, and the version of it that it knows."""

    number: int
    kind: QueryKind
    topics: Mapping[str, UnitVersion]


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
    """Spark's progress of a query. `finished`: its last batch, `ends`: next offsets behind it, `idle`: none under way."""

    number: int
    finished: int
    ends: Mapping[str, int]
    idle: bool


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
    | QueryUp
    | QueryFailed
    | QueryLost
    | QueryProgress
    | PipelineTick
)


# what is to be done


@dataclass(frozen=True, slots=True)
class PrepareTarget:
    """Ask a hand to look at topic and target, writing nothing; then Warmed or Failed."""

    unit: UnitRef


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Ask a hand to take the unit over above `above` and to apply what is missing, if it is little; Took or Failed.

    `look`: it waited for a person, so that the target table is judged before anything is written. `here`: what comes next is applied
    by the hand, even if much is missing: a query could not.
    """

    unit: UnitRef
    above: int
    look: bool = False
    here: bool = False


@dataclass(frozen=True, slots=True)
class ApplyRange:
    """Ask a hand to apply, under `epoch`, a stretch of what has come behind `offset` to a unit without a home; then RangeApplied or Failed."""

    unit: UnitRef
    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProbeStopped:
    """Ask a hand what a waiting unit waits in front of (topic, target table, bookkeeping, copy), writing nothing; then StoppedProbed.

    `copy`: what it needs, because of `why`, where a copy heals it: the hand asks for one.
    """

    unit: UnitRef
    copy: CopyNeed | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class CheckTable:
    """Ask a hand whether the target table of a unit that runs still fits; then TableChecked. If not, it stops what `epoch` may write."""

    unit: UnitRef
    epoch: int


@dataclass(frozen=True, slots=True)
class LogWaiting:
    """Tell people, once, that the unit waits for one of them, and why."""

    topic: str
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class AbortOperation:
    """Whatever a hand does for the unit is of no use any more: end soon."""

    topic: str
    assignment: int


@dataclass(frozen=True, slots=True)
class FenceUnit:
    """Fence the unit: afterwards no process of this agent can write. It is retried until it succeeds, and answered by Fenced.

    `stopped`: what the target is to say the unit waits for.
    """

    unit: UnitRef
    above: int
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class StartQuery:
    """`starting`: topic → first offset (-1: the end) of `units`. `epochs`: its board from the first batch on."""

    number: int
    kind: QueryKind
    starting: Mapping[str, int]
    units: Sequence[UnitRef]
    epochs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopQuery:
    number: int


@dataclass(frozen=True, slots=True)
class PostActiveUnits:
    """The board of a query is to be this: topic → epoch."""

    number: int
    epochs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReportEvent:
    """Tell the agent that the unit is prepared, or has ended; with `offset` and `position` where the unit stood, as far as known."""

    topic: str
    source: str
    assignment: int
    event: type[Prepared | WorkerEnded]
    offset: int | None = None
    position: Position | None = None
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
