"""Guarded transactions of one attempt: what is applied and the progress that says so, together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from consumer.attempt.effects import CheckSession, DropSession, Machine, ReadProgress, Sleep, T, Transact
from consumer.attempt.operations import Operation, Relayout, WriteProgress
from consumer.errors import AttemptLostError, CommitUnknownError, RefusedError, TransientError
from consumer.ordering.model import LaneProgress
from consumer.ordering.progress import Mark, advanced, committed
from schemas.backoff import pause_after
from schemas.errors import ValueRefusedError

FIRST_PAUSE_S = 0.05
TRIES = 5
"""Attempts at what is not in a lane, the pause doubling in between: under a second in all."""
RESOLVE_TRIES = 8
"""Connections tried to learn the outcome of a commit, the pause doubling in between: about 6 s."""


def retried(act: Callable[[], Machine[T]]) -> Machine[T]:
    """End with what `act` ends with; a TransientError is tried again a few times, then raised."""
    for tries in range(1, TRIES):
        with suppress(TransientError):
            return (yield from act())
        yield Sleep(pause_after(tries, FIRST_PAUSE_S))
    return (yield from act())


class Progress:
    """The lane rows of one attempt as last read or written, and the transactions that move them.

    Used by several lanes at once: each touches its own row only.
    """

    def __init__(self, rows: Sequence[LaneProgress]) -> None:
        self.rows: list[LaneProgress] = sorted(rows, key=lambda row: row.lane)

    @property
    def level(self) -> bool:
        """All lanes stand at the same offset."""
        return len({row.offset for row in self.rows}) == 1

    @property
    def lowest(self) -> LaneProgress:
        return min(self.rows, key=lambda row: row.offset)

    def behind(self, mark: Mark, lanes: Sequence[int] | None = None) -> list[int]:
        """Return those of `lanes` (None: all) that stand below `mark`.

        After a crash a batch may end below the highest lane, which stays where it is.
        """
        numbers = range(len(self.rows)) if lanes is None else lanes
        return [lane for lane in numbers if self.rows[lane].offset < mark[0]]

    def move(self, lanes: Sequence[int], mark: Mark, operations: Sequence[Operation] = ()) -> Machine[int]:
        """Carry out `operations` in one transaction that guards `lanes` (over the first one's session) and moves them to
        `mark`. Ends with the number of rows that were displaced."""
        guards = [self.rows[lane] for lane in lanes]
        wrote = [advanced(row, mark) for row in guards]
        displaced = yield from self._transact(
            Transact(lanes[0], guards, (*operations, WriteProgress(wrote))), wrote
        )
        for row in wrote:
            self.rows[row.lane] = row
        return displaced

    def guarded(self, operations: Sequence[Operation]) -> Machine[None]:
        """Carry out `operations`, which may be carried out twice, in a transaction that guards all lanes and moves none."""
        yield from retried(lambda: self.tried(operations))

    def tried(self, operations: Sequence[Operation]) -> Machine[None]:
        """Like `guarded`, with one try."""
        rows = list(self.rows)
        yield from self._transact(Transact(0, rows, operations), rows)

    def once(self, operations: Sequence[Operation]) -> Machine[None]:
        """Carry out `operations`, which must not be carried out twice, in a transaction that guards all lanes and moves none.

        Raises AttemptLostError where nobody knows whether that happened: the lanes do not tell, so `operations` write into the unit's row what
        the next attempt knows it by.
        """
        rows = list(self.rows)
        yield from retried(lambda: self._transact(Transact(0, rows, operations), None))

    def move_idle(self, lanes: Sequence[int], mark: Mark) -> Machine[None]:
        """Move `lanes`, which have nothing to apply, to `mark`. Raises TransientError after bounded retries."""
        if lanes:
            yield from retried(lambda: self.move(lanes, mark))

    def relayout(self, rows: Sequence[LaneProgress], operations: Sequence[Operation] = ()) -> Machine[None]:
        """Carry out `operations` and replace all lane rows by `rows` in one transaction that guards all of them."""
        yield from self._transact(Transact(0, list(self.rows), (*operations, Relayout(rows))), None)
        self.rows = list(rows)

    def _transact(self, transact: Transact, wrote: Sequence[LaneProgress] | None) -> Machine[int]:
        number = transact.number
        try:
            yield transact
        except CommitUnknownError as error:
            if wrote is None:
                raise AttemptLostError(
                    f"whether it was committed is read by the next attempt: {error}"
                ) from error
            if not (yield from self._happened(number, transact.guards[0], wrote[0])):
                raise TransientError(f"the commit did not happen: {error}") from error
        except ValueRefusedError as error:
            raise RefusedError(str(error)) from error
        except TransientError:
            yield CheckSession(number)
            raise
        return sum(transact.displaced)

    def _happened(self, number: int, guard: LaneProgress, wrote: LaneProgress) -> Machine[bool]:
        """Ask the row whether a commit of unknown outcome happened; one row speaks for all of a transaction."""
        for tries in range(1, RESOLVE_TRIES + 1):
            yield DropSession(number)
            with suppress(TransientError):
                rows: Sequence[LaneProgress] = yield ReadProgress(number)
                found = [row for row in rows if row.lane == guard.lane]
                return committed(found[0] if found else None, guard, wrote)
            yield Sleep(pause_after(tries, FIRST_PAUSE_S))
        raise AttemptLostError("the target did not answer after a commit of unknown outcome")
