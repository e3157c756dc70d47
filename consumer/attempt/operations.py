"""Data of an attempt's transaction: what is done at the target, operation by operation, in order (see effects.Transact)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from consumer.ordering.model import (
    ChangeId,
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
    """Apply a net change, or, to a table that is written as events, every change. `displacing`: see `Transaction.apply`."""

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
    """Say to those who read a table that is written as events that `source` is its definition from here on, at the source. `anew`: every
    row comes anew behind it."""

    table: TargetTable
    source: Table
    anew: bool = False


@dataclass(frozen=True, slots=True)
class CloseQuarantineBefore:
    """Take all entries of the unit below `offset` out of the quarantine: their rows are gone."""

    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class CloseQuarantine:
    """Take entries of the unit, by (offset, part), out of the quarantine."""

    ids: Sequence[ChangeId]
    why: str


@dataclass(frozen=True, slots=True)
class SupersedeDisplaced:
    """Mark the rows that events of the unit below `before` displaced from `table` ("schema.name"): what the source has of them came again."""

    table: str
    before: int
    why: str


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
    """Plan a change of the target table, whose other units' rows are locked, and go on by it; the plan is added to `found`.

    `how`: "whole": carry it out and write that the definition is in force. "mark": write the mark of what is left to do, over
    `connection`. "end": write that the definition is in force; raises StepsLeftError if something is left to do.
    """

    change: TableChange
    how: Literal["whole", "mark", "end"]
    at: LaneMark
    connection: int = 0
    found: list[ChangePlan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DropTarget:
    """Drop the target table of `source` in this transaction, where it is there."""

    source: Table


@dataclass(frozen=True, slots=True)
class MarkSharersIncomplete:
    """Write of each other unit that had rows in the target table of `source`, where that is not there, that they are lost (consumer.tables.stored)."""

    source: Table


@dataclass(frozen=True, slots=True)
class RequireRowsPresent:
    """Raise TransientError if another unit has written since the attempt began that the rows of this one are lost."""


@dataclass(frozen=True, slots=True)
class RequireTableUnchanged:
    """Raise TransientError unless the target table of `source` is `real` and no other unit changes it: other units heed what this one needs of
    the table from when its definition is stored, and not before."""

    source: Table
    real: Table


MarkOperation = CloseQuarantineBefore | CloseQuarantine | SupersedeDisplaced
PlainOperation = (
    WriteChanges
    | QuarantineEvents
    | TruncateTarget
    | MarkOperation
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
