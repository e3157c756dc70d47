"""Limits the reports of agents: an assignment that was never given and a time in the future are refused.
Pure.

Reports of agents become durable state: assignments are never given again, and checkpoints never go back.
A single wrong value would therefore stay for ever. So an assignment that was never given and progress in
the future are refused, counted and alarmed. The claim of an agent that a later leader exists is refused
as well: if it is true, the control topic refuses this leader's next write.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from coordinator.core.leader.state import Alarm, LeaderDecision, LeaderState
from coordinator.core.messages import Checkpoint, DispatchResponse, Heartbeat, Sync, UnitStatus, Up
from schemas.units import UnitProgress

#: The highest plausible measurement of one unit's rows a second.
MOST_ROWS = 10**9
#: Seconds between two alarms of one kind about one agent; each case is counted.
ALARM_EVERY = 60.0
LONGEST_NAME = 255


def compute_latest_ts(state: LeaderState, now: float) -> int | None:
    """Return the latest commit time (ms) that progress can have, or None if this leader does not know
    the time of day.

    It is the time of day at the leader's claim, plus the time since then, plus the allowed clock error
    of a source.
    """
    if not state.claim.floor:
        return None
    return state.claim.floor + int(1000 * (now - state.claim.began + state.config.ahead))


def is_credible_mark(mark: UnitProgress | None, latest: int | None) -> bool:
    """Return whether reported progress can be true: not later than `latest`."""
    if mark is None or latest is None:
        return True
    return mark.checkpoint_ts <= latest and mark.resolved_ts <= latest


def refuse_claim(
    state: LeaderState, agent: str, now: float, out: list[LeaderDecision], *, what: str, about: str
) -> None:
    """Count an agent's claim that cannot be true, and raise an alarm at most every `ALARM_EVERY` seconds."""
    state.history.count_dropped(what)
    if state.members.begin_alarm(agent, what, now, ALARM_EVERY):
        out.append(Alarm(what, f"agent {agent}: {about}"))


def restrict_message(state: LeaderState, message: Up, now: float, out: list[LeaderDecision]) -> Up | None:
    """Return the message without the values that cannot be true, or None if nothing in it can be used."""
    if isinstance(message, Sync | Heartbeat) and not math.isfinite(message.sent):
        seen = f"it reports that it sent this at {message.sent}"
        refuse_claim(state, message.agent, now, out, what="time refused", about=seen)
        return None
    late: list[str] = []
    after = _restrict_to_latest(message, compute_latest_ts(state, now), late)
    if late:
        why = "which is later than now: a source's clock is ahead, or the agent is not to be trusted"
        refuse_claim(state, message.agent, now, out, what="mark refused", about=f"{late[0]}, {why}")
    return after


def _restrict_to_latest(message: Up, latest: int | None, late: list[str]) -> Up:
    """Return the message within the limits; nearly always this is the same object.

    `late` receives a description of each unit with progress in the future.
    """
    match message:
        case Heartbeat(statuses=statuses) if not _are_all_credible(statuses, latest):
            return replace(message, statuses=_restrict_statuses(statuses, latest, late))
        case DispatchResponse(status=status) if not _are_all_credible((status,), latest):
            return replace(message, status=_restrict_statuses((status,), latest, late)[0])
        case Checkpoint(marks=marks) if not all(is_credible_mark(mark, latest) for _, _, mark in marks):
            late.extend(
                _describe_mark(unit, mark) for unit, _, mark in marks if not is_credible_mark(mark, latest)
            )
            return replace(message, marks=tuple(one for one in marks if is_credible_mark(one[2], latest)))
        case Sync() if not _are_all_credible(message.statuses, latest):
            parts = (message.running, message.adding, message.removing)
            running, adding, removing = (_restrict_statuses(part, latest, late) for part in parts)
            return replace(message, running=running, adding=adding, removing=removing)
    return message


def _are_all_credible(statuses: tuple[UnitStatus, ...], latest: int | None) -> bool:
    return all(0 <= s.rows_per_s <= MOST_ROWS and is_credible_mark(s.mark, latest) for s in statuses)


def _restrict_statuses(
    statuses: tuple[UnitStatus, ...], latest: int | None, late: list[str]
) -> tuple[UnitStatus, ...]:
    kept: list[UnitStatus] = []
    for status in statuses:
        mark = status.mark if is_credible_mark(status.mark, latest) else None
        if mark is not status.mark and status.mark is not None:
            late.append(_describe_mark(status.unit, status.mark))
        rows = min(max(status.rows_per_s, 0), MOST_ROWS)
        kept.append(replace(status, mark=mark, rows_per_s=rows))
    return tuple(kept)


def _describe_mark(unit: str, mark: UnitProgress) -> str:
    return f"{unit} is done up to {max(mark.checkpoint_ts, mark.resolved_ts)} ms"
