"""The interfaces of a target and of the store that keeps progress; only their implementations know SQL.

A `ProgressStore` keeps the units: epoch (the fencing token), the progress of each lane, the layout, and
what waits for a person. An `SqlSession` (consumer.targets.session) is a target that commits tables and
progress in one transaction, so it is a progress store itself; a target that cannot do that (a topic, a
table format) has a separate store. Errors of statements are translated once, by the implementations, into
consumer.errors. Every value that reaches a target is a wire value (schemas/table/model.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    QuarantineEntry,
    TargetTable,
    TopicOptions,
    UnitState,
)
from consumer.targets.checks.table_facts import TableFacts
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.table.names import NameRules


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
        """Begin an attempt. In one transaction, lock all lane rows in lane order, compare the
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


class UnitTarget(ProgressStore, Protocol):
    """A target of any kind, as far as taking over, inspecting, stopping and fencing a unit, and activating
    a definition, need it.

    `column_names`: how the target compares names of columns; `table_names`: those of schemas and tables, for
    which it may ask the server. `transactional_ddl`: a statement that changes a table commits with its
    transaction; otherwise each such statement commits by itself, together with everything before it.
    """

    column_names: NameRules
    transactional_ddl: bool

    @property
    def table_names(self) -> NameRules: ...

    def list_unit_topics(self, pipeline: str) -> list[str]:
        """Return the topics for which this target keeps a unit of `pipeline` (for status)."""

    def read_unit_states(self, pipeline: str, topics: Sequence[str] | None = None) -> dict[str, UnitState]:
        """Return topic → state of the pipeline's units that have been taken over. `topics`: only of these."""

    def list_defined_topics(self, pipeline: str) -> list[str]:
        """Return the topics of the pipeline's units that have a definition."""

    def count_displaced_rows(self, pipeline: str, *, superseded: bool = False) -> dict[str, int]:
        """Return topic → number of rows in `rowlock_displaced` that are `superseded` or are not, without
        topics that have none; empty for targets where only keys are unique.
        """

    def read_table(self, schema: str, name: str) -> Table | None:
        """Read a table's real definition through SQLAlchemy's inspector; None when it does not exist."""

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        """Return the facts of an existing table, beside its definition, that
        consumer.targets.checks.table_findings judges.
        """

    def read_surroundings(self, schema: str, name: str) -> object:
        """Return everything besides its definition that may keep rowlock from writing an existing
        table.

        The object can be compared and has a repr.
        """

    def judge_new_table(self, table: Table) -> list[Problem]:
        """Return what a table that `create_table` creates lacks, and raise TargetConfigError if it cannot be
        created.
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

    def find_topic_writers(self, unit: ApplyUnit, topic: str) -> dict[str, tuple[UnitState, int]]:
        """Return topic → (state, last applied offset) of the pipeline's other units that have written,
        or may yet write, to `topic` of the target.

        A unit that has written nothing yet does not count if it is stopped, or if `unit` itself has
        written there: it will make the same check and find `unit`.
        """
