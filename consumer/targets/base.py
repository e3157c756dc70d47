"""The interfaces of a target database and of the store that keeps progress; only their implementations know SQL.

A `ProgressStore` knows the units: epoch (the fencing token), how far each lane is, their layout, what waits for a person. A
`Session` is a target whose tables and progress commit in one transaction, and so a progress store itself; a target that cannot
have that (a topic, a table format) has a store elsewhere. A `Session` owns one connection and is used by one thread at a time. Statement outcomes are translated once, here,
into consumer.errors. Every value that reaches a session is a wire value (schemas/table/model.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    NetChange,
    QuarantineEntry,
    TargetTable,
    TopicOptions,
    UnitState,
)
from consumer.targets.alterations import AlterTable, DropTable
from consumer.targets.checks.table_facts import TableFacts
from schemas.table.model import Key, Row, Table
from schemas.table.names import NameRules


class ProgressWriter(Protocol):
    """Writes progress and quarantine within an open transaction whose guard has passed."""

    def write_quarantine(self, held: Sequence[QuarantineEntry]) -> None:
        """Write entries to `rowlock_quarantine`."""

    def close_held(self, ids: Sequence[tuple[int, int]], why: str) -> None:
        """Take entries of this unit by (offset, part) out of the quarantine, into its history."""

    def close_held_before(self, offset: int, why: str) -> None:
        """Take all entries of this unit below `offset` out of the quarantine, into its history: their rows are gone."""

    def supersede_displaced(self, table: str, before: int, why: str) -> None:
        """Mark the rows in `rowlock_displaced` that events of this unit below the offset `before` displaced from `table` ("schema.name"):
        what the source has of them came again."""

    def write_progress(self, rows: Sequence[LaneProgress]) -> None:
        """Write lane rows (last statement of the transaction). Epoch and attempt are part of the condition."""

    def write_unit(self, state: UnitState) -> None: ...

    def replace_lanes(self, rows: Sequence[LaneProgress]) -> None:
        """Replace all lane rows of the unit by `rows` (another lane count or layout)."""


class TargetTransaction(ProgressWriter, Protocol):
    """An open target transaction whose guard has passed. Leaving the `with` block commits; an exception rolls back."""

    def apply_net_change(self, net: NetChange, *, displacing: str | None = None) -> int:
        """Apply `net` set-based. Returns how many rows were written to `rowlock_displaced`: they count once it commits.

        With `displacing` None a needed unique value that a row of another key holds raises UniqueViolationError.
        With `displacing` (JSON of what is applied: offsets of the gather) such rows are removed first, each written
        whole to `rowlock_displaced`: also in a snapshot, where nothing proves that the row is stale and not one that
        another key of the same snapshot wrote.
        Raises TransientError, RefusedError, UniqueViolationError; after any of them the transaction is rolled back
        by leaving the block.
        """

    def truncate_table(self, table: TargetTable, where: dict[str, str] | None) -> None:
        """Delete all rows (`where`: only those with these values in added columns). Never an implicit commit."""

    def write_other(self, topic: str, state: UnitState) -> None:
        """Write the row of another unit of the pipeline, which `lock_units` has locked."""

    def lock_units(self) -> dict[str, UnitState]:
        """Lock the rows in `rowlock_unit` of all units of the pipeline to the end of the transaction. Returns topic → state."""

    def alter_table(self, change: AlterTable | DropTable) -> None:
        """Change a table as part of this transaction; only where the target has `transactional_ddl`.

        Waits at most 3 s for its lock. Raises TransientError (who holds the lock), TargetConfigError or RefusedError with
        a remedy; after any of them the transaction is rolled back by leaving the block.
        """


class ProgressStore(Protocol):
    """The store of a unit's epoch, progress, layout and quarantine. The process that runs a unit needs no more of the target to
    take it over, to fence it, or to stop it."""

    def ensure_bookkeeping(self) -> None:
        """Create the tables of consumer.targets.bookkeeping where they are missing."""

    def take_over(
        self,
        unit: ApplyUnit,
        topic_id: str,
        layout: str,
        lanes: int,
        *,
        assigned: int | None = None,
        above: int = 0,
    ) -> tuple[int, list[LaneProgress], UnitState]:
        """Raise the epoch of the unit, creating its rows where missing (offset -1). Clears `stopped`.

        `assigned`: the coordinator's epoch of the unit; the new epoch is then within it (consumer.ordering.fencing_tokens), and a row of
        a later assignment raises FencedError. `above`: an epoch that the caller had already, never given again.

        Waits a bounded time for a zombie's lock, then finds the blocker from the lock wait itself, ends its
        connection and tries again. Returns (new epoch, lane rows, unit state). Stored topic_id and layout are kept. What the
        unit was stopped by is in the state that is returned, and no more in the target.
        """

    def begin_attempt(
        self, unit: ApplyUnit, epoch: int
    ) -> tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]:
        """Begin a task attempt: in one transaction lock all lane rows in lane order, compare the epoch (any
        mismatch, either way, or no row: FencedError), add 1 to attempt, read everything. Commits."""

    def read_progress(
        self, unit: ApplyUnit, lanes: bool = True
    ) -> tuple[list[LaneProgress], UnitState | None]:
        """Read progress without locks (status; after a commit of unknown outcome)."""

    def read_quarantine(self, unit: ApplyUnit) -> list[QuarantineEntry]:
        """Return the quarantine entries of the unit by (offset, part), without locks."""

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        """Record that the unit waits for a person; does nothing when the epoch is no longer `epoch`.

        `was`: what it was stopped by before it was taken over: if that is the same, it has been so since then.
        """

    def ping(self) -> bool: ...

    def close(self) -> None: ...


class TargetTables(Protocol):
    """The tables of a target, as far as putting a definition in force needs them. `column_names`: how the target compares names of columns."""

    column_names: NameRules

    def read_table(self, schema: str, name: str) -> Table | None:
        """Read a table's real definition through SQLAlchemy's inspector; None when it does not exist."""

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        """Return what is judged of an existing table beside its definition (consumer.targets.checks.table_findings)."""

    def create_table(self, table: Table) -> None:
        """CREATE TABLE IF NOT EXISTS from the neutral model, with key and unique indexes, through the type map."""


class EventTables(Protocol):
    """Stands beside `TargetTables` where tables are written as events: a topic has no definition that could be read."""

    def open_topic(self, table: TargetTable, *, create: bool, gone: bool = False) -> None:
        """See that the topic of a table can take its records; `create`: make it where it is missing; `gone`: it was there before, and
        `records_lost` says what is to be said of one that is missing.

        Raises TargetConfigError: it is missing, has another number of partitions, or its format cannot carry a column.
        """

    def records_lost(self, unit: ApplyUnit, table: TargetTable) -> str | None:
        """Return why the records that the unit wrote are not in the topic of its table as that is now, with the remedy; None: they are."""

    def judge_topic(self, table: TargetTable, *, create: bool) -> None:
        """Raise what `open_topic` would, and make nothing."""

    def find_outdated_options(self, unit: ApplyUnit, options: TopicOptions) -> tuple[str, ...]:
        """Return the options of a route (`columns`, `masks`, `where`) by which rows are in the unit's topic that are as these were before;
        `options`: as they are now."""

    def find_write_conflicts(self, unit: ApplyUnit, table: TargetTable, *, create: bool) -> list[str]:
        """Return what would stop the unit at its next change, for its records are written in another way than those that are there. `create`: as of
        `open_topic`. Raises TargetConfigError: the table cannot be written at all."""

    def read_unit_states(self, pipeline: str) -> dict[str, UnitState]:
        """Return topic → state of the pipeline's units that have been taken over."""

    def find_topic_writers(self, unit: ApplyUnit, topic: str) -> dict[str, tuple[UnitState, int]]:
        """Return topic → (state, last applied offset) of the other units of the pipeline that have written to `topic` of the target, or may yet.

        One that wrote nothing yet counts neither where it is stopped nor where `unit` itself has written there: it will look, too, and find `unit`.
        """


class UnitTarget(ProgressStore, TargetTables, Protocol):
    """A target as taking a unit over, looking at it, stopping and fencing it need of a target, whichever kind it is.

    `transactional_ddl`: a statement that changes a table commits with the transaction that it stands in; else each commits by
    itself, and everything before it.
    """

    transactional_ddl: bool

    def read_surroundings(self, schema: str, name: str) -> object:
        """Return all that may keep rowlock from writing an existing table beside its definition: it compares, and has a repr."""


class Session(UnitTarget, Protocol):
    """One connection to a target that keeps progress itself."""

    def begin_transaction(
        self, unit: ApplyUnit, guards: Sequence[LaneProgress]
    ) -> AbstractContextManager[TargetTransaction]:
        """Begin READ COMMITTED, lock the lane rows of `guards` in lane order as first statement and compare epoch,
        attempt and offset with what was last read or written (else FencedError)."""

    def fetch_rows(
        self,
        table: TargetTable,
        after: Key | None,
        limit: int,
        where: dict[str, str] | None = None,
        *,
        upto: Key | None = None,
    ) -> list[Row]:
        """Read up to `limit` rows with after < key <= upto in the order of the key's index, as wire values (verify, copies)."""

    def fetch_keys(self, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
        """Read the rows with exactly these keys."""

    def read_unit_states(self, pipeline: str) -> dict[str, UnitState]:
        """Return topic → state of the pipeline's units, without locks."""

    def get_connection_id(self) -> int:
        """Return the server's number for the session's connection, connecting where needed: who takes the unit over ends it."""

    def alter_table(self, change: AlterTable | DropTable, *, connection: int) -> None:
        """Change a table, each statement committing by itself; only where the target has no `transactional_ddl`.

        `connection`: what `connection()` said when the mark was committed. Where it is another one by now, somebody may have
        ended it because the unit is theirs: TransientError, before anything is done; and never is a statement sent again over a
        new connection. Waits at most 3 s for its lock. Raises TransientError (who holds the lock: nothing was done),
        TargetConfigError or RefusedError with a remedy.
        """

    def end_connection(self, connection: int) -> None:
        """End a connection that may still change a table for a worker that is gone, and wait until it and its statement are;
        nothing where it is not there. Raises TransientError when it is still there after a few seconds."""
