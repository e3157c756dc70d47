"""Tries the untried keys of a unit's quarantine, between two batches of its lanes.

The attempt calls this when all lanes have drained and are at one offset: then no lane has a change of a
key that is newer than the key's newest entry, and the final images belong to one state of the source. So
lanes and their number do not matter, and a refused trial never divides a batch of a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog

from consumer.attempt.applier import LOGGED_KEYS, log_displaced_rows, log_quarantined_event
from consumer.attempt.copies.quarantined_keys import format_entry_table
from consumer.attempt.effects import Machine, ReadClock, ReadQuarantine, ask_driver
from consumer.attempt.operations import (
    CloseQuarantine,
    DropQuarantined,
    Operation,
    QuarantineEvents,
    WriteChanges,
    build_retry_operations,
)
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.errors import RefusedError, TransientError, UniqueViolationError
from consumer.ordering.fold import recompute_folded_keys
from consumer.ordering.lanes.batches import encode_displacing, list_entries_of
from consumer.ordering.model import (
    ApplyUnit,
    ChangeId,
    NetChange,
    QuarantineEntry,
    build_aged_entry,
    parse_entry_key,
)
from consumer.ordering.netchange import refuse_losses, sort_keys
from consumer.ordering.reasons import is_queued, is_waiting
from consumer.ordering.recovery import (
    FAILED_TRIAL_PAUSE_S,
    MAX_TRIAL_KEYS,
    TRIAL_LOCK_WAIT_S,
    HeldKey,
    RecoveryPlan,
    Trial,
    choose_pause,
    list_held_keys,
    list_keys_tried_in_vain,
    list_untried_keys,
    record_reason,
    select_due_keys,
)
from consumer.ordering.value_cycles import find_waiting_cycle
from consumer.tables.definition import ActiveDefinition
from consumer.tables.held_events import build_final_change, decode_quarantined_event
from consumer.tables.router import make_key_function
from schemas.table.model import Row

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryOutcome:
    """A result of the trials at one drain: what they have left of a unit's quarantine."""

    remaining: Sequence[QuarantineEntry] | None = None
    """The remaining entries; None: no key was tried."""
    pause_s: float = 0.0
    """Seconds after which the keys that stay untried are tried without further records; 0: none does."""
    resolved: int = 0
    """Entries of the keys that have recovered."""


def can_recover(active: ActiveDefinition) -> bool:
    """Return whether quarantined keys are tried again by themselves.

    Not in a table that is written as events, whose readers need every change, nor while the target table
    itself may be why a row is refused.
    """
    return active.unfit is None and active.target.topic is None


def recover_keys(
    unit: ApplyUnit,
    active: ActiveDefinition,
    progress: AttemptProgress,
    *,
    interval_s: float,
    replace: bool,
    add_displaced: Callable[[int], None],
) -> Machine[RecoveryOutcome]:
    """Try the unit's untried keys that are due (`select_due_keys`).

    While a statement's removed rows are a debt, keys without a later change wait for the key sweep, which may
    have passed them: their rows would stay for ever.

    All lanes have drained and are at one offset. `replace`: `conflicts: replace`. `add_displaced` counts rows
    that made room. A key whose trial fails for now stays untried. Raises AttemptLostError, and
    TransientError if the quarantine cannot be read or written; what is untried then stays so.
    """
    held = yield from retry_transient(lambda: ask_driver(ReadQuarantine()))
    untried = find_untried_keys(active, recompute_folded_keys(held, active.target), progress)
    due = select_due_keys(untried, interval_s)
    if not due:
        return RecoveryOutcome(pause_s=choose_pause(untried))
    plan = RecoveryPlan(due, replace=replace)
    trials = _Trials(unit, active, progress, plan, {(entry.offset, entry.part): entry for entry in held})
    began = yield from ask_driver(ReadClock())
    while (trial := plan.choose_trial()) is not None:
        now = yield from ask_driver(ReadClock())
        if plan.may_end(trial, now - began):
            log.info("quarantined rows left for later", pipeline=unit.pipeline, topic=unit.topic)
            plan.end()
            break
        add_displaced((yield from trials.try_keys(trial)))
        yield from trials.record_refusals()
    yield from trials.record_refusals()
    left = find_untried_keys(active, trials.remaining.values(), progress)
    pause = FAILED_TRIAL_PAUSE_S if left and plan.failures else choose_pause(left)
    resolved = sum(len(key.entries) for key in plan.recovered)
    return RecoveryOutcome(list(trials.remaining.values()), pause, resolved)


@dataclass(frozen=True, slots=True)
class _Trials:
    """The trials of a unit's untried keys at one drain."""

    unit: ApplyUnit
    active: ActiveDefinition
    progress: AttemptProgress
    plan: RecoveryPlan
    remaining: dict[ChangeId, QuarantineEntry]
    """The unit's entries as the last transaction has left them."""

    def try_keys(self, trial: Trial) -> Machine[int]:
        """Try the final images of a trial once, and report the outcome to the plan. Return how many rows of
        other keys were displaced.

        Keys that were tried in vain at this offset become untried in the same transaction: they may wait for
        a value that the trial gives up.
        """
        active, level = self.active, self.progress.lowest.offset
        again = list_keys_tried_in_vain(self.remaining.values(), format_entry_table(active), level)
        try:
            net = _build_change(active, trial)
            operations = [*_build_operations(net, trial), *build_retry_operations(again)]
            displaced = yield from self.progress.commit_once(
                operations, tries=1, lock_wait_s=TRIAL_LOCK_WAIT_S
            )
        except RefusedError as error:
            self.plan.record_refusal(error, self._find_cycle(trial, error))
        except TransientError as error:
            if (key := self.plan.record_failure()) is not None:
                _log_failure(self.unit, key, error)
        else:
            self.plan.record_recovery()
            self._replace_entries([place for key in trial.keys for place in key.ids], again)
            _log_recovery(self.unit, trial)
            if displaced:
                log_displaced_rows(self.unit, active.target, displaced, trial.keys[0].place, [net])
            return displaced
        return 0

    def _find_cycle(self, trial: Trial, error: RefusedError) -> list[HeldKey]:
        """Return the keys that wait for each other's unique values, if the trial's single key is one of them.

        Not if the table has columns that rowlock does not write: rows that are deleted and inserted lose
        their values. Nor among too many keys, because all their events are decoded.
        """
        active, [key, *others] = self.active, trial.keys
        if others or trial.displacing or active.target.more or not isinstance(error, UniqueViolationError):
            return []
        keys = list_recoverable_keys(active, self.remaining.values())
        if len(keys) > MAX_TRIAL_KEYS or key.place not in {each.place for each in keys}:
            return []
        return find_waiting_cycle(key, keys, active.target, partial(read_rows, active))

    def record_refusals(self) -> Machine[None]:
        """Write the reasons of the keys that the plan has found to be refused into the quarantine."""
        refused, level = self.plan.take_refusals(), self.progress.lowest.offset
        for at in range(0, len(refused), MAX_TRIAL_KEYS):
            dropped: list[ChangeId] = []
            added: list[QuarantineEntry] = []
            for key, error in refused[at : at + MAX_TRIAL_KEYS]:
                ids, entries = record_reason(key, error, level)
                dropped += ids
                added += entries
                if all(map(is_queued, key.entries)):  # otherwise a refusal of the key was logged before
                    log_quarantined_event(self.unit, entries[-1])
            yield from self.progress.commit_once([DropQuarantined(dropped), QuarantineEvents(added)])
            self._replace_entries(dropped, added)

    def _replace_entries(self, dropped: Iterable[ChangeId], added: Iterable[QuarantineEntry]) -> None:
        """Note what a transaction has removed, and what it has written just now."""
        for place in dropped:
            self.remaining.pop(place, None)
        self.remaining.update({(entry.offset, entry.part): build_aged_entry(entry, 0) for entry in added})


def find_untried_keys(
    active: ActiveDefinition, held: Iterable[QuarantineEntry], progress: AttemptProgress
) -> list[HeldKey]:
    """Return the untried keys of the unit's present table and key."""
    debt = active.stored.removed
    return list_untried_keys(
        list_entries_of(held, active.target),
        progress.lowest.offset,
        None if debt is None else debt.offset,
    )


def log_foreign_entries(unit: ApplyUnit, active: ActiveDefinition, held: Iterable[QuarantineEntry]) -> None:
    """Log the entries that only queue and are never tried, because they are of another table or key."""
    own = {(entry.offset, entry.part) for entry in list_entries_of(held, active.target)}
    foreign = [entry for entry in held if (entry.offset, entry.part) not in own and is_queued(entry)]
    if foreign:
        log.warning(
            "quarantined rows of another table or key left alone",
            pipeline=unit.pipeline, topic=unit.topic, table=format_entry_table(active), rows=len(foreign),
            tables=sorted({entry.table for entry in foreign})[:LOGGED_KEYS],
            keys=[entry.key for entry in foreign[:LOGGED_KEYS]],
            remedy="they were quarantined before the route or the key was changed: look at them with rowlock "
            "quarantine list, and drop what is no longer needed with rowlock quarantine skip",
        )  # fmt: skip


def _build_operations(net: NetChange, trial: Trial) -> list[Operation]:
    """Return the transaction that writes `net`, the final images of a trial, and closes their entries.

    Raises RefusedError if the server would change a value silently.
    """
    refuse_losses(net)
    displacing = encode_displacing(0, trial.keys[0].place, trial.keys[-1].place) if trial.displacing else None
    return [WriteChanges(net, displacing), *map(_close_key, trial.keys)]


def _close_key(key: HeldKey) -> Operation:
    return CloseQuarantine(key.ids, f"the target accepted the key's row of offset {key.newest.offset}")


def list_recoverable_keys(active: ActiveDefinition, held: Iterable[QuarantineEntry]) -> list[HeldKey]:
    """Return the keys whose final rows the target may accept before their next events."""
    debt = active.stored.removed
    return [
        key
        for key in list_held_keys(list_entries_of(held, active.target))
        if (is_queued(key.newest) or is_waiting(key.newest))
        and (debt is None or key.newest.offset > debt.offset)
    ]


def read_rows(active: ActiveDefinition, key: HeldKey) -> tuple[Row | None, Row | None]:
    """Return the row of a key before its first entry and its final row; None: it has none, or it can no
    longer be read.
    """
    try:
        before = decode_quarantined_event(active, key.first.event.encode()).before
        final = next(build_final_change(active, _list_deciding_entries(key)).rows, None)
    except RefusedError:
        return None, None
    row = None if before is None else active.row(before)
    is_its_own = row is not None and make_key_function(active.target)(row) == parse_entry_key(key.first.key)
    return row if is_its_own else None, final


def _build_change(active: ActiveDefinition, trial: Trial) -> NetChange:
    """Return the change that writes the final images of a trial, each list sorted by key.

    Raises RefusedError if an image can no longer be read.
    """
    nets = [build_final_change(active, _list_deciding_entries(key)) for key in trial.keys]
    deletes = sort_keys(key for net in nets for key in net.deletes)
    replaces = [row for net in nets for row in net.replaces]
    snapshot = [row for net in nets for row in net.snapshot]
    if trial.joint:  # only rows that are deleted and inserted pass unique values to each other
        replaces, snapshot = [*replaces, *snapshot], []
    return NetChange(
        active.target, deletes, replaces=_sort_rows(active, replaces), snapshot=_sort_rows(active, snapshot)
    )


def _list_deciding_entries(key: HeldKey) -> list[QuarantineEntry]:
    """Return the key's first entry, which shows whether the row is a new one, and its newest, with equal
    bytes in their keys (-0.0 and 0.0 are one key).
    """
    return [msgspec.structs.replace(key.first, key=key.newest.key), key.newest]


def _sort_rows(active: ActiveDefinition, rows: Iterable[Row]) -> list[Row]:
    by_key = {tuple(row[at] for at in active.target.key_at): row for row in rows}
    return [by_key[key] for key in sort_keys(by_key)]


def _log_recovery(unit: ApplyUnit, trial: Trial) -> None:
    log.info(
        "quarantined rows recovered",
        pipeline=unit.pipeline, topic=unit.topic, table=trial.keys[0].newest.table, rows=len(trial.keys),
        keys=[key.newest.key for key in trial.keys[:LOGGED_KEYS]],
    )  # fmt: skip


def _log_failure(unit: ApplyUnit, key: HeldKey, error: TransientError) -> None:
    log.warning(
        "quarantined row not tried",
        pipeline=unit.pipeline, topic=unit.topic, table=key.newest.table, key=key.newest.key,
        reason=str(error)[:300],
        remedy="none: it is tried again after the next records of the topic, or within seconds",
    )  # fmt: skip
