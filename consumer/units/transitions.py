"""The life of one unit in this process: what an event changes in each of the unit's states, and the effects.

```
state         | event                       | condition             | after         | effects
Preparing     | PipelineTick                | its operation is due  | Preparing     | PrepareTarget
Preparing     | StartUnit                   |                       | Preparing     |
Preparing     | TargetPrepared              | no StartUnit has come | AwaitingStart | ReportEvent
Preparing     | TargetPrepared              | StartUnit has come    | TakingOver    | ReportEvent
Preparing     | OperationFailed             | a retry may succeed   | Preparing     |
Preparing     | OperationFailed             | otherwise             | (ended)       | ReportEvent
Preparing     | RemoveUnit, SecretsReplaced |                       | (ended)       | ReportEvent
AwaitingStart | StartUnit                   |                       | TakingOver    |
AwaitingStart | RemoveUnit, SecretsReplaced |                       | (ended)       | ReportEvent
TakingOver    | PipelineTick                | its operation is due  | TakingOver    | TakeOver
TakingOver    | UnitTakenOver               |                       | Applying      | PlaceUnit
TakingOver    | OperationFailed             | a retry may succeed   | TakingOver    |
TakingOver    | OperationFailed             | a cause is to resolve | Stopped       | LogWaiting
TakingOver    | OperationFailed             | otherwise             | Fencing       | FenceUnit
TakingOver    | Report                      | a row lock is awaited | TakingOver    |
TakingOver    | RemoveUnit, SecretsReplaced | its operation runs    | Aborting      | AbortOperation
TakingOver    | RemoveUnit, SecretsReplaced | otherwise             | Fencing       | FenceUnit
Applying      | Report                      | a row lock is awaited | Applying      |
Applying      | Report                      | events are applied    | Applying      |
Applying      | Report                      | a cause is to resolve | Stopped       | LogWaiting WithdrawUnit
Applying      | Report                      | the attempt failed    | TakingOver    | WithdrawUnit
Applying      | SlotLost                    |                       | TakingOver    | WithdrawUnit
Applying      | TableChecked                | it does not fit       | Stopped       | LogWaiting WithdrawUnit
Applying      | RemoveUnit                  |                       | Fencing       | WithdrawUnit FenceUnit
Stopped       | PipelineTick                | its operation is due  | Stopped       | ProbeStopped
Stopped       | StoppedProbed               | nothing has changed   | Stopped       |
Stopped       | StoppedProbed               | a retry is due        | TakingOver    |
Stopped       | RemoveUnit, SecretsReplaced |                       | Fencing       | FenceUnit
Aborting      | UnitTakenOver               |                       | Fencing       | FenceUnit
Aborting      | OperationFailed             | a cause is to resolve | Fencing       | LogWaiting FenceUnit
Aborting      | OperationFailed             | otherwise             | Fencing       | FenceUnit
Fencing       | UnitFenced                  |                       | (ended)       | ReportEvent
```

Any other event changes nothing. A cause that was logged last is not logged again (LogWaiting). Tests compare
the table with what happens; docs/explanation/apply.md shows it. Invariants:

- A result of an earlier assignment changes nothing, nor does a report of an earlier fencing token.
- At most one operation works on a unit. Only a probe or a check may still run, which raise no token.
- A unit is withdrawn from the slots before an operation works on it, and not placed once it is to end.
- Every token is higher than all that the process knows. A unit that was taken over ends after it is fenced.
- A unit ends once, and reports that once.
"""

from __future__ import annotations

from msgspec.structs import replace

from consumer.attempt.reports import CopyNeed, Report
from consumer.units.messages import (
    AbortOperation,
    FenceUnit,
    LogWaiting,
    OperationFailed,
    PipelineEffect,
    PipelineEvent,
    PipelineTick,
    PlaceUnit,
    PrepareTarget,
    ProbeStopped,
    RemoveUnit,
    ReportEvent,
    SecretsReplaced,
    SlotLost,
    StartUnit,
    StoppedProbed,
    TableChecked,
    TakeOver,
    TargetPrepared,
    UnitFenced,
    UnitTakenOver,
    WithdrawUnit,
)
from consumer.units.supervision import apply_report
from consumer.units.unit import (
    NOT_PROBED,
    Aborting,
    Applying,
    AwaitingStart,
    Fencing,
    LocalUnit,
    Preparing,
    Stopped,
    TakingOver,
    UnitStop,
)
from schemas.units import Prepared, WorkerEnded
from schemas.wire.position import Position

STOPPED_RETRY_S = 300.0
"""Seconds after which a stopped unit is retried although no change was seen."""

LocalUnitEvent = PipelineEvent | Report
Effects = list[PipelineEffect]
UnitStep = tuple[LocalUnit | None, Effects]
"""The unit afterwards (None: it has ended), and the effects, in order."""


def step_unit(unit: LocalUnit, event: LocalUnitEvent, now: float, probe_interval_s: float) -> UnitStep:
    """Apply `event`, which is of the unit's assignment if it names one, at `now` (monotonic seconds)."""
    if not _is_timely(unit, event, now):
        return unit, []
    match unit.state:
        case Preparing() as state:
            return _step_preparing(unit, state, event, now)
        case AwaitingStart():
            return _step_prepared(unit, event, now)
        case TakingOver() as state:
            return _step_takeover(unit, state, event, now)
        case Applying() as state:
            return _step_applying(unit, state, event, now)
        case Stopped() as state:
            return _step_stopped(unit, state, event, now, probe_interval_s)
        case Aborting() as state:
            return _step_aborting(unit, state, event)
        case Fencing(error=error):
            if isinstance(event, UnitFenced):
                return _end_unit(unit, error, event.offset, event.position)
            return unit, []


def _is_timely(unit: LocalUnit, event: LocalUnitEvent, now: float) -> bool:
    """Return whether the unit's operation is due, or the event is of the unit's fencing token."""
    match event:
        case PipelineTick():
            run_at = unit.state.run_at if isinstance(unit.state, Preparing | TakingOver | Stopped) else None
            return run_at is not None and now >= run_at
        case Report(state="waiting"):  # a takeover applies under a token that is not recorded here yet
            return event.epoch >= unit.epoch
        case Report() | SlotLost() | TableChecked():
            return event.epoch == unit.epoch
    return True


def _step_preparing(unit: LocalUnit, state: Preparing, event: LocalUnitEvent, now: float) -> UnitStep:
    match event:
        case PipelineTick():
            return unit.enter(replace(state, run_at=None)), [PrepareTarget(unit.ref)]
        case StartUnit():
            return unit.enter(replace(state, start_asked=True)), []
        case TargetPrepared():
            unit = replace(unit, ref=replace(unit.ref, topic_id=event.topic_id, real=event.real))
            reported = ReportEvent(unit.ref.topic, unit.ref.source, unit.ref.assignment, Prepared)
            return unit.enter(TakingOver(now) if state.start_asked else AwaitingStart()), [reported]
        case OperationFailed() if event.should_retry or event.waits:
            unit = _record_failure(unit, event).with_backoff(now)
            return unit.enter(replace(state, run_at=unit.backoff.next_at)), []
        case OperationFailed():
            return _end_unit(unit, event.error)
        case RemoveUnit() | SecretsReplaced():
            return _end_unit(unit, None)
    return unit, []


def _step_prepared(unit: LocalUnit, event: LocalUnitEvent, now: float) -> UnitStep:
    match event:
        case StartUnit():
            return unit.enter(TakingOver(now)), []
        case RemoveUnit() | SecretsReplaced():
            return _end_unit(unit, None)
    return unit, []


def _step_takeover(unit: LocalUnit, state: TakingOver, event: LocalUnitEvent, now: float) -> UnitStep:
    match event:
        case PipelineTick():
            take = TakeOver(unit.ref, unit.epoch, look=state.stop is not None)
            return unit.enter(replace(state, run_at=None)), [take]
        case UnitTakenOver():
            return _place_unit(_record_takeover(unit, event), state, event, now)
        case OperationFailed():
            return _end_failed_takeover(_record_failure(unit, event), state, event, now)
        case Report(state="waiting"):
            return unit.enter(replace(state, lock_wait=event.message)), []
        case RemoveUnit() | SecretsReplaced():
            cause = unit.stop_cause if isinstance(event, RemoveUnit) else None
            if state.run_at is not None:
                return _fence_unit(unit, cause)
            return unit.enter(Aborting(cause)), [AbortOperation(unit.ref.topic, unit.ref.assignment)]
    return unit, []


def _place_unit(unit: LocalUnit, state: TakingOver, event: UnitTakenOver, now: float) -> UnitStep:
    """Give a unit that has been taken over to the slots."""
    if state.stop is not None or not unit.checked_at:  # otherwise its table was not checked
        unit = replace(unit, checked_at=now)
    if event.offset + 1 >= event.end:  # otherwise the same error would be logged again
        unit = replace(unit, last_logged_cause=None)
    tried_with = NOT_PROBED if state.stop is None else state.stop.tried_with
    return unit.enter(Applying(tried_with=tried_with)), [PlaceUnit(unit.ref, event)]


def _end_failed_takeover(unit: LocalUnit, state: TakingOver, event: OperationFailed, now: float) -> UnitStep:
    if event.should_retry:
        unit = unit.with_backoff(now)
        return unit.enter(replace(state, run_at=unit.backoff.next_at)), []
    if event.waits:
        tried_with = NOT_PROBED if state.stop is None else state.stop.tried_with
        return _stop_unit(unit, event.error, event.copy, now, tried_with)
    return _fence_unit(unit, None, event.error)


def _step_applying(unit: LocalUnit, state: Applying, event: LocalUnitEvent, now: float) -> UnitStep:
    withdraw: Effects = [WithdrawUnit(unit.ref.topic)]
    if isinstance(event, Report) and event.state != "waiting":
        unit = _record_figures(unit, event)
    match event:
        case Report(state="waiting"):
            return unit.enter(replace(state, lock_wait=event.message)), []
        case Report(state="ok"):
            if event.applied:
                return replace(unit, state=Applying(), last_logged_cause=None), []
            return unit.enter(replace(state, lock_wait="")), []
        case Report(state="stopped"):
            # A retry that stops again without progress is repeated only after a change.
            is_same = not event.applied and event.message == unit.last_logged_cause
            tried_with = state.tried_with if is_same else NOT_PROBED
            unit, logged = _stop_unit(unit, event.message, event.copy, now, tried_with)
            return unit, logged + withdraw
        case TableChecked(why=str() as why):
            unit, logged = _stop_unit(unit, why, None, now)
            return unit, logged + withdraw
        case Report() | SlotLost():
            unit = unit.with_backoff(now)
            # a lost slot is no trouble of the unit, unless it repeats
            is_first = isinstance(event, SlotLost) and unit.backoff.failures == 1
            run_at = now if is_first else unit.backoff.next_at
            return unit.enter(TakingOver(run_at, lock_wait=state.lock_wait)), withdraw
        case RemoveUnit():
            unit, fence = _fence_unit(unit, None)
            return unit, withdraw + fence
    return unit, []


def _step_stopped(
    unit: LocalUnit, state: Stopped, event: LocalUnitEvent, now: float, probe_interval_s: float
) -> UnitStep:
    match event:
        case PipelineTick():
            probe = ProbeStopped(unit.ref, state.stop.copy, state.stop.cause)
            return unit.enter(replace(state, run_at=None)), [probe]
        case StoppedProbed():
            return _judge_probe(unit, state.stop, event, now, now + probe_interval_s), []
        case RemoveUnit():
            return _fence_unit(unit, state.stop.cause)
        case SecretsReplaced():  # with the new ones it may succeed
            return _fence_unit(unit, None)
    return unit, []


def _judge_probe(
    unit: LocalUnit, stop: UnitStop, event: StoppedProbed, now: float, next_at: float
) -> LocalUnit:
    """Retry a stopped unit when what it waits for has changed, or after `STOPPED_RETRY_S`.

    It is also retried once as soon as it can be probed again after a failed probe, and once in any case,
    because the change may have happened before the first probe.
    """
    if event.message is not None:
        unit = replace(unit, watched=replace(unit.watched, message=event.message))
    tried, is_first = stop.tried_with, stop.tried_with == NOT_PROBED
    is_due = now >= stop.retry_at or (event.begun and is_first)
    if event.seen is not None and (is_due or (not is_first and event.seen != tried)):
        ref = replace(unit.ref, topic_id=event.topic_id, real=event.real)
        return replace(unit, ref=ref, state=TakingOver(now, replace(stop, tried_with=event.seen)))
    if event.seen is None or is_first:
        tried = None
    return unit.enter(Stopped(replace(stop, tried_with=tried), next_at))


def _step_aborting(unit: LocalUnit, state: Aborting, event: LocalUnitEvent) -> UnitStep:
    match event:
        case UnitTakenOver():
            return _fence_unit(_record_takeover(unit, event), state.cause)
        case OperationFailed():
            unit = _record_failure(unit, event)
            if event.should_retry:
                return _fence_unit(unit, state.cause)
            if not event.waits:
                return _fence_unit(unit, None, event.error)
            unit, logged = _record_cause(unit, event.error)
            unit, fence = _fence_unit(unit, event.error)
            return unit, logged + fence
    return unit, []


# what several states do


def _record_takeover(unit: LocalUnit, event: UnitTakenOver) -> LocalUnit:
    latest = max(unit.watched.commit_ts_ms, event.commit_ts_ms)
    watched = replace(unit.watched, offset=event.offset, state="ok", message="", commit_ts_ms=latest)
    return replace(unit, epoch=event.epoch, position=event.position, watched=watched)


def _record_failure(unit: LocalUnit, event: OperationFailed) -> LocalUnit:
    watched = unit.watched
    if event.should_retry:
        watched = replace(watched, state="behind", message=event.error)
    return replace(unit, epoch=max(unit.epoch, event.epoch), watched=watched)


def _record_figures(unit: LocalUnit, report: Report) -> LocalUnit:
    is_newest = report.offset >= unit.watched.offset and report.position is not None
    position = report.position if is_newest else unit.position
    return replace(unit, position=position, watched=apply_report(unit.watched, report))


def _record_cause(unit: LocalUnit, cause: str) -> tuple[LocalUnit, Effects]:
    """Record why the unit is stopped, and log it once."""
    is_logged = unit.last_logged_cause == cause
    watched = replace(unit.watched, state="stopped", message=cause)
    unit = replace(unit, watched=watched, last_logged_cause=cause)
    return unit, [] if is_logged else [LogWaiting(unit.ref.topic, unit.ref.source, cause)]


def _stop_unit(
    unit: LocalUnit, cause: str, copy: CopyNeed | None, now: float, tried_with: str | None = NOT_PROBED
) -> tuple[LocalUnit, Effects]:
    """Keep the unit in this process until the cause is resolved. Another agent could do no better."""
    unit, logged = _record_cause(unit, cause)
    return unit.enter(Stopped(UnitStop(cause, copy, now + STOPPED_RETRY_S, tried_with), now)), logged


def _fence_unit(unit: LocalUnit, cause: str | None, error: str | None = None) -> tuple[LocalUnit, Effects]:
    return unit.enter(Fencing(cause, error)), [FenceUnit(unit.ref, unit.epoch, cause)]


def _end_unit(
    unit: LocalUnit, error: str | None, offset: int | None = None, position: Position | None = None
) -> UnitStep:
    ref = unit.ref
    return None, [ReportEvent(ref.topic, ref.source, ref.assignment, WorkerEnded, offset, position, error)]
