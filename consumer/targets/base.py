"""The interfaces of a target database and of the store that keeps progress; only their implementations
know SQL.

A `ProgressStore` keeps the units: epoch (the fencing token), the progress of each lane, the layout, and
what waits for a person. A `Session` is a target that commits tables and progress in one transaction, so
it is a progress store itself; a target that cannot do that (a topic, a table format) has a separate
store. A `Session` owns one connection and is used by one thread at a time. Errors of statements are
translated here, once, into consumer.errors. Every value that reaches a session is a wire value
(schemas/table/model.py).
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
from schemas.problems import Problem
from schemas.table.model import Key, Row, Table
from schemas.table.names import NameRules


class ProgressWriter(Protocol):
    """Writes progress and quarantine within an open transaction that has passed its guard."""

    def write_quarantine(self, held: Sequence[QuarantineEntry]) -> None:
        """Write entries to `rowlock_quarantine`."""

    def close_held(self, ids: Sequence[tuple[int, int]], why: str) -> None:
        """Move entries of this unit, by (offset, part), from the quarantine to its history."""

    def close_held_before(self, offset: int, why: str) -> None:
        """Move all entries of this unit below `offset` from the quarantine to its history: their rows
        no longer exist.
        """

    def supersede_displaced(self, table: str, before: int, why: str) -> None:
        """Mark the displaced rows of `table` ("schema.name") as superseded, because the source sent its
        rows again.

        These are the rows in `rowlock_displaced` that events of this unit below the offset `before`
        displaced.
        """

    def write_progress(self, rows: Sequence[LaneProgress]) -> None:
        """Write lane rows, as the last statement of the transaction.

        Epoch and attempt are part of the condition.
        """

    def write_unit(self, state: UnitState) -> None: ...

    def replace_lanes(self, rows: Sequence[LaneProgress]) -> None:
        """Replace all lane rows of the unit by `rows` (another lane count or layout)."""


class TargetTransaction(ProgressWriter, Protocol):
    """An open target transaction that has passed its guard.

    Leaving the `with` block commits; an exception rolls back.
    """

    def apply_net_change(self, net: NetChange, *, displacing: str | None = None) -> int:
        """Apply `net` set-based. Return how many rows were written to `rowlock_displaced`; they count
        once it commits.

        With `displacing` None, a needed unique value that a row of another key holds raises
        UniqueViolationError. With `displacing` (JSON of what is applied: offsets of the batch) such
        rows are removed first, and each is written whole to `rowlock_displaced`. This includes
        snapshots, where nothing proves that the row is stale rather than written by another key of the
        same snapshot.

        Raises TransientError, RefusedError, UniqueViolationError; after any of them the transaction is
        rolled back by leaving the block.
        """

    def truncate_table(self, table: TargetTable, where: dict[str, str] | None) -> None:
        """Delete all rows, or only those with the values `where` in added columns.

        Never commits implicitly.
        """

    def write_other(self, topic: str, state: UnitState) -> None:
        """Write the row of another unit of the pipeline, which `lock_units` has locked."""

    def lock_units(self) -> dict[str, UnitState]:
        """Lock the `rowlock_unit` rows of all units of the pipeline to the end of the transaction.

        Return topic → state.
        """

    def alter_table(self, change: AlterTable | DropTable) -> None:
        """Change a table as part of this transaction; only where the target has `transactional_ddl`.

        Waits at most 3 s for its lock. Raises TransientError (who holds the lock), TargetConfigError or
        RefusedError with a remedy; after any of them the transaction is rolled back by leaving the
        block.
        """


class ProgressStore(Protocol):
    """The store of a unit's epoch, progress, layout and quarantine.

    The process that runs a unit needs nothing else of the target to take the unit over, fence it or
    stop it.
    """

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
        """Raise the epoch of the unit, creating its rows where missing (offset -1), and clear
        `stopped`.

        `assigned`: the coordinator's assignment of the unit; the new epoch is then within it
        (consumer.ordering.fencing_tokens), and a row of a later assignment raises FencedError. `above`:
        an epoch that the caller already had, which is never given again.

        Waits a bounded time for a zombie's lock, then finds the blocker from the lock wait itself, ends
        its connection and tries again. Returns (new epoch, lane rows, unit state). Stored topic_id and
        layout are kept. The returned state contains the cause by which the unit was stopped; the target
        no longer has it.
        """

    def begin_attempt(
        self, unit: ApplyUnit, epoch: int
    ) -> tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]:
        """Begin a task attempt. In one transaction, lock all lane rows in lane order, compare the
        epoch, increment attempt, read everything, and commit.

        Raises FencedError if the epoch differs in either direction, or if there is no row.
        """

    def read_progress(
        self, unit: ApplyUnit, lanes: bool = True
    ) -> tuple[list[LaneProgress], UnitState | None]:
        """Read progress without locks (for status, and after a commit of unknown outcome)."""

    def read_quarantine(self, unit: ApplyUnit) -> list[QuarantineEntry]:
        """Return the quarantine entries of the unit by (offset, part), without locks."""

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        """Record that the unit waits for a person; do nothing when the epoch is no longer `epoch`.

        `was`: the cause by which the unit was stopped before it was taken over. If it is the same, the
        time since when the unit is stopped is kept.
        """

    def ping(self) -> bool: ...

    def close(self) -> None: ...


class TargetTables(Protocol):
    """The tables of a target, as far as activating a definition needs them.

    `column_names`: how the target compares names of columns.
    """

    column_names: NameRules

    def read_table(self, schema: str, name: str) -> Table | None:
        """Read a table's real definition through SQLAlchemy's inspector; None when it does not exist."""

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        """Return the facts of an existing table, beside its definition, that
        consumer.targets.checks.table_findings judges.
        """

    def create_table(self, table: Table) -> None:
        """CREATE TABLE IF NOT EXISTS from the neutral model, with key and unique indexes, through the
        type map.
        """


class EventTables(Protocol):
    """The additional methods of a target that writes tables as events: a topic has no definition that
    could be read.
    """

    def open_topic(self, table: TargetTable, *, create: bool, existed: bool = False) -> None:
        """Check that the topic of a table can take its records.

        `create`: create the topic where it is missing. `existed` (the topic existed before): leave a missing
        one alone, because `records_lost` reports it.

        Raises TargetConfigError: the topic is missing, has another number of partitions, or its format
        cannot carry a column.
        """

    def records_lost(self, unit: ApplyUnit, table: TargetTable) -> Problem | None:
        """Return why the records that the unit wrote are not in its table's present topic; None: they are."""

    def judge_topic(self, table: TargetTable, *, create: bool) -> None:
        """Raise what `open_topic` would raise, but create nothing."""

    def find_outdated_options(self, unit: ApplyUnit, options: TopicOptions) -> tuple[str, ...]:
        """Return the options of a route (`columns`, `masks`, `where`) that changed since rows of the
        unit's topic were written.

        `options`: the present ones.
        """

    def find_write_conflicts(self, unit: ApplyUnit, table: TargetTable, *, create: bool) -> list[str]:
        """Return what would stop the unit at its next change, because its records are written in
        another way than the existing ones.

        `create`: see `open_topic`. Raises TargetConfigError: the table cannot be written at all.
        """

    def read_unit_states(self, pipeline: str) -> dict[str, UnitState]:
        """Return topic → state of the pipeline's units that have been taken over."""

    def find_topic_writers(self, unit: ApplyUnit, topic: str) -> dict[str, tuple[UnitState, int]]:
        """Return topic → (state, last applied offset) of the pipeline's other units that have written,
        or may yet write, to `topic` of the target.

        A unit that has written nothing yet does not count if it is stopped, or if `unit` itself has
        written there: it will make the same check and find `unit`.
        """


class UnitTarget(ProgressStore, TargetTables, Protocol):
    """A target of any kind, as far as taking over, inspecting, stopping and fencing a unit need it.

    `transactional_ddl`: a statement that changes a table commits with its transaction; otherwise each
    such statement commits by itself, together with everything before it.
    """

    transactional_ddl: bool

    def read_surroundings(self, schema: str, name: str) -> object:
        """Return everything besides its definition that may keep rowlock from writing an existing
        table.

        The object can be compared and has a repr.
        """


class Session(UnitTarget, Protocol):
    """One connection to a target that keeps progress itself."""

    def begin_transaction(
        self, unit: ApplyUnit, guards: Sequence[LaneProgress]
    ) -> AbstractContextManager[TargetTransaction]:
        """Begin READ COMMITTED and lock the lane rows of `guards` in lane order, as the first
        statement.

        Raises FencedError unless epoch, attempt and offset are those that were last read or written.
        """

    def fetch_rows(
        self,
        table: TargetTable,
        after: Key | None,
        limit: int,
        where: dict[str, str] | None = None,
        *,
        upto: Key | None = None,
    ) -> list[Row]:
        """Read up to `limit` rows with after < key <= upto, as wire values (for verify and copies).

        Rows are in the order of the key's index.
        """

    def fetch_keys(self, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
        """Read the rows with exactly these keys."""

    def read_unit_states(self, pipeline: str) -> dict[str, UnitState]:
        """Return topic → state of the pipeline's units, without locks."""

    def get_connection_id(self) -> int:
        """Return the server's id of the session's connection, connecting first where needed.

        A process that takes the unit over ends this connection.
        """

    def alter_table(self, change: AlterTable | DropTable, *, connection: int) -> None:
        """Change a table, each statement committing by itself; only where the target has no
        `transactional_ddl`.

        `connection`: the result of `get_connection_id()` when the mark was committed. If the session
        has another connection by now, the old one may have been ended by a takeover of the unit:
        TransientError is raised before anything is done. A statement is never sent again over a new
        connection. Waits at most 3 s for its lock. Raises TransientError (with the holder of the lock;
        nothing was done), TargetConfigError or RefusedError with a remedy.
        """

    def end_connection(self, connection: int) -> None:
        """End a connection that may still change a table for a dead worker, and wait until it and its
        statement have ended.

        Does nothing where the connection does not exist. Raises TransientError when it still exists
        after a few seconds.
        """
