"""Guarded transactions of one attempt: changes and their progress are committed together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from consumer.attempt.effects import (
    CheckSession,
    DropSession,
    Machine,
    ReadProgress,
    Sleep,
    T,
    Transact,
    ask_driver,
)
from consumer.attempt.operations import Operation, ReplaceLaneRows, WriteProgress
from consumer.errors import (
    AttemptLostError,
    CommitUnknownError,
    RefusedError,
    ServerSilentError,
    TransientError,
)
from consumer.ordering.model import LaneProgress
from consumer.ordering.progress import LaneMark, advance_row, was_committed
from schemas.backoff import pause_after
from schemas.errors import ValueRefusedError

FIRST_RETRY_DELAY_S = 0.05
MAX_TRANSACTION_TRIES = 5
"""Tries of a transaction outside the lanes, the pause doubling in between: under a second in all."""
RESOLVE_TRIES = 8
"""Connections tried to read the outcome of a commit, the pause doubling in between: about 6 s."""


def retry_transient(act: Callable[[], Machine[T]], *, tries: int = MAX_TRANSACTION_TRIES) -> Machine[T]:
    """Run `act` and return its result. A TransientError is retried until `tries` have failed, then raised;
    that of a silent server is not retried.
    """
    for failed in range(1, tries):
        try:
            return (yield from act())
        except ServerSilentError:
            raise
        except TransientError:
            pass
        yield Sleep(pause_after(failed, FIRST_RETRY_DELAY_S))
    return (yield from act())


class AttemptProgress:
    """The lane rows of one attempt as last read or written, and the transactions that move them.

    Used by several lanes at once: each accesses its own row only.
    """

    def __init__(self, rows: Sequence[LaneProgress] = ()) -> None:
        self.rows: list[LaneProgress] = []
        self.take_rows(rows)

    def take_rows(self, rows: Sequence[LaneProgress]) -> None:
        """Continue from lane rows that were read just now."""
        self.rows = sorted(rows, key=lambda row: row.lane)

    @property
    def level(self) -> bool:
        """True if all lanes are at the same offset."""
        return len({row.offset for row in self.rows}) == 1

    @property
    def lowest(self) -> LaneProgress:
        return min(self.rows, key=lambda row: row.offset)

    def list_lanes_below(self, mark: LaneMark, lanes: Sequence[int] | None = None) -> list[int]:
        """Return those of `lanes` (None: all) that are below `mark`.

        After a crash a batch may end below the highest lane, which keeps its offset.
        """
        numbers = range(len(self.rows)) if lanes is None else lanes
        return [lane for lane in numbers if self.rows[lane].offset < mark[0]]

    def move_lanes(
        self, lanes: Sequence[int], mark: LaneMark, operations: Sequence[Operation] = ()
    ) -> Machine[int]:
        """Carry out `operations` in one transaction that guards `lanes` and moves them to `mark`.

        Uses the session of the first lane. Returns the number of displaced rows.
        """
        guards = [self.rows[lane] for lane in lanes]
        wrote = [advance_row(row, mark) for row in guards]
        displaced = yield from self._run_transaction(
            Transact(lanes[0], guards, (*operations, WriteProgress(wrote))), wrote
        )
        for row in wrote:
            self.rows[row.lane] = row
        return displaced

    def commit_guarded(self, operations: Sequence[Operation]) -> Machine[None]:
        """Carry out `operations`, which may be repeated, in a transaction that guards all lanes and
        moves none.
        """
        yield from retry_transient(lambda: self.try_guarded(operations))

    def try_guarded(self, operations: Sequence[Operation]) -> Machine[None]:
        """Like `commit_guarded`, with one try."""
        rows = list(self.rows)
        yield from self._run_transaction(Transact(0, rows, operations), rows)

    def commit_once(
        self,
        operations: Sequence[Operation],
        *,
        tries: int = MAX_TRANSACTION_TRIES,
        lock_wait_s: float | None = None,
    ) -> Machine[int]:
        """Carry out `operations`, which must not be repeated, in a transaction that guards all lanes and
        moves none.

        `lock_wait_s`: see `Transact`. Returns the number of displaced rows. Raises TransientError if `tries`
        tries fail, and AttemptLostError if the outcome is unknown. The lanes do not show it, so `operations`
        write into the unit's row what the next attempt needs to recognise it.
        """
        rows = list(self.rows)
        return (
            yield from retry_transient(
                lambda: self._run_transaction(Transact(0, rows, operations, lock_wait_s=lock_wait_s), None),
                tries=tries,
            )
        )

    def move_idle(self, lanes: Sequence[int], mark: LaneMark) -> Machine[None]:
        """Move `lanes`, which have nothing to apply, to `mark`.

        Raises TransientError after bounded retries.
        """
        if lanes:
            yield from retry_transient(lambda: self.move_lanes(lanes, mark))

    def replace_lanes(
        self, rows: Sequence[LaneProgress], operations: Sequence[Operation] = ()
    ) -> Machine[None]:
        """Carry out `operations` and replace all lane rows by `rows` in one transaction that guards all
        of them.
        """
        yield from self._run_transaction(
            Transact(0, list(self.rows), (*operations, ReplaceLaneRows(rows))), None
        )
        self.rows = list(rows)

    def _run_transaction(self, transact: Transact, wrote: Sequence[LaneProgress] | None) -> Machine[int]:
        number = transact.number
        try:
            yield transact
        except CommitUnknownError as error:
            if wrote is None:
                raise AttemptLostError(
                    "the outcome of the commit is unknown; the next attempt reads "
                    f"it from the target: {error}"
                ) from error
            if not (yield from self._has_happened(number, transact.guards[0], wrote[0])):
                raise TransientError(f"the commit did not happen: {error}") from error
        except ValueRefusedError as error:
            raise RefusedError.from_problem(error.problem) from error
        except TransientError:
            yield CheckSession(number)
            raise
        return sum(transact.displaced)

    def _has_happened(self, number: int, guard: LaneProgress, wrote: LaneProgress) -> Machine[bool]:
        """Return whether a commit of unknown outcome happened. One lane's row shows it for the whole
        transaction.
        """
        for tries in range(1, RESOLVE_TRIES + 1):
            yield DropSession(number)
            with suppress(TransientError):
                try:
                    rows = yield from ask_driver(ReadProgress(number))
                except ServerSilentError:
                    break
                found = [row for row in rows if row.lane == guard.lane]
                return was_committed(found[0] if found else None, guard, wrote)
            yield Sleep(pause_after(tries, FIRST_RETRY_DELAY_S))
        raise AttemptLostError("the target did not answer after a commit of unknown outcome")
