"""Applying accepted changes of one topic to the target, with the progress in the same transactions (design.md §6).

Two ways with one result. *Laned*: consumer.lane_threads, every lane with a connection and transactions of its own.
*Short*: up to a few hundred events become one net change in one transaction that guards all lanes' rows and moves
them all. Why that equals the laned way: tickets order the commits of different lanes, and here there is one commit;
the net change over all lanes' events in event order is what a single lane gathers; all rows move from one offset to
one offset, so no reader of progress can tell the difference. It needs lanes that stand equal (else an event is new for
one lane and covered for another) and no held keys; anything but success falls back to the lanes, which know how to
retry, halve and quarantine: a rolled back short transaction has left nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Protocol, TypeVar

import structlog

from consumer.dispatch import Dispatcher
from consumer.errors import CommitUnknownError, ConsumerError, FencedError, RefusedError, TransientError
from consumer.lane_threads import LaneThreads
from consumer.lanes import Batch, Limits
from consumer.layout import Layout
from consumer.locks import LockTable
from consumer.model import Held, LaneProgress, NetChange, RowChange, TargetTable, Unit
from consumer.netchange import net_change
from consumer.progress import Mark, advanced, committed
from consumer.targets.base import Session, Transaction
from schemas.errors import ValueRefusedError
from schemas.table import Table

log = structlog.get_logger(__name__)

T = TypeVar("T")

SHORT = 500
"""Events up to which one transaction is cheaper than waking the lanes."""
RESOLVE_TRIES = 8
"""Connections tried to learn the outcome of a commit, 50 ms doubling in between: about 6 s."""


TRIES = 5
"""Attempts at what is not in a lane, 50 ms doubling in between: under a second in all."""


def retried(act: Callable[[], T]) -> T:
    """Return what `act` returns; a TransientError is tried again a few times, then raised."""
    for attempt in range(TRIES - 1):
        with suppress(TransientError):
            return act()
        time.sleep(0.05 * 2**attempt)
    return act()


class AttemptLostError(FencedError):
    """The outcome of a commit could not be read: only a new attempt, which reads everything anew, may go on."""


class Sessions(Protocol):
    """The connections of a worker process to one target; number = lane."""

    def get(self, number: int) -> Session:
        """Return the session of a lane, connecting where needed. Raises TransientError."""

    def check(self, number: int) -> None:
        """After an error: drop the session if its connection is broken."""

    def drop(self, number: int) -> None:
        """Close the session, so that `get` makes a new one."""


class Progress:
    """The lane rows of one attempt as last read or written, and the guarded transactions that move them.

    Used by several lane threads at once: each touches its own row only.
    """

    def __init__(self, unit: Unit, sessions: Sessions, rows: Sequence[LaneProgress]) -> None:
        self.unit = unit
        self.sessions = sessions
        self.rows: list[LaneProgress] = sorted(rows, key=lambda row: row.lane)

    @property
    def level(self) -> bool:
        """All lanes stand at the same offset."""
        return len({row.offset for row in self.rows}) == 1

    @property
    def lowest(self) -> LaneProgress:
        return min(self.rows, key=lambda row: row.offset)

    def move(self, lanes: Sequence[int], mark: Mark, body: Callable[[Transaction], None]) -> None:
        """Run `body` in one transaction that guards `lanes` (of the first one's session) and moves them to `mark`."""
        guards = [self.rows[lane] for lane in lanes]
        wrote = [advanced(row, mark) for row in guards]

        def whole(tx: Transaction) -> None:
            body(tx)
            tx.write_progress(wrote)

        self._transact(lanes[0], guards, wrote, whole)
        for row in wrote:
            self.rows[row.lane] = row

    def write(self, lanes: Sequence[int], mark: Mark) -> None:
        """Move `lanes`, which have nothing to apply, to `mark`. Raises TransientError after bounded retries."""
        retried(lambda: self.move(lanes, mark, lambda _tx: None))

    def relayout(self, rows: Sequence[LaneProgress], body: Callable[[Transaction], None]) -> None:
        """Run `body` and replace all lane rows by `rows` in one transaction that guards all of them."""

        def whole(tx: Transaction) -> None:
            body(tx)
            tx.relayout(rows)

        self._transact(0, self.rows, None, whole)
        self.rows = list(rows)

    def _transact(
        self,
        number: int,
        guards: Sequence[LaneProgress],
        wrote: Sequence[LaneProgress] | None,
        body: Callable[[Transaction], None],
    ) -> None:
        try:
            with self.sessions.get(number).transaction(self.unit, guards) as tx:
                body(tx)
        except CommitUnknownError as error:
            if wrote is None:
                raise AttemptLostError(f"outcome of a change of layout unknown: {error}") from error
            if not self._happened(number, guards[0], wrote[0]):
                raise TransientError(f"the commit did not happen: {error}") from error
        except ValueRefusedError as error:
            raise RefusedError(str(error)) from error
        except TransientError:
            self.sessions.check(number)
            raise

    def _happened(self, number: int, guard: LaneProgress, wrote: LaneProgress) -> bool:
        """Ask the row whether a commit of unknown outcome happened; one row speaks for all of a transaction."""
        for attempt in range(RESOLVE_TRIES):
            self.sessions.drop(number)
            with suppress(TransientError):
                rows, _ = self.sessions.get(number).read(self.unit)
                found = [row for row in rows if row.lane == guard.lane]
                return committed(found[0] if found else None, guard, wrote)
            time.sleep(0.05 * 2**attempt)
        raise AttemptLostError("the target did not answer after a commit of unknown outcome")


class Applier:
    """Applies the changes of one table in one layout. `submit` in offset order, `drain` at barriers and ends."""

    def __init__(
        self,
        progress: Progress,
        layout: Layout,
        target: TargetTable,
        *,
        wanted: Table | None = None,
        held: Sequence[Held] = (),
        limits: Limits | None = None,
        replace: bool = True,
        short: int = SHORT,
    ) -> None:
        """`wanted`: the source's model in target terms. `held`: of the unit. `replace`: `conflicts: replace`."""
        self._progress = progress
        self._layout = layout
        self._target = target
        self._wanted = wanted
        self._held = held
        self._limits = limits or Limits()
        self._replace = replace
        self._pending: list[RowChange] = []
        self._lanes: LaneThreads | None = None
        self._short = short if not held and progress.level and self._limits.max_gather >= short else 0
        self._counting = threading.Lock()  # several lanes add to the figures
        self.held = 0
        self.displaced = 0

    def submit(self, changes: list[RowChange]) -> None:
        """Take `changes`; applies when there are too many for the short way. Raises consumer.errors."""
        if self._lanes is not None:
            self._lanes.submit(self._plan, changes)
            return
        self._pending += changes
        if len(self._pending) > self._short:
            self._open()

    def drain(self, mark: Mark) -> None:
        """Apply everything submitted; afterwards every lane stands at `mark` (or higher, if it did before)."""
        if self._lanes is None and self._pending and not self._short_way(mark):
            self._open()
        idle = range(len(self._progress.rows)) if self._lanes is None else self._lanes.drain(mark)
        lag = [lane for lane in idle if self._progress.rows[lane].offset < mark[0]]
        if lag:
            self._progress.write(lag, mark)

    def _short_way(self, mark: Mark) -> bool:
        """Apply what is pending in one transaction; False: the lanes must do it."""
        if not self._short or not self._progress.level:
            return False
        nets = self._stretches()
        lanes = range(len(self._progress.rows))

        def body(tx: Transaction) -> None:
            for net in nets:
                tx.apply(net)

        try:
            self._progress.move(lanes, mark, body)
        except (TransientError, RefusedError):
            return False
        self._pending = []
        return True

    def _stretches(self) -> list[NetChange]:
        """Reduce what is pending, snapshot rows and live changes apart: a catch-up displaces rows without a record,
        and what a net change may do holds for all of it."""
        stretches = groupby(self._pending, key=attrgetter("snapshot"))
        return [net_change(self._target, list(stretch)) for _, stretch in stretches]

    def _open(self) -> None:
        locks = LockTable(self._layout.lanes)
        dispatcher = Dispatcher(self._layout, locks, self._progress.rows)
        self._plan = dispatcher.plan(self._target, self._wanted)
        self._lanes = LaneThreads(
            dispatcher, locks, self._apply, limits=self._limits, held=self._held, replace=self._replace
        ).__enter__()
        pending, self._pending = self._pending, []
        self._lanes.submit(self._plan, pending)

    def _apply(self, lane: int, batch: Batch) -> None:
        displaced = 0

        def body(tx: Transaction) -> None:
            nonlocal displaced
            displaced = sum(tx.apply(net, displacing=batch.displacing) for net in batch.nets)
            if batch.held:
                tx.hold(batch.held)

        self._progress.move([lane], batch.mark, body)
        with self._counting:
            self.held += len(batch.held)
            self.displaced += displaced
        if displaced:
            self._alarm(batch, displaced)

    def _alarm(self, batch: Batch, rows: int) -> None:
        """Say at once that the target had drifted, a line a transaction: a worker that dies later has said it."""
        unit, first = self._progress.unit, batch.events[0] if batch.events else None
        log.warning(
            "rows displaced: the target had drifted",
            pipeline=unit.pipeline, topic=unit.topic, table=f"{self._target.schema}.{self._target.name}", rows=rows,
            first_event=f"{first[0]}.{first[1]}" if first else None,
            do="SELECT * FROM rowlock_displaced shows them whole: find out who else writes to the table, then run "
            "rowlock verify (docs/how-to/run-it.md)",
        )  # fmt: skip

    def close(self, error: BaseException | None = None) -> None:
        """End the lanes' threads (each after the transaction it is in). With `error`, theirs are not raised again."""
        lanes, self._lanes = self._lanes, None
        if lanes is None:
            return
        if error is None:
            lanes.__exit__(None, None, None)
            return
        with suppress(ConsumerError):
            lanes.__exit__(type(error), error, error.__traceback__)
