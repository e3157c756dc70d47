"""Targets that take whole batches: no lanes, no row locks, no open transactions; one commit says what became of rows and progress.

A table format or a folder of files cannot hold a lock while statements come in. It is given the net change of a stretch of the topic
together with the progress that belongs to it, and commits both, or tells that somebody else owns the unit. How often that is,
whoever drives it decides (consumer.attempt.drivers.batches): seldom, for each commit makes files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    QuarantineEntry,
    ReducedChanges,
    TargetTable,
    UnitState,
)
from consumer.targets.base import UnitTarget
from schemas.table.model import Key, Row, Table


@dataclass(frozen=True, slots=True)
class TableCleared:
    """A table is emptied; `where`: only rows with these values in added columns."""

    table: TargetTable
    where: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class TableDefined:
    """The source's table is `source` from here on, as those who read the events of `table` are told. `anew`: every row comes anew behind it."""

    table: TargetTable
    source: Table
    anew: bool = False


RowsChange = TableCleared | TableDefined | ReducedChanges


@dataclass(frozen=True, slots=True)
class ProgressChange:
    """The progress and quarantine that a commit writes beside rows. `guards`: the unit's progress rows as last read or written;
    epoch, attempt and offset are compared *in* the commit. `rows`: what replaces all of them. `state`: None leaves it.
    `closed_before`: entries below this offset leave the quarantine, and those of `closed`, by (offset, part), because of `why`;
    then `held` come into it. `copied`: the offset at which a copy began that ends here: every row of the table came again behind it."""

    guards: Sequence[LaneProgress]
    rows: Sequence[LaneProgress]
    state: UnitState | None = None
    held: Sequence[QuarantineEntry] = ()
    closed_before: int | None = None
    closed: Sequence[tuple[int, int]] = ()
    why: str = ""
    copied: int | None = None


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Rows and progress are durable, and seen by every reader."""


@dataclass(frozen=True, slots=True)
class BatchFenced:
    """Nothing was written: another attempt or epoch owns the unit. `seen`: what is there instead."""

    seen: str


class BatchTarget(UnitTarget, Protocol):
    """A target of whole batches, used by one thread at a time. Raises consumer.errors: TransientError, CommitUnknownError, RefusedError (a
    row that it cannot hold: the batch comes again in halves until that row stands alone). A call that never returned would keep its unit
    from being stopped: it has a time limit of its own."""

    def list_unit_topics(self, pipeline: str) -> list[str]:
        """Return the topics of which `pipeline` has a unit here (status)."""

    def count_displaced_rows(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        """Return topic → rows of other keys that had to make room: none, where only keys must be unique."""

    def yield_keys(
        self, unit: ApplyUnit, table: TargetTable, where: dict[str, str] | None
    ) -> Iterable[Sequence[Key]]:
        """Yield the keys of the rows of the unit's table, some at a time and in any order, as the very wire values that were written; `where`: only of
        rows with these values in added columns. `table` has the columns of its key only; of a topic's, those of its routing key, too. What a
        copy shows to be gone is found by them."""

    def look_up(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Key]:
        """Return `keys`, and with them each other key under which `yield_keys()` may yield the row of one of them.

        A target that shows values as they were written returns `keys` alone. One that hides some (a masked column of a routing key) adds the key as it is
        shown: `yield_keys()` yields that one, and the row lives by the key that was asked for.
        """

    def apply_changes(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> BatchCommitted | BatchFenced:
        """Write `changes`, in this order, and the progress in one commit. The fence is a compare-and-set inside it: a comparison before
        the commit would let a worker that paused in between overwrite its successor."""


class KeysStoredVerbatim:
    """The `look_up` of a target that shows values as they were written."""

    def look_up(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Key]:
        return keys


class EventReading(Protocol):
    """The rows of one table that its records leave, for who compares them: values of the primary key, then one of each of the other `names`,
    which stands for what is there and says nothing else. `primary`: the columns of the primary key; `note`: what is to be said of the topic.
    Keys: two that the topic tells apart are unequal in Python, too.

    Raises consumer.errors; UnitStoppedError: a record is none of the format.
    """

    @property
    def primary(self) -> tuple[str, ...]: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def note(self) -> str: ...

    def build_expected_row(self, row: Row) -> tuple[Key, Row] | None:
        """Return a row of the routed table as it is to be found under its key; None: the route leaves it out."""

    def follow_topic(self) -> None:
        """Read what is committed by now."""

    def read_pages(self, size: int) -> Iterator[Mapping[Key, Row]]:
        """Yield all rows, as far as was read."""

    def read_rows(self, keys: Iterable[Key]) -> Mapping[Key, Row]:
        """Return the rows of these keys, as far as was read."""
