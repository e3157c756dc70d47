"""The operations of an attempt's transaction on the target, carried out in order (see effects.Transact).

Plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from consumer.ordering.model import (
    ChangeId,
    KeptRows,
    LaneProgress,
    QuarantineEntry,
    ReducedChanges,
    TargetTable,
    UnitState,
)
from consumer.ordering.progress import LaneMark
from consumer.tables.evolution.plans import ChangePlan, TableChange
from schemas.table.model import Table


@dataclass(frozen=True, slots=True)
class WriteChanges:
    """Write a net change, or, for a table that is written as events, every change.

    `displacing`: see `SqlTransaction.apply_net_change`.
    """

    net: ReducedChanges
    displacing: str | None = None


@dataclass(frozen=True, slots=True)
class QuarantineEvents:
    """Add entries to the quarantine."""

    entries: Sequence[QuarantineEntry]


@dataclass(frozen=True, slots=True)
class TruncateTarget:
    """Empty the target table, or the part of it where `where` holds."""

    table: TargetTable
    where: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class PublishDefinition:
    """Publish to the readers of a topic that `source` is its definition from here on.

    `anew`: every row follows again.
    """

    table: TargetTable
    source: Table
    anew: bool = False


@dataclass(frozen=True, slots=True)
class CloseQuarantineBefore:
    """Close all quarantine entries of the unit below `offset`, because their rows were deleted."""

    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class CloseQuarantine:
    """Close quarantine entries of the unit, by (offset, part)."""

    ids: Sequence[ChangeId]
    why: str


@dataclass(frozen=True, slots=True)
class DropQuarantined:
    """Remove quarantine entries of the unit, by (offset, part), that a later entry of their key replaces.

    They do not go to the history: the target was never asked for them, or an entry added after this has
    the answer.
    """

    ids: Sequence[ChangeId]


@dataclass(frozen=True, slots=True)
class SupersedeDisplaced:
    """Mark as superseded the rows that the unit's events below `before` displaced from `table`
    ("schema.name").

    A copy has brought the source's values again.
    """

    table: str
    before: int
    why: str


@dataclass(frozen=True, slots=True)
class RecordKeptRows:
    """Record rows that stay in the target although the source removed them. It may be repeated."""

    kept: KeptRows


@dataclass(frozen=True, slots=True)
class ForgetKeptRows:
    """Forget all rows that the unit keeps."""


@dataclass(frozen=True, slots=True)
class WriteProgress:
    """Write lane rows."""

    rows: Sequence[LaneProgress]


@dataclass(frozen=True, slots=True)
class WriteUnit:
    """Write the unit's row."""

    state: UnitState


@dataclass(frozen=True, slots=True)
class ReplaceLaneRows:
    """Replace all lane rows of the unit."""

    rows: Sequence[LaneProgress]


@dataclass(frozen=True, slots=True)
class FollowDefinition:
    """Plan a change of the target table and carry it out according to `how`; the plan is added to
    `found`.

    The rows of the table's other units are locked. `how`: "whole": alter the table and write the new
    active definition. "mark": write the mark of the remaining steps, over `connection`. "end": write the
    new active definition; raises StepsLeftError if steps remain.
    """

    change: TableChange
    how: Literal["whole", "mark", "end"]
    at: LaneMark
    connection: int = 0
    found: list[ChangePlan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DropTarget:
    """Drop the target table of `source` in this transaction, if it exists."""

    source: Table


@dataclass(frozen=True, slots=True)
class MarkSharersIncomplete:
    """If the target table of `source` is missing, record for each other unit with rows in it that these
    rows are lost (consumer.tables.stored).
    """

    source: Table


@dataclass(frozen=True, slots=True)
class RequireRowsPresent:
    """Raise TransientError if another unit has recorded since the attempt began that this unit's rows
    are lost.
    """


@dataclass(frozen=True, slots=True)
class RequireTableUnchanged:
    """Raise TransientError unless the target table of `source` is `real` and no other unit alters it.

    Other units respect what this one needs of the table only once its definition is stored.
    """

    source: Table
    real: Table


MarkOperation = CloseQuarantineBefore | CloseQuarantine | SupersedeDisplaced
PlainOperation = (
    WriteChanges
    | QuarantineEvents
    | DropQuarantined
    | TruncateTarget
    | MarkOperation
    | RecordKeptRows
    | ForgetKeptRows
    | WriteProgress
    | WriteUnit
    | ReplaceLaneRows
)
Operation = (
    PlainOperation
    | PublishDefinition
    | FollowDefinition
    | DropTarget
    | MarkSharersIncomplete
    | RequireRowsPresent
    | RequireTableUnchanged
)


def build_retry_operations(again: Sequence[QuarantineEntry]) -> list[Operation]:
    """Return the operations that replace quarantine entries by these, which have their places."""
    if not again:
        return []
    return [DropQuarantined([(entry.offset, entry.part) for entry in again]), QuarantineEvents(again)]
