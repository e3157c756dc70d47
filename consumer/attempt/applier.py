"""Applies a topic's accepted changes to the target, with the progress in the same transactions.

There are two ways with the same result. With *lanes* (consumer.attempt.lane_group) every lane has its
own connection and transactions. With *one transaction*, many events become one net change in a transaction
that guards and moves the progress rows of all lanes: up to a few hundred events, for which it is cheaper
than waking the lanes, and up to a lane's batch if they are *contended*. Then lanes would wait for each
other's commits, a transaction for every few events.

One transaction equals the lanes: tickets order the commits of different lanes, and here there is one
commit; the net change over all lanes' events in event order is the batch of a single lane; all rows move
from one offset to one offset, so no reader of the progress sees a difference. It requires lanes at one
offset (otherwise an event is new for one lane and applied in another). Changes of quarantined keys queue as
in a lane: a row that never fits does not take the faster way from its table. If the transaction fails with
a transient error or is refused, the lanes apply the changes instead, because they can retry, halve and
quarantine: the rolled-back transaction has changed nothing. Contended changes that are refused are halved
in event order first, so that few of them go through the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from time import monotonic, time

import structlog

from consumer.attempt.durations import DurationCounter
from consumer.attempt.effects import Machine
from consumer.attempt.lane_group import LaneGroup, LockWaits, Signals
from consumer.attempt.operations import (
    CloseQuarantine,
    DropQuarantined,
    Operation,
    QuarantineEvents,
    WriteChanges,
)
from consumer.attempt.reports import LaneFigures
from consumer.attempt.transactions import AttemptProgress
from consumer.errors import RefusedError, ServerSilentError, TransientError
from consumer.ordering.dispatch import Dispatcher, TableKeys
from consumer.ordering.lanes.batches import (
    LaneBatch,
    QuarantineChanges,
    QuarantinedKeys,
    build_mark,
    list_entries_of,
    split_entries_by_lane,
)
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import (
    ApplyUnit,
    ChangeId,
    QuarantineEntry,
    ReducedChanges,
    RowChange,
    TargetTable,
)
from consumer.ordering.netchange import make_reducer, refuse_losses
from consumer.ordering.progress import LaneMark
from consumer.ordering.reasons import is_queued, is_waiting
from consumer.ordering.tickets import TicketTable
from schemas.problems import Problem
from schemas.table.model import Table

log = structlog.get_logger(__name__)

LOGGED_KEYS = 5
"""Number of keys in one log line."""
SignalsFor = Callable[[int], Signals]
"""A function from the number of lanes to the mutex and wake-ups that they share."""


class Applier:
    """Applies the changes of one table in one layout.

    Call `submit` in offset order, and `drain` at barriers and ends.
    """

    def __init__(
        self,
        unit: ApplyUnit,
        progress: AttemptProgress,
        layout: Layout,
        target: TargetTable,
        *,
        expected: Table | None,
        held: Sequence[QuarantineEntry],
        limits: LaneLimits,
        replace: bool,
        unfit: Problem | None,
        small_batch: int,
        signals: SignalsFor,
    ) -> None:
        """`expected`: the source's table in target terms. `held`: the unit's quarantine.

        `replace`: whether the pipeline has `conflicts: replace`. `unfit`: see Lane.
        """
        self._unit = unit
        self._progress = progress
        self._layout = layout
        self._target = target
        self._expected = expected
        self._held = held
        self._limits = limits
        self._replace, self._unfit = replace, unfit
        self._signals_for = signals
        self._pending: list[RowChange] = []
        self._pending_bytes = 0
        self._is_contended = False
        self._lanes: LaneGroup | None = None
        self._submitted = 0
        may_be_one = progress.level and self._limits.max_gather >= small_batch
        self._small_batch = small_batch if may_be_one else 0
        self._lock_waits = LockWaits()
        self._upserted = self._deleted = 0
        self._transactions, self._visible = DurationCounter(), DurationCounter()
        self.held = 0
        self.displaced = 0
        self.quarantine_growth = 0
        """Entries added to the quarantine, less those that have left it."""
        self.resolved = 0
        """Entries of earlier batches that were closed."""
        self.untried: dict[tuple[str, str], QuarantineEntry] = {}
        """(table, key) → the newest entry that was added and is to be tried: the target was not asked, or
        another row has one of its unique values."""

    def submit(self, changes: list[RowChange]) -> Machine[None]:
        """Take `changes`, and apply them if they are too many for one transaction. Raises ConsumerError."""
        if self._lanes is not None:
            yield from self._submit_to_lanes(self._lanes, changes)
            return
        if self._is_contended:
            size = sum(len(change.wire) for change in changes)
            if self._pending and self._is_too_much(len(changes), size):
                yield from self._apply_contended(build_mark(self._pending[-1]))
            self._pending_bytes += size
        self._pending += changes
        if len(self._pending) > self._small_batch and not self._is_contended:
            yield from self._open_lanes()

    def _is_too_much(self, count: int, size: int) -> bool:
        """Return whether the pending changes and more of them are too many for one transaction."""
        limits = self._limits
        return len(self._pending) + count > limits.max_gather or self._pending_bytes + size > limits.max_bytes

    def _submit_to_lanes(self, lanes: LaneGroup, changes: list[RowChange]) -> Machine[None]:
        yield from lanes.submit_changes(self._plan, changes)
        self._submitted += len(changes)
        if self._is_waiting_too_much():
            yield from self._leave_lanes(lanes, build_mark(changes[-1]))
            self._is_contended = True

    def drain(self, mark: LaneMark) -> Machine[None]:
        """Apply everything submitted; afterwards every lane is at `mark`, or still at a later offset."""
        if self._is_contended and self._pending:
            yield from self._apply_contended(mark)
        if self._lanes is None and self._pending and (yield from self._try_one_transaction(mark)) is not None:
            yield from self._open_lanes(measure=False)
        yield from self._drain_lanes(self._lanes, mark)

    def _drain_lanes(self, lanes: LaneGroup | None, mark: LaneMark) -> Machine[None]:
        idle = None if lanes is None else (yield from lanes.drain(mark))
        yield from self._progress.move_idle(self._progress.list_lanes_below(mark, idle), mark)

    def _leave_lanes(self, lanes: LaneGroup, mark: LaneMark) -> Machine[None]:
        """Let the lanes apply everything up to `mark`, and end them: later changes go another way."""
        yield from self._drain_lanes(lanes, mark)
        yield from self.close()

    def _apply_contended(self, mark: LaneMark) -> Machine[None]:
        """Apply the pending changes in one transaction. If they are refused, apply their halves, and the
        smallest ones by lanes.
        """
        parts = [self._pending]
        while parts:
            part = self._pending = parts.pop(0)
            upto = build_mark(part[-1]) if parts else mark
            error = yield from self._try_one_transaction(upto)
            if error is None:
                continue
            if isinstance(error, RefusedError) and len(part) > max(self._small_batch, 1):
                middle = len(part) // 2
                parts[0:0] = [part[:middle], part[middle:]]
                continue
            yield from self._open_lanes(measure=False)
            if self._lanes is not None:
                yield from self._leave_lanes(self._lanes, upto)
        self._pending_bytes, self._is_contended = 0, False  # later changes are measured again

    def _try_one_transaction(self, mark: LaneMark) -> Machine[RefusedError | TransientError | None]:
        """Apply the pending changes in one transaction; return why that is not possible; None: done."""
        for change in self._pending:
            if change.refused is not None:
                return RefusedError(change.refused)
        if not self._progress.level:
            return TransientError("the lanes are at different offsets")
        batch, began = self._build_whole_batch(mark), monotonic()
        try:
            yield from self._write_batch(range(len(self._progress.rows)), batch)
        except ServerSilentError:
            raise
        except (TransientError, RefusedError) as error:
            return error
        self._pending = []
        self._record_batch(batch, monotonic() - began)
        return None

    def _build_whole_batch(self, mark: LaneMark) -> LaneBatch:
        """Return the pending changes as one batch."""
        first, last = self._pending[0].id, self._pending[-1].id
        since = self._pending[0].ts_ms
        quarantine = QuarantineChanges()
        if self._held:
            held = QuarantinedKeys(list_entries_of(self._held, self._target))
            nets = held.reduce_free_changes(self._pending, TableKeys(self._target), quarantine)
        else:
            nets = [make_reducer(self._target).reduce(self._pending)]
        return LaneBatch(nets, mark, quarantine, None, (first, last), len(self._pending), since)

    def _record_batch(self, batch: LaneBatch, took_s: float, displaced: int = 0) -> None:
        """Count what a committed batch has done, and keep the quarantine as it leaves it. `took_s`: the time
        of its transaction.
        """
        self._transactions.add(took_s)
        if batch.since_ms:
            self._visible.add(time() - batch.since_ms / 1000, batch.count)
        quarantine = batch.quarantine
        remaining = quarantine.list_remaining()
        if quarantine.added or quarantine.closed:
            removed = {*quarantine.closed, *quarantine.superseded}
            entries = (*self._held, *quarantine.added)
            self._held = [entry for entry in entries if (entry.offset, entry.part) not in removed]
        deleted = sum(net.deleted for net in batch.nets)
        self._deleted += deleted
        self._upserted += sum(net.size for net in batch.nets) - deleted
        added, closings = len(quarantine.added), len(quarantine.closed)
        self.quarantine_growth += added - closings - len(quarantine.superseded)
        self.resolved += closings - (added - len(remaining))
        self.held += len(remaining)
        self.untried |= {
            (entry.table, entry.key): entry for entry in remaining if is_queued(entry) or is_waiting(entry)
        }
        self.displaced += displaced

    @property
    def figures(self) -> LaneFigures:
        """Figures of the lanes; complete after they have ended."""
        waits = self._lock_waits
        return LaneFigures(
            self._upserted,
            self._deleted,
            waits.count,
            round(waits.seconds * 1000),
            waits.longest_chain,
            resolved=self.resolved,
            transactions=self._transactions.durations,
            visible=self._visible.durations,
        )

    def _open_lanes(self, *, measure: bool = True) -> Machine[None]:
        """Give the pending changes to the lanes. `measure`: they stay pending if they are contended."""
        tickets = TicketTable(self._layout.lanes)
        self._dispatcher = dispatcher = Dispatcher(self._layout, tickets, self._progress.rows)
        self._plan = dispatcher.plan_table(self._target, self._expected)
        dispatcher.dispatch(self._plan, self._pending)
        self._submitted = len(self._pending)
        if measure and self._is_waiting_too_much():
            self._is_contended = True
            self._pending_bytes = sum(len(change.wire) for change in self._pending)
            return
        self._pending = []
        self._signals = self._signals_for(self._layout.lanes)
        self._lanes = LaneGroup(
            dispatcher, tickets, self._commit_batch,
            limits=self._limits, held=split_entries_by_lane(self._held, self._plan, self._layout.lanes),
            replace=self._replace, unfit=self._unfit, signals=self._signals,
        )  # fmt: skip
        yield from self._lanes.start()
        yield from self._lanes.submit_changes(self._plan, ())  # what is dispatched already

    def _is_waiting_too_much(self) -> bool:
        """Return whether so many changes wait for another lane's commit that one transaction is better."""
        waiting, limits = self._dispatcher.waiting, self._limits
        return self._small_batch > 0 and waiting > limits.max_waits * self._submitted

    def _commit_batch(self, lane: int, batch: LaneBatch) -> Machine[None]:
        """Apply a lane's batch in one transaction, and log the displaced and quarantined rows."""
        began = monotonic()
        displaced = yield from self._write_batch([lane], batch)
        took_s = monotonic() - began
        with self._signals.mutex:  # several lanes add to the figures
            self._record_batch(batch, took_s, displaced)
        if displaced:
            log_displaced_rows(self._unit, self._target, displaced, batch.events[0], batch.nets)
        for entry in batch.quarantine.list_remaining():
            if not is_queued(entry):  # events queued after it are logged with it
                log_quarantined_event(self._unit, entry)

    def _write_batch(self, lanes: Sequence[int], batch: LaneBatch) -> Machine[int]:
        """Apply a batch in one transaction that moves `lanes`; return the number of displaced rows."""
        operations: list[Operation] = [_build_write(net, batch.displacing) for net in batch.nets]
        quarantine = batch.quarantine
        if quarantine.superseded:
            operations.append(DropQuarantined(quarantine.superseded))
        if quarantine.added:
            operations.append(QuarantineEvents(quarantine.added))
        if quarantine.closed:
            operations.append(
                CloseQuarantine(
                    quarantine.closed,
                    "a later snapshot row or delete of the same key made this entry obsolete",
                )
            )
        return (yield from self._progress.move_lanes(lanes, batch.mark, operations))

    def add_displaced(self, rows: int) -> None:
        """Count rows that were displaced beside the lanes."""
        self.displaced += rows

    def close(self, error: BaseException | None = None) -> Machine[None]:
        """End the lanes, each after its current transaction.

        With `error`, their own errors are not raised.
        """
        lanes, self._lanes = self._lanes, None
        if lanes is not None:
            try:
                yield from lanes.close(error)
            finally:
                self._lock_waits.add_waits(lanes.lock_waits)


def _build_write(net: ReducedChanges, displacing: str | None = None) -> WriteChanges:
    """Return the operation that writes `net`.

    Raises RefusedError if the server would change a value silently.
    """
    refuse_losses(net)
    return WriteChanges(net, displacing)


def log_quarantined_event(unit: ApplyUnit, entry: QuarantineEntry) -> None:
    """Log a refused event with its remedy."""
    log.warning(
        "row quarantined",
        pipeline=unit.pipeline, topic=unit.topic, table=entry.table, key=entry.key,
        first_event=f"{entry.offset}.{entry.part}", reason=entry.error[:300],
        remedy="correct the row at its source, and its next change recovers the key; or correct the target, "
        "then run rowlock quarantine retry; or give the row up: rowlock quarantine skip",
    )  # fmt: skip


def log_displaced_rows(
    unit: ApplyUnit, target: TargetTable, rows: int, first: ChangeId, nets: Iterable[ReducedChanges]
) -> None:
    """Log rows that the changes `nets` displaced, right after the transaction, so that they are logged even
    if the worker dies later. `first`: the first event.
    """
    keys = (tuple(row[at] for at in net.table.key_at) for net in nets for row in net.rows)
    log.warning(
        "rows displaced",
        pipeline=unit.pipeline, topic=unit.topic, table=f"{target.schema}.{target.name}", rows=rows,
        first_event=f"{first[0]}.{first[1]}", event_keys=list(islice(keys, LOGGED_KEYS)),
        remedy="SELECT * FROM rowlock_displaced shows them whole: find out who else writes to the table, "
        "then run rowlock verify (see 'When rows were displaced' in `rowlock docs quarantine`)",
    )  # fmt: skip
