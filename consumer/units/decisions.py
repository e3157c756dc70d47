"""Schedules one pipeline's assigned units: chooses each unit's next operation, and gives it to the slots.

`step_pipeline` changes the state it is given and returns it. It does no I/O. Times are monotonic
seconds. Its events come from operation threads (which ask target and Kafka) and from slots. At most one
operation works on a unit at a time, and none but a check of its table while a slot applies it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from msgspec.structs import replace

from consumer.attempt.reports import CopyNeed, Report
from consumer.units.messages import (
    AbortOperation,
    AttemptsReported,
    CheckTable,
    FenceUnit,
    LogWaiting,
    OperationFailed,
    PipelineEffect,
    PipelineEvent,
    PlaceUnit,
    PrepareTarget,
    PrepareUnit,
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
from consumer.units.supervision import FIGURES, apply_report
from consumer.units.unit import ApplyPhase, LocalUnit
from schemas.units import Prepared, WorkerEnded

PROBE_INTERVAL_S = 10.0
"""Interval in seconds between two probes of a stopped unit."""
MAX_FAST_PROBES = 30
"""Up to this many stopped units are probed at that interval. More units are probed less often, because a
probe costs the target a few queries."""
STOPPED_RETRY_S = 300.0
"""Seconds after which a stopped unit is retried although no change was seen."""
CHECK_S, CHECK_PAUSE_S = 60.0, 1.0
"""Interval in seconds at which the target table of a running unit is checked, and the pause between two
checks of a pipeline. Triggers, rules and the like change rows or suppress them without any error."""


@dataclass(slots=True)
class PipelineState:
    """The units of one pipeline in this process."""

    units: dict[str, LocalUnit] = field(default_factory=dict)
    """The units by topic."""
    secrets_replaced: bool = False
    """Whether the units know earlier secrets than units that are prepared from now on."""
    _check_at: float = 0.0
    """When the next running unit may be checked (monotonic seconds); infinite while a check is running."""

    def record_new_secrets(self) -> None:
        """Record that units that are prepared from now on know other secrets."""
        self.secrets_replaced = True

    def begin_check(self, now: float) -> LocalUnit | None:
        """Return the running unit whose table is checked now: the one with the oldest check, if that was
        `CHECK_S` ago.
        """
        if now < self._check_at:
            return None
        self._check_at = now + CHECK_PAUSE_S
        running = (unit for unit in self.units.values() if unit.phase is ApplyPhase.APPLYING)
        unit = min(running, key=lambda each: each.looked_at, default=None)
        if unit is None or now < unit.looked_at + CHECK_S:
            return None
        unit.looked_at, self._check_at = now, math.inf
        return unit

    def end_check(self, now: float) -> None:
        """Let the next check begin after a pause."""
        self._check_at = now + CHECK_PAUSE_S


def step_pipeline(
    state: PipelineState, event: PipelineEvent, now: float
) -> tuple[PipelineState, list[PipelineEffect]]:
    """Apply `event` at the time `now`; return the state and the effects, in order."""
    out: list[PipelineEffect] = []
    match event:
        case PrepareUnit() | StartUnit() | RemoveUnit():
            _handle_request(state, event, out)
        case TargetPrepared() | UnitTakenOver() | UnitFenced() | OperationFailed() | StoppedProbed():
            _handle_result(state, event, now, out)
        case TableChecked():
            _handle_table_check(state, event, now, out)
        case AttemptsReported(reports):
            for report in reports:
                _handle_report(state, report, now, out)
        case SlotLost(topic, epoch):
            _handle_loss(state, topic, epoch, now)
        case SecretsReplaced():
            state.record_new_secrets()
    if state.secrets_replaced:
        _close_units_with_old_secrets(state, out)
    # Units are withdrawn before their fencing token is raised, and before an operation works on them.
    _withdraw_units(state, out)
    _start_operations(state, now, out)
    _check_one(state, now, out)
    return state, out


# instructions of the agent


def _handle_request(
    state: PipelineState, event: PrepareUnit | StartUnit | RemoveUnit, out: list[PipelineEffect]
) -> None:
    held = state.units.get(event.topic)
    unit = held if held is not None and held.assignment == event.assignment else None
    match event:
        case PrepareUnit():
            _prepare_unit(state, event, out)
        case StartUnit() if unit is not None:
            unit.start_asked = True
        case StartUnit():
            why = "this process does not have the unit"
            out.append(ReportEvent(event.topic, "", event.assignment, WorkerEnded, error=why))
        case RemoveUnit() if unit is not None:
            _close_unit(state, unit, None, out)
        case RemoveUnit():  # never prepared here, or ended already: nothing of that assignment writes
            out.append(ReportEvent(event.topic, "", event.assignment, WorkerEnded))


def _prepare_unit(state: PipelineState, event: PrepareUnit, out: list[PipelineEffect]) -> None:
    held = state.units.get(event.topic)
    if held is not None:
        if held.assignment != event.assignment:
            why = f"the unit is still here under the assignment {held.assignment}"
            out.append(ReportEvent(event.topic, event.source, event.assignment, WorkerEnded, error=why))
        return
    unit = LocalUnit(event.topic, event.source, event.assignment)
    state.units[event.topic] = unit


def _close_unit(state: PipelineState, unit: LocalUnit, error: str | None, out: list[PipelineEffect]) -> None:
    """End a unit: fence it, unless it has no fencing token yet."""
    if unit.phase is ApplyPhase.STOPPING:
        return
    unit.error = unit.error or error
    if unit.phase in {ApplyPhase.PREPARING, ApplyPhase.PREPARED}:
        _remove_unit(state, unit, out)
        return
    unit.stop_requested = True
    if unit.busy:
        out.append(AbortOperation(unit.topic, unit.assignment))


def _close_units_with_old_secrets(state: PipelineState, out: list[PipelineEffect]) -> None:
    """End the units that do not apply: with the new secrets they may succeed.

    A unit that applies has connections, which the servers keep when a password changes.
    """
    for unit in list(state.units.values()):
        if unit.phase is not ApplyPhase.APPLYING and not unit.stop_requested:
            unit.waits, unit.error = False, None  # no failure of this agent
            _close_unit(state, unit, None, out)


def _remove_unit(
    state: PipelineState,
    unit: LocalUnit,
    out: list[PipelineEffect],
    offset: int | None = None,
    position: object = None,
) -> None:
    del state.units[unit.topic]
    known = position if isinstance(position, tuple) else None
    error = None if unit.waits else unit.error  # a stopped unit ends only because its removal was requested
    out.append(ReportEvent(unit.topic, unit.source, unit.assignment, WorkerEnded, offset, known, error))


# results of operations


def _handle_result(
    state: PipelineState,
    event: TargetPrepared | UnitTakenOver | UnitFenced | OperationFailed | StoppedProbed,
    now: float,
    out: list[PipelineEffect],
) -> None:
    unit = state.units.get(event.topic)
    if unit is None or unit.assignment != event.assignment:
        return  # of an earlier assignment
    if isinstance(event, StoppedProbed):
        unit.looking = False
    else:
        unit.busy = False
    match event:
        case TargetPrepared():
            unit.topic_id, unit.real = event.topic_id, event.real
        case UnitTakenOver():
            _record_takeover(unit, event, now, out)
        case UnitFenced():
            _remove_unit(state, unit, out, event.offset, event.position)
        case OperationFailed():
            _handle_failure(state, unit, event, now, out)
        case StoppedProbed() if unit.phase is ApplyPhase.WAITING:
            waiting = sum(each.phase is ApplyPhase.WAITING for each in state.units.values())
            _handle_probe(unit, event, now, PROBE_INTERVAL_S * max(1.0, waiting / MAX_FAST_PROBES))


def _record_takeover(unit: LocalUnit, event: UnitTakenOver, now: float, out: list[PipelineEffect]) -> None:
    """Give a unit that has been taken over to the slots, unless it is to end."""
    unit.epoch, unit.position = event.epoch, event.position
    if unit.waits or not unit.looked_at:  # otherwise its table was not checked
        unit.looked_at = now
    unit.watched = replace(
        unit.watched,
        offset=event.offset,
        state="ok",
        message="",
        commit_ts_ms=max(unit.watched.commit_ts_ms, event.commit_ts_ms),
    )
    if unit.stop_requested:
        return
    unit.phase, unit.placed = ApplyPhase.APPLYING, True
    unit.waits, unit.error, unit.copy, unit.lock_wait = False, None, None, ""
    if event.offset + 1 >= event.end:  # otherwise the same error would be logged again
        unit.last_reported_error = None
    out.append(PlaceUnit(unit.ref, event))


def _handle_failure(
    state: PipelineState, unit: LocalUnit, event: OperationFailed, now: float, out: list[PipelineEffect]
) -> None:
    unit.epoch = max(unit.epoch, event.epoch)
    if event.should_retry:
        unit.watched = replace(unit.watched, state="behind", message=event.error)
        unit.backoff = unit.backoff.with_failure(now)
        unit.try_at = unit.backoff.next_at
    elif event.waits:
        _stop_unit(unit, event.error, now, out, event.copy)
    else:
        unit.waits = False
        _close_unit(state, unit, event.error, out)


def _stop_unit(
    unit: LocalUnit, why: str, now: float, out: list[PipelineEffect], copy: CopyNeed | None = None
) -> None:
    """Keep the unit in this process, stopped, until the cause of the stop is resolved.

    Another agent could do no better.
    """
    unit.waits, unit.error, unit.copy, unit.lock_wait = True, why, copy, ""
    unit.watched = replace(unit.watched, state="stopped", message=why)
    if unit.last_reported_error != why:
        unit.last_reported_error = why
        out.append(LogWaiting(unit.topic, unit.source, why))
    if unit.phase is ApplyPhase.APPLYING:  # otherwise it was retried after a probe, and keeps its digest
        unit.seen, unit.unobservable, unit.tried = None, False, False
    if not unit.stop_requested:
        unit.phase, unit.try_at, unit.again_at = ApplyPhase.WAITING, now, now + STOPPED_RETRY_S


def _handle_probe(unit: LocalUnit, event: StoppedProbed, now: float, pause: float) -> None:
    """Retry a stopped unit when what it waits for has changed, or after `STOPPED_RETRY_S`.

    It is also retried once as soon as it can be probed again after a failed probe, and once in any case,
    because the change may have happened before the first probe.
    """
    unit.try_at = now + pause
    if event.seen is None:
        unit.unobservable = True
        return
    before = unit.seen
    unit.seen = event.seen
    if event.message is not None:
        unit.watched = replace(unit.watched, message=event.message)
    untried = before is not None and not unit.tried
    begun = event.begun and before is None
    if begun or untried or unit.unobservable or before not in (None, event.seen) or now >= unit.again_at:
        unit.phase, unit.try_at, unit.tried, unit.unobservable = ApplyPhase.TAKING_OVER, now, True, False
        unit.topic_id, unit.real = event.topic_id, event.real


def _handle_table_check(
    state: PipelineState, event: TableChecked, now: float, out: list[PipelineEffect]
) -> None:
    """Stop a running unit if its target table no longer fits."""
    state.end_check(now)
    unit = state.units.get(event.topic)
    if unit is None or unit.assignment != event.assignment or unit.epoch != event.epoch:
        return
    if event.why is not None and unit.phase is ApplyPhase.APPLYING:
        _stop_unit(unit, event.why, now, out)


# what slots report


def _handle_report(state: PipelineState, report: Report, now: float, out: list[PipelineEffect]) -> None:
    """Record a report's figures and its error. Reports of an earlier fencing token are late."""
    unit = state.units.get(report.topic)
    if unit is not None and report.state == "waiting":
        _record_lock_wait(unit, report)
        return
    if unit is None or report.epoch != unit.epoch or unit.phase is not ApplyPhase.APPLYING:
        return
    _record_figures(unit, report)
    if report.state == "stopped":
        _stop_unit(unit, report.message, now, out, report.copy)
    elif report.state != "ok":
        _retry_takeover(unit, now)


def _handle_loss(state: PipelineState, topic: str, epoch: int, now: float) -> None:
    unit = state.units.get(topic)
    if unit is not None and unit.epoch == epoch:
        _retry_takeover(unit, now)


def _record_lock_wait(unit: LocalUnit, report: Report) -> None:
    """Record what a transaction of the unit waits for, or that none waits any more.

    It is kept while an attempt fails and is tried again. A takeover applies under a fencing token that is not
    recorded here yet.
    """
    if unit.phase in {ApplyPhase.TAKING_OVER, ApplyPhase.APPLYING} and report.epoch >= unit.epoch:
        unit.lock_wait = report.message


def _record_figures(unit: LocalUnit, report: Report) -> None:
    facts = {name: getattr(report, name) for name in FIGURES}
    if report.offset >= unit.watched.offset and report.position is not None:
        unit.position = report.position
    unit.watched = apply_report(unit.watched, **facts)
    if report.state == "ok":
        unit.lock_wait = ""
    if report.state == "ok" and report.applied:
        unit.last_reported_error = None


def _retry_takeover(unit: LocalUnit, now: float) -> None:
    """Take the unit over again, after a failed attempt or the loss of its slot."""
    if unit.phase is ApplyPhase.APPLYING:
        unit.phase = ApplyPhase.TAKING_OVER
        unit.backoff = unit.backoff.with_failure(now)
        unit.try_at = unit.backoff.next_at


# the next operations


def _withdraw_units(state: PipelineState, out: list[PipelineEffect]) -> None:
    """Withdraw the units from the slots that no slot is to apply any more."""
    for unit in state.units.values():
        if unit.placed and (unit.phase is not ApplyPhase.APPLYING or unit.stop_requested):
            unit.placed = False
            out.append(WithdrawUnit(unit.topic))


def _start_operations(state: PipelineState, now: float, out: list[PipelineEffect]) -> None:
    """Start the next operation of every unit that has none running and is due."""
    for unit in list(state.units.values()):
        if unit.busy or (now < unit.try_at and not unit.stop_requested):
            continue
        if unit.stop_requested:
            unit.phase, unit.busy = ApplyPhase.STOPPING, True
            out.append(_build_fence(unit))
        elif unit.phase is ApplyPhase.PREPARING:
            _get_ready(unit, out)
        if unit.phase is ApplyPhase.PREPARED and unit.start_asked:
            unit.phase = ApplyPhase.TAKING_OVER
        if unit.phase is ApplyPhase.TAKING_OVER and not unit.busy:
            unit.busy = True
            out.append(TakeOver(unit.ref, unit.epoch, look=unit.waits))
        elif unit.phase is ApplyPhase.WAITING and not unit.looking:
            unit.looking = True
            out.append(ProbeStopped(unit.ref, unit.copy, unit.error or ""))


def _check_one(state: PipelineState, now: float, out: list[PipelineEffect]) -> None:
    """Check the table of a running unit if a check is due."""
    unit = state.begin_check(now)
    if unit is not None:
        out.append(CheckTable(unit.ref, unit.epoch))


def _build_fence(unit: LocalUnit) -> FenceUnit:
    stopped = unit.error if unit.waits else None
    return FenceUnit(unit.ref, unit.epoch, stopped)


def _get_ready(unit: LocalUnit, out: list[PipelineEffect]) -> None:
    if not unit.topic_id:
        unit.busy = True
        out.append(PrepareTarget(unit.ref))
        return
    unit.phase = ApplyPhase.PREPARED
    out.append(ReportEvent(unit.topic, unit.source, unit.assignment, Prepared))
