"""Errors of the consumer, by what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.findings import format_copy_remedy, format_debezium_remedy

if TYPE_CHECKING:
    from schemas.table.model import UniqueIndex

#: The remedy for what a target answers to a statement that went well before; behind a colon (schemas.findings.split_remedy).
UNDO = "undo what was changed in the target, `rowlock check` says what does not fit"

#: The remedy for what a copy of the table heals, before the table's name.
COPY = "rowlock copy"
#: Why a unit needs a copy, beside the causes that its topic says: words of `CopyNeededError.cause`.
COPY_CAUSES = (
    "gap",  # events are missing in the topic
    "definition",  # another definition of the table, which the pipeline's policy does not follow
    "statement",  # a statement of which nothing says that it kept the table's rows
    "event",  # an event that does not fit the definition in force
    "key",  # a value of the key that cannot be decoded
    "partial",  # a snapshot of Debezium's that is of a part of the table
    "policy",  # another definition, and the pipeline wants a person to act first: no copy is asked for by itself
)


class ConsumerError(Exception):
    """Root of all errors of this package; the message says who is to blame, what was seen and what to do."""


class TransientError(ConsumerError):
    """Worth another try: deadlock, lock time-out, lost connection, server restarting."""


class LockWaitError(TransientError):
    """A lock was waited for as long as the session waits for one."""


class TableChangedError(TransientError):
    """A table is not as it was when a change of it was worked out: nothing was done, and it is worked out anew."""


class TakesLongError(TransientError):
    """The next step would keep other units waiting: a hand does it, apart from them (consumer.process.operations.stretches)."""


class CommitUnknownError(TransientError):
    """The connection broke inside COMMIT: only the progress row can tell."""


class FencedError(ConsumerError):
    """Another attempt or epoch owns the unit now. Never retried: this worker must not write again."""


class AttemptLostError(FencedError):
    """The outcome of a commit could not be read: only a new attempt, which reads everything anew, may go on."""


class RefusedError(ConsumerError):
    """The target refuses the data of a statement (type, length, constraint, NUL byte): quarantine after isolating it."""


class UniqueViolationError(RefusedError):
    """A needed unique value is held by a row of another key."""


class NotUniqueError(UniqueViolationError):
    """A unique index or key cannot be built, for rows that are there are equal in it. `index`: as the step has it; nothing was done.

    The message has the statement that shows them: values of rows are in no message.
    """

    def __init__(self, message: str, index: UniqueIndex) -> None:
        super().__init__(message, index)
        self.index = index

    def __str__(self) -> str:
        return str(self.args[0])


class UnitStoppedError(ConsumerError):
    """The unit cannot go on without a person (gap, DDL, topic re-created, retention): stop it with this message."""


class CopyNeededError(UnitStoppedError):
    """The unit goes on by itself where a copy of its table begins behind `after`, and nowhere else.

    `seen`: what it cannot follow. `cause`: one of producer.stops.CAUSES, or of NEEDS. `table`: (database, table) of the source; `after`: Kafka
    offset of the event that cannot be followed; who raises it may not know these: the attempt fills them in. `first`: what a person must
    do before a copy can help. `instead`: what is raised where no such copy has begun: none is asked for, it would meet the same. `debezium`:
    it writes the topic, so it copies.
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
        """Fill in what the code that raised it did not know. `table`: None: it is not known here either."""
        self.debezium = self.debezium or debezium
        self.table = self.table or table
        self.after = after if self.after is None else self.after

    def __str__(self) -> str:
        again = format_debezium_remedy if self.debezium else format_copy_remedy
        command = COPY if self.table is None else again(*self.table)
        return f"{self.seen}: {f'{self.first}, then ' if self.first else ''}{command}"


class StepsLeftError(ConsumerError):
    """The target table is not yet what a definition wants of it: its statements come first."""


class TargetConfigError(ConsumerError):
    """The target does not fit (missing table, missing grant, coarser key): said by `check` or at start."""


class AlreadyExistsError(TargetConfigError):
    """An object of this name exists already in the target, or another session is creating it."""


class MissingGrantError(TargetConfigError):
    """The user of a target lacks a right. `seen`: what the target refused; `statement`: the GRANT that gives the right."""

    def __init__(self, seen: str, statement: str) -> None:
        super().__init__(seen, statement)
        self.seen = seen
        self.statement = statement

    def __str__(self) -> str:
        return f"{self.seen}; run: {self.statement}"
