"""Tries the untried keys of a unit's quarantine, between two batches of its lanes.

The attempt calls this when all lanes have drained and are at one offset: then no lane has a change of a
key that is newer than the key's newest entry, and the final images belong to one state of the source. So
lanes and their number do not matter, and a refused trial never divides a batch of a lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import structlog

from consumer.attempt.applier import LOGGED_KEYS
from consumer.attempt.effects import Machine, ReadQuarantine, ask_driver
from consumer.attempt.operations import (
    CloseQuarantine,
    DropQuarantined,
    Operation,
    QuarantineEvents,
    WriteChanges,
)
from consumer.attempt.transactions import AttemptProgress, retry_transient
from consumer.errors import RefusedError
from consumer.ordering.fold import recompute_folded_keys
from consumer.ordering.lanes.batches import encode_displacing
from consumer.ordering.model import ApplyUnit, ChangeId, NetChange, QuarantineEntry
from consumer.ordering.netchange import refuse_losses, sort_keys
from consumer.ordering.recovery import HeldKey, RecoveryPlan, Trial, list_untried_keys, record_reason
from consumer.tables.definition import ActiveDefinition
from consumer.tables.held_events import build_final_change
from schemas.table.model import Row

log = structlog.get_logger(__name__)


def can_recover(active: ActiveDefinition) -> bool:
    """Return whether quarantined keys are tried again by themselves.

    Not in a table that is written as events, whose readers need every change, nor while the target table
    itself may be why a row is refused.
    """
    return active.unfit is None and active.target.topic is None


def recover_keys(
    unit: ApplyUnit, active: ActiveDefinition, progress: AttemptProgress, *, replace: bool
) -> Machine[Sequence[QuarantineEntry] | None]:
    """Try the unit's untried keys; return the remaining entries, None if none was untried.

    While a statement's removed rows are a debt, keys without a later change wait for the key sweep, which may
    have passed them: their rows would stay for ever.

    All lanes have drained and are at one offset. `replace`: `conflicts: replace`. Raises TransientError
    and AttemptLostError; what is untried then stays so.
    """
    held = yield from retry_transient(lambda: ask_driver(ReadQuarantine()))
    debt = active.stored.removed
    entries = recompute_folded_keys(held, active.target)
    untried = list_untried_keys(entries, None if debt is None else debt.offset)
    if not untried:
        return None
    plan = RecoveryPlan(untried, replace=replace)
    while (trial := plan.choose_trial()) is not None:
        try:
            yield from progress.commit_once(_build_operations(active, trial))
        except RefusedError as error:
            plan.record_refusal(error)
        else:
            plan.record_recovery()
            _log_recovery(unit, trial)
    return (yield from _record_outcome(progress, plan, held))


def _record_outcome(
    progress: AttemptProgress, plan: RecoveryPlan, held: Iterable[QuarantineEntry]
) -> Machine[Sequence[QuarantineEntry]]:
    """Write the reasons of the refused keys, and return all entries that remain."""
    dropped: list[ChangeId] = []
    entries: list[QuarantineEntry] = []
    for key, error in plan.refused:
        ids, newest = record_reason(key, error)
        dropped += ids
        entries.append(newest)
    if dropped:
        yield from progress.commit_once([DropQuarantined(dropped), QuarantineEvents(entries)])
    left = {*dropped, *(place for key in plan.recovered for place in key.ids)}
    return [entry for entry in held if (entry.offset, entry.part) not in left] + entries


def _build_operations(active: ActiveDefinition, trial: Trial) -> list[Operation]:
    """Return the transaction that writes the final images of a trial and closes their entries.

    Raises RefusedError if an image can no longer be read, or if the server would change a value silently.
    """
    net = _build_change(active, trial.keys)
    refuse_losses(net)
    displacing = encode_displacing(0, trial.keys[0].place, trial.keys[-1].place) if trial.displacing else None
    return [WriteChanges(net, displacing), *map(_close_key, trial.keys)]


def _close_key(key: HeldKey) -> Operation:
    return CloseQuarantine(key.ids, f"the target accepted the key's row of offset {key.newest.offset}")


def _build_change(active: ActiveDefinition, keys: Iterable[HeldKey]) -> NetChange:
    """Return the change that writes the final images of `keys`, each list sorted by key."""
    nets = [build_final_change(active, _list_deciding_entries(key)) for key in keys]
    return NetChange(
        active.target,
        deletes=sort_keys(key for net in nets for key in net.deletes),
        replaces=_sort_rows(active, (row for net in nets for row in net.replaces)),
        snapshot=_sort_rows(active, (row for net in nets for row in net.snapshot)),
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
