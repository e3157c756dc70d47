"""Errors of the consumer, grouped by their consequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.findings import format_copy_remedy, format_debezium_remedy
from schemas.problems import Problem, ProblemError

if TYPE_CHECKING:
    from schemas.table.model import UniqueIndex

#: The remedy for a statement that the target refuses now but accepted before.
UNDO = "undo the change of the target table; `rowlock check` lists what does not match"

#: The remedy where the target's server has tables with fewer columns only.
FEWER_COLUMNS = (
    "give the target table fewer columns by hand and set `schema_changes: ignore` for its route, or leave "
    "the table out of the route"
)

#: The remedy where a copy of the table helps, before the table's name.
COPY = "rowlock copy"


class ConsumerError(ProblemError):
    """Base class of all errors of this package."""


class TransientError(ConsumerError):
    """Worth a retry: deadlock, lock time-out, lost connection, server restarting."""


class ServerSilentError(TransientError):
    """Nothing at all came back while a connection was made, or for too long on an open one.

    The attempt ends: another try would wait as long again, and its unit may be applied elsewhere.
    """


class LockWaitError(TransientError):
    """A lock was not granted within the session's lock time-out."""


class TableChangedError(TransientError):
    """The table changed after a change of it was planned. Nothing was done; the change is planned again."""


class TakesLongError(TransientError):
    """The next step would keep other units waiting, and the attempt is not patient (UnitSpec.patient)."""


class CommitUnknownError(TransientError):
    """The connection broke during COMMIT. Only the progress row shows the outcome."""


class FencedError(ConsumerError):
    """Another attempt or fencing token owns the unit now. Never retried: this worker must not write again."""


class AttemptLostError(FencedError):
    """The outcome of a commit could not be read.

    Only a new attempt, which reads the progress again, may continue.
    """


class RefusedError(ConsumerError):
    """The target refuses the data of a statement (type, length, constraint, NUL byte).

    The row is isolated and quarantined.
    """


class RowTooLargeError(RefusedError):
    """A row, or one of its index entries, exceeds a limit of the target. The message has the limit."""


class UniqueViolationError(RefusedError):
    """A row of another key holds a unique value that an event needs."""


class NotUniqueError(UniqueViolationError):
    """A unique index or key cannot be built because existing rows are equal in it. Nothing was done.

    `index`: as in the step. The message contains a query for these rows; no message contains values of
    rows.
    """

    def __init__(self, what: str, remedy: str, index: UniqueIndex) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, index)  # for pickle
        self.index = index


class UnitStoppedError(ConsumerError):
    """The unit cannot continue without a person (gap, DDL, re-created topic, retention).

    It stops with this message.
    """


class CopyNeededError(UnitStoppedError):
    """The unit can continue only from a copy of its table that begins after the offset `after`, and then
    does so by itself.

    `seen`: what cannot be followed. `table`: (database, table) of the source. `after`: the Kafka offset
    of the event that cannot be followed. The attempt fills in `table` and `after` if the raising code
    does not know them. `first`: what a person must do before a copy can help. `instead`: the error that
    is raised if no such copy has begun; no copy is then requested, because it would fail in the same
    way. `debezium`: Debezium writes the topic, so Debezium makes the copy.

    `cause`: that of a stop in the topic (one of producer.stops.CAUSES), or

    - gap: events are missing in the topic
    - definition: another definition of the table, which the pipeline's policy does not follow
    - statement: a statement that is not known to keep the table's rows
    - event: an event that does not fit the active definition
    - key: a value of the key that cannot be decoded
    - partial: a snapshot of Debezium's that contains a part of the table
    - policy: another definition; a person must act before a copy is requested
    """

    def __init__(
        self,
        seen: str,
        *,
        cause: str,
        table: tuple[str, str] | None = None,
        after: int | None = None,
        first: str = "",
        instead: ConsumerError | None = None,
        debezium: bool = False,
    ) -> None:
        super().__init__(seen)
        self.seen, self.cause, self.table, self.after, self.first = seen, cause, table, after, first
        self.instead, self.debezium = instead, debezium

    def add_context(self, table: tuple[str, str] | None, after: int, *, debezium: bool = False) -> None:
        """Fill in what the raising code did not know. `table`: None if it is not known here either."""
        self.debezium = self.debezium or debezium
        self.table = self.table or table
        self.after = after if self.after is None else self.after

    @property
    def problem(self) -> Problem:
        format_remedy = format_debezium_remedy if self.debezium else format_copy_remedy
        command = COPY if self.table is None else format_remedy(*self.table)
        return Problem(self.seen, f"{self.first}, then {command}" if self.first else command)


class StepsLeftError(ConsumerError):
    """The target table does not have the target goal of a definition yet: its statements come first."""


class TargetConfigError(ConsumerError):
    """The target does not fit (missing table, missing grant, coarser key).

    Reported by `check` or at start.
    """


class TableTooLargeError(TargetConfigError):
    """Every row of a table that a statement defines may exceed a limit of the target."""


class TableMissingError(TargetConfigError):
    """A table of the statement does not exist in the target, or its user may not see it."""


class AlreadyExistsError(TargetConfigError):
    """The target already has an object of this name, or another session is creating it."""


class SparkStartError(ConsumerError):
    """Spark cannot be started."""


class SparkVersionError(SparkStartError):
    """PySpark is missing, or rowlock was not tested with its version."""


class MissingGrantError(TargetConfigError):
    """The user of a target lacks a privilege.

    `seen`: the server's refusal; `statement`: the GRANT that is needed.
    """

    def __init__(self, seen: str, statement: str) -> None:
        super().__init__(seen, statement=statement)
        self.args = (seen, statement)  # for pickle
        self.seen = seen
        self.statement = statement
