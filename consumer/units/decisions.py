"""Pure scheduling of one pipeline's assigned units: which operation runs next, which queries exist, which query applies which unit.

`step` changes the state it is given and returns it. Times are monotonic seconds. Facts come from hands (threads that ask
target and Kafka), from workers' reports and from looks at Spark's progress; hands work on one unit one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from consumer.attempt.reports import CopyNeed, Report
from consumer.units.looks import SMALL, arrived, left_behind
from consumer.units.messages import (
    Abort,
    AttemptsReported,
    Check,
    Checked,
    Effect,
    Event,
    Examine,
    Examined,
    Failed,
    FenceUnit,
    Follow,
    Followed,
    Looked,
    PrepareUnit,
    QueryFailed,
    QueryLost,
    QueryUp,
    RemoveUnit,
    Say,
    SparkUp,
    StartUnit,
    Take,
    Took,
    UnitFenced,
    Waits,
    Warm,
    Warmed,
)
from consumer.units.queries import Queries, QueryHere, plan
from consumer.units.supervision import FIGURES, reported
from consumer.units.unit import ApplyPhase, QueryKind, UnitHere
from schemas.units import Ended, Prepared

LOOK_S = 10.0
"""How often it is looked whether something has changed for a unit that waits for a person."""
LOOKS = 30
"""Units that are looked at so often; more of them are looked at less often, for a look costs a target a few questions."""
AGAIN_S = 300.0
"""After which time it is tried again though nothing was seen to change."""
CHECK_S, CHECK_PAUSE_S = 60.0, 1.0
"""How often it is looked whether the target table of a unit that runs still fits, and the least time between two such looks:
triggers, rules and the like change rows, or keep them away, without any error."""
FOLLOW_S = 0.1
"""How often a hand looks whether something has come to a unit that no query applies yet."""
FOLLOWED = 10
"""Units that are followed so often; more of them are less often, for each look is two questions to Kafka."""


@dataclass(slots=True)
class PipelineState:
    """`units`: by topic. `check_at`: when the next running unit may be looked at; `checking`: a hand looks at one. `pace`: seconds from
    one commit of a unit to the next, at least (0: as changes come)."""

    units: dict[str, UnitHere] = field(default_factory=dict)
    queries: Queries = field(default_factory=Queries)
    check_at: float = 0.0
    checking: bool = False
    pace: float = 0.0


def step(state: PipelineState, event: Event, now: float) -> tuple[PipelineState, list[Effect]]:
    """Return the state after `event` at `now`, and what is to be done, in order."""
    out: list[Effect] = []
    match event:
        case PrepareUnit() | StartUnit() | RemoveUnit():
            _asked(state, event, out)
        case Warmed() | Took() | Followed() | UnitFenced() | Failed() | Examined():
            _answered(state, event, now, out)
        case Checked():
            _checked(state, event, now, out)
        case AttemptsReported(reports):
            for query, report in reports:
                _reported(state, query, report, now, out)
        case SparkUp():
            state.queries.spark = True
        case QueryUp():
            _query_up(state, event)
        case QueryFailed(kind):
            state.queries.failed(kind, now)
        case QueryLost(number):
            _query_lost(state, number, now, out)
        case Looked():
            _looked(state, event, now)
    # Plan first: a unit is off its board before anybody raises its epoch.
    plan(state.queries, state.units, now, out)
    _continue(state, now, out)
    _check_one(state, now, out)
    return state, out


# what the agent says


def _asked(state: PipelineState, event: PrepareUnit | StartUnit | RemoveUnit, out: list[Effect]) -> None:
    held = state.units.get(event.topic)
    unit = held if held is not None and held.assignment == event.assignment else None
    match event:
        case PrepareUnit():
            _prepare(state, event, out)
        case StartUnit() if unit is not None:
            unit.start_asked = True
        case StartUnit():
            why = "the unit is not open here"
            out.append(Say(event.topic, "", event.assignment, Ended, error=why))
        case RemoveUnit() if unit is not None:
            _close(state, unit, None, out)
        case RemoveUnit():  # it never was here, or has ended: nothing of that assignment writes
            out.append(Say(event.topic, "", event.assignment, Ended))


def _prepare(state: PipelineState, event: PrepareUnit, out: list[Effect]) -> None:
    held = state.units.get(event.topic)
    if held is not None:
        if held.assignment != event.assignment:
            why = f"the unit is still here under the assignment {held.assignment}"
            out.append(Say(event.topic, event.source, event.assignment, Ended, error=why))
        return
    unit = UnitHere(event.topic, event.source, event.assignment)
    state.units[event.topic] = unit


def _close(state: PipelineState, unit: UnitHere, error: str | None, out: list[Effect]) -> None:
    """End a unit: off the board first, then the epoch, unless it never had one."""
    if unit.phase is ApplyPhase.STOPPING:
        return
    unit.error = unit.error or error
    unit.home = None
    if unit.phase in {ApplyPhase.PREPARING, ApplyPhase.PREPARED}:
        _gone(state, unit, out)
        return
    unit.stop_asked = True
    if unit.busy:
        out.append(Abort(unit.topic, unit.assignment))


def _gone(
    state: PipelineState,
    unit: UnitHere,
    out: list[Effect],
    offset: int | None = None,
    position: object = None,
) -> None:
    del state.units[unit.topic]
    known = position if isinstance(position, tuple) else None
    error = None if unit.waits else unit.error  # a unit that waits ends because somebody said so
    out.append(Say(unit.topic, unit.source, unit.assignment, Ended, offset, known, error))


# what hands say


def _answered(
    state: PipelineState,
    event: Warmed | Took | Followed | UnitFenced | Failed | Examined,
    now: float,
    out: list[Effect],
) -> None:
    unit = state.units.get(event.topic)
    if unit is None or unit.assignment != event.assignment:
        return  # of an assignment that is over
    if isinstance(event, Examined):
        unit.looking = False
    else:
        unit.busy = False
    match event:
        case Warmed():
            unit.topic_id, unit.real = event.topic_id, event.real
        case Took():
            _took(unit, event, now)
        case Followed():
            _followed(state, unit, event, now)
        case UnitFenced():
            _gone(state, unit, out, event.offset, event.position)
        case Failed():
            _failed(state, unit, event, now, out)
        case Examined() if unit.phase is ApplyPhase.WAITING:
            waiting = sum(each.phase is ApplyPhase.WAITING for each in state.units.values())
            _examined(unit, event, now, LOOK_S * max(1.0, waiting / LOOKS))


def _took(unit: UnitHere, event: Took, now: float) -> None:
    unit.epoch, unit.position, unit.looked_at = event.epoch, event.position, now
    watched = unit.watched
    unit.watched = replace(
        watched,
        offset=event.offset,
        state="ok",
        message="",
        commit_ts_ms=max(watched.commit_ts_ms, event.commit_ts_ms),
        applied=watched.applied + event.applied,
        displaced=watched.displaced + event.displaced,
    )
    if not unit.stop_asked:
        unit.phase, unit.home, unit.behind, unit.near = ApplyPhase.APPLYING, None, event.behind, 0
        unit.waits, unit.error, unit.copy, unit.long = False, None, None, False
        unit.told = unit.told if event.behind else None  # else the same trouble is told anew


def _followed(state: PipelineState, unit: UnitHere, event: Followed, now: float) -> None:
    """Note what a hand has applied; it looks again at once where there is more, else after a while."""
    if event.report is not None:
        _noted(unit, event.report, "ok")
    if unit.phase is ApplyPhase.APPLYING:
        unit.behind = event.left > SMALL
        followed = sum(
            each.phase is ApplyPhase.APPLYING and each.home is None for each in state.units.values()
        )
        pause = max(state.pace, FOLLOW_S * max(1.0, followed / FOLLOWED))
        unit.try_at = now if event.left else now + pause


def _failed(state: PipelineState, unit: UnitHere, event: Failed, now: float, out: list[Effect]) -> None:
    unit.epoch = max(unit.epoch, event.epoch)
    if event.again:
        unit.watched = replace(unit.watched, state="behind", message=event.error)
        if unit.phase is ApplyPhase.APPLYING:  # a hand followed it
            unit.phase = ApplyPhase.TAKING_OVER
        unit.backoff = unit.backoff.failed(now)
        unit.try_at = unit.backoff.next_at
    elif event.waits:
        _wait(unit, event.error, now, out, event.copy)
    else:
        unit.waits = False
        _close(state, unit, event.error, out)


def _wait(unit: UnitHere, why: str, now: float, out: list[Effect], copy: CopyNeed | None = None) -> None:
    """Keep the unit here, off all boards, until a person has done something: nobody else could do better with it."""
    unit.waits, unit.error, unit.copy, unit.home = True, why, copy, None
    unit.watched = replace(unit.watched, state="stopped", message=why)
    if unit.told != why:
        unit.told = why
        out.append(Waits(unit.topic, unit.source, why))
    if unit.phase is ApplyPhase.APPLYING:  # else it was tried, in front of what was seen
        unit.seen, unit.blind, unit.tried = None, False, False
    if not unit.stop_asked:
        unit.phase, unit.try_at, unit.again_at = ApplyPhase.WAITING, now, now + AGAIN_S


def _examined(unit: UnitHere, event: Examined, now: float, pause: float) -> None:
    """Try the unit again when what it waits in front of has changed, or after a long while; once when it can be seen again, and
    once in any case, for it may have changed before the first look."""
    unit.try_at = now + pause
    if event.seen is None:
        unit.blind = True
        return
    before = unit.seen
    unit.seen = event.seen
    if event.said is not None:
        unit.watched = replace(unit.watched, message=event.said)
    untried = before is not None and not unit.tried
    begun = event.begun and before is None
    if begun or untried or unit.blind or before not in (None, event.seen) or now >= unit.again_at:
        unit.phase, unit.try_at, unit.tried, unit.blind = ApplyPhase.TAKING_OVER, now, True, False
        unit.topic_id, unit.real = event.topic_id, event.real


def _checked(state: PipelineState, event: Checked, now: float, out: list[Effect]) -> None:
    """A running unit whose target table does not fit any more waits for a person."""
    state.checking = False
    unit = state.units.get(event.topic)
    if unit is None or unit.assignment != event.assignment or unit.epoch != event.epoch:
        return
    if event.why is not None and unit.phase is ApplyPhase.APPLYING:
        _wait(unit, event.why, now, out)


# what workers say


def _reported(state: PipelineState, query: int, report: Report, now: float, out: list[Effect]) -> None:
    """Note figures and trouble. What another query's attempts say of a unit that has gone on is no trouble."""
    unit = state.units.get(report.topic)
    if unit is None or report.epoch != unit.epoch or unit.phase is not ApplyPhase.APPLYING:
        return
    said = report.state if query == unit.home or report.state == "stopped" else "ok"
    _noted(unit, report, said)
    if said == "ok":
        return
    if said == "stopped":
        _wait(unit, report.message, now, out, report.copy)
    else:
        unit.long = report.long
        _again(unit, now)


def _noted(unit: UnitHere, report: Report, said: str) -> None:
    facts = {name: getattr(report, name) for name in FIGURES} | {"state": said}
    if report.offset >= unit.watched.offset and report.position is not None:
        unit.position = report.position
    unit.watched = reported(unit.watched, **facts)
    if said == "ok" and report.applied:
        unit.told = None


def _again(unit: UnitHere, now: float) -> None:
    """Have the unit taken over anew: its attempts ended in trouble, or its query did."""
    if unit.phase is ApplyPhase.APPLYING:
        unit.phase, unit.home = ApplyPhase.TAKING_OVER, None
        unit.backoff = unit.backoff.failed(now)
        unit.try_at = unit.backoff.next_at


# what Spark says


def _query_up(state: PipelineState, event: QueryUp) -> None:
    old = state.queries.up(QueryHere(event.number, event.kind, dict(event.topics)))
    for unit in state.units.values():
        if old is not None and unit.home == old:
            unit.home = event.number if event.topics.get(unit.topic) == unit.version else None
            unit.moved()


def _query_lost(state: PipelineState, number: int, now: float, out: list[Effect]) -> None:
    state.queries.lost(number, now, out)
    for unit in state.units.values():
        if unit.home == number:
            _again(unit, now)


def _looked(state: PipelineState, event: Looked, now: float) -> None:
    query = state.queries.here.get(event.number)
    if query is None:
        return
    for unit in state.units.values():
        if unit.phase is not ApplyPhase.APPLYING:
            continue
        if query.kind is QueryKind.LIVE and unit.behind and unit.topic in event.ends and arrived(unit, event):
            unit.behind, unit.home = False, None  # from the catching-up query's board to the live one's
        if unit.home == event.number and left_behind(unit, event):
            unit.watched = replace(unit.watched, state="behind", message="Spark is past what is applied")
            _again(unit, now)


# what follows


def _continue(state: PipelineState, now: float, out: list[Effect]) -> None:
    """Give every unit that waits for a hand one, and say what has become true."""
    for unit in list(state.units.values()):
        if unit.busy or (now < unit.try_at and not unit.stop_asked):
            continue
        if unit.stop_asked:
            unit.phase, unit.busy = ApplyPhase.STOPPING, True
            out.append(_fence(unit))
        elif unit.phase is ApplyPhase.PREPARING:
            _get_ready(state, unit, out)
        if unit.phase is ApplyPhase.PREPARED and unit.start_asked:
            unit.phase = ApplyPhase.TAKING_OVER
        if unit.phase is ApplyPhase.TAKING_OVER and not unit.busy:
            unit.busy = True
            out.append(Take(unit.about, unit.epoch, look=unit.waits, here=unit.waits or unit.long))
        elif unit.homeless and (not unit.behind or not state.queries.spark):
            # What is behind while Spark is up belongs to the catching-up query from the moment on that it is asked for.
            unit.busy = True
            out.append(Follow(unit.about, unit.epoch, unit.watched.offset))
        elif unit.phase is ApplyPhase.WAITING and not unit.looking:
            unit.looking = True
            out.append(Examine(unit.about, unit.copy, unit.error or ""))


def _check_one(state: PipelineState, now: float, out: list[Effect]) -> None:
    """Have the running unit looked at that was not for the longest time, if that is long."""
    if state.checking or now < state.check_at:
        return
    state.check_at = now + CHECK_PAUSE_S
    running = (unit for unit in state.units.values() if unit.phase is ApplyPhase.APPLYING)
    unit = min(running, key=lambda each: each.looked_at, default=None)
    if unit is not None and now >= unit.looked_at + CHECK_S:
        unit.looked_at, state.checking = now, True
        out.append(Check(unit.about, unit.epoch))


def _fence(unit: UnitHere) -> FenceUnit:
    stopped = unit.error if unit.waits else None
    return FenceUnit(unit.about, unit.epoch, stopped)


def _get_ready(state: PipelineState, unit: UnitHere, out: list[Effect]) -> None:
    if not unit.topic_id:
        unit.busy = True
        out.append(Warm(unit.about))
    elif state.queries.reads(QueryKind.LIVE, unit) or QueryKind.LIVE not in state.queries.current:
        # Without a live query hands apply what is started, so nobody needs to wait for Spark's first one, which takes its time.
        unit.phase = ApplyPhase.PREPARED
        out.append(Say(unit.topic, unit.source, unit.assignment, Prepared))
