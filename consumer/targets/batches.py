"""The interface of targets that take whole batches: without lanes, row locks or open transactions.

A table format or a folder of files cannot hold a lock while statements arrive. It receives the net
change of a range of the topic together with the progress that belongs to it, and either commits both at
once or reports that another worker owns the unit. The driver (consumer.attempt.drivers.batches) decides
how often that happens: seldom, because each commit makes files.
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
    """The deletion of all rows of a table; `where`: only of rows with these values in added columns."""

    table: TargetTable
    where: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class TableDefined:
    """A new definition of the source's table, for the readers of the events of `table`."""

    table: TargetTable
    source: Table
    anew: bool = False
    """Every row of the table is written again after it."""


RowsChange = TableCleared | TableDefined | ReducedChanges


@dataclass(frozen=True, slots=True)
class ProgressChange:
    """The progress and quarantine that one commit writes together with rows."""

    guards: Sequence[LaneProgress]
    """The unit's progress rows as last read or written; epoch, attempt and offset are compared inside
    the commit.
    """
    rows: Sequence[LaneProgress]
    """The rows that replace all progress rows of the unit."""
    state: UnitState | None = None
    """The new state of the unit; None leaves it as it is."""
    held: Sequence[QuarantineEntry] = ()
    """New quarantine entries, added after the closed ones were removed. One with the place of a closed one
    replaces it, so that nothing of it was resolved.
    """
    closed_before: int | None = None
    """Quarantine entries below this offset are closed."""
    closed: Sequence[tuple[int, int]] = ()
    """(offset, part) of further quarantine entries to close."""
    why: str = ""
    """The reason why entries are closed."""
    copied: int | None = None
    """The offset at which the copy began that ends here: every row of the table was written again after
    it.
    """


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Rows and progress are durable and visible to every reader."""


@dataclass(frozen=True, slots=True)
class BatchFenced:
    """Nothing was written because another attempt or epoch owns the unit.

    `seen`: the progress found instead.
    """

    seen: str


class BatchTarget(UnitTarget, Protocol):
    """A target of whole batches, used by one thread at a time.

    Raises consumer.errors: TransientError, CommitUnknownError, RefusedError (a row that the target
    cannot hold; the batch is retried in halves until that row is alone). Each call needs a time limit
    of its own, because a call that never returns would keep its unit from being stopped.
    """

    def yield_keys(
        self, unit: ApplyUnit, table: TargetTable, where: dict[str, str] | None
    ) -> Iterable[Sequence[Key]]:
        """Yield the keys of the rows of the unit's table, some at a time and in any order.

        Keys are exactly the wire values that were written. `where`: only of rows with these values in
        added columns. `table` has only the columns of its key; for a topic, those of its routing key as
        well. A copy uses the keys to find the rows that the source no longer has.
        """

    def look_up(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Key]:
        """Return `keys`, and with them each other key under which `yield_keys()` may yield the row of
        one of them.

        A target that shows values as they were written returns only `keys`. A target that hides some (a
        masked column of a routing key) adds the key as it is shown, because `yield_keys()` yields the
        shown key for a row that exists under the original one.
        """

    def apply_changes(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> BatchCommitted | BatchFenced:
        """Write `changes` in this order, and the progress, in one commit.

        The fence is a compare-and-set inside the commit. A comparison before the commit would let a
        worker that paused in between overwrite its successor.
        """


class KeysStoredVerbatim:
    """The `look_up` of a target that shows values as they were written."""

    def look_up(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Key]:
        return keys


class EventReading(Protocol):
    """The rows of one table according to its records, for comparison with the source.

    A row has the values of the primary key, then one value for each of the other `names`; that value
    represents the column's value and can only be compared. `primary`: the columns of the primary key;
    `note`: a remark about the topic for the report. Two keys that the topic distinguishes are unequal
    in Python, too.

    Raises consumer.errors; UnitStoppedError when a record does not have the expected format.
    """

    @property
    def primary(self) -> tuple[str, ...]: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def note(self) -> str: ...

    def build_expected_row(self, row: Row) -> tuple[Key, Row] | None:
        """Return a row of the routed table as it should be found under its key; None if the route
        leaves it out.
        """

    def follow_topic(self) -> None:
        """Read the records that are committed by now."""

    def read_pages(self, size: int) -> Iterator[Mapping[Key, Row]]:
        """Yield all rows read so far, in pages of `size`."""

    def read_rows(self, keys: Iterable[Key]) -> Mapping[Key, Row]:
        """Return the rows of these keys, as far as the topic was read."""
