"""The handlers of an agent's reports about its units."""

from __future__ import annotations

from coordinator.core.handlers.bounds import refuse_claim, restrict_message
from coordinator.core.handlers.context import Context
from coordinator.core.leader.failures import record_unit_failure, was_never_ready
from coordinator.core.leader.patience import record_preparation_progress
from coordinator.core.leader.sets import apply_event_to_set
from coordinator.core.leader.state import LeaderDecision, LeaderState, SendMessage
from coordinator.core.leader.unit_sets import UnitSets
from coordinator.core.members import Member
from coordinator.core.messages import Checkpoint, Dispatch, DispatchResponse, Heartbeat, Sync, UnitStatus
from coordinator.core.replication import Replica, ReplicaReport
from coordinator.core.replication_table import ReplicaPhase, Role, SetState
from schemas.problems import decode_problem
from schemas.units import UnitPhase

_STEADY = (SetState.REPLICATING, Role.PRIMARY, ReplicaPhase.REPLICATING)


def keep_within_bounds(context: Context) -> bool:
    """Remove claims that cannot be true from the message before any other handler reads it."""
    message = restrict_message(context.state, context.message, context.now, context.out)
    if message is not None:
        context.replace_message(message)
    return message is not None


def collect_statistics(context: Context) -> bool:
    """Collect progress and rows a second of replicas that may report for their unit. Statuses with
    other news are left in `news`.
    """
    sets, member, message, steady = context.state.sets, context.member, context.message, 0
    match message:
        case Checkpoint(marks=marks):
            for unit, assignment, mark in marks:
                if _find_reporting_replica(sets, member, unit, assignment) is not None:
                    sets.memos[unit].take_mark(mark)
        case Sync() | Heartbeat():
            context.news.extend(s for s in message.statuses if not _collect_status(sets, member, s))
            steady = len(message.statuses) - len(context.news)
        case DispatchResponse(status=status):
            if _collect_status(sets, member, status):
                steady = 1
            else:
                context.news.append(status)
    if steady:
        sets.cells[_STEADY] += steady
    return True


def _collect_status(sets: UnitSets, member: Member, status: UnitStatus) -> bool:
    """Take one status, and return whether it holds no other news. Nearly always it holds none, so
    this path is short.
    """
    if _as_it_was(sets, member, status):
        sets.memos[status.unit].take_report(status.mark, status.rows_per_s, None)
        return True
    if _find_reporting_replica(sets, member, status.unit, status.assignment) is not None:
        sets.memos[status.unit].take_report(status.mark, status.rows_per_s, status.error)
    return False


def _as_it_was(sets: UnitSets, member: Member, status: UnitStatus) -> bool:
    """Return whether the unit replicates as before, so that its replication set would not change."""
    current = sets.by_unit.get(status.unit)
    if current is None or current.state is not SetState.REPLICATING or len(current.replicas) != 1:
        return False
    if status.state is not UnitPhase.REPLICATING or status.error is not None:
        return False
    one = current.replicas[0]
    if one.assignment != status.assignment or one.seen is not ReplicaPhase.REPLICATING:
        return False
    return one.agent == member.name and one.agent_epoch == member.agent_epoch


def _find_reporting_replica(sets: UnitSets, member: Member, unit: str, assignment: int) -> Replica | None:
    """Return the replica that may report for the unit: one that writes, or one that is stopping after it
    has written.

    Final progress counts although its assignment is superseded, as long as the set still waits for it.
    """
    current = sets.by_unit.get(unit)
    me = (member.name, member.agent_epoch, assignment)
    for replica in current.replicas if current else ():
        if (
            replica.agent,
            replica.agent_epoch,
            replica.assignment,
        ) == me and replica.role is not Role.SECONDARY:
            return replica
    return None


def report_units(context: Context) -> bool:
    """Report every unit that the agent holds to its replication set, and the other units of the agent
    as absent.
    """
    if isinstance(context.message, Sync | Heartbeat):
        state, member, now, out = context.state, context.member, context.now, context.out
        reported = {status.unit for status in context.message.statuses}
        missing = [unit for unit in state.sets.by_agent.get(member.name, {}) if unit not in reported]
        for status in context.news:
            report_status(state, member, status, now, out)
        for unit in missing:
            apply_event_to_set(
                state, unit, ReplicaReport(member.name, member.agent_epoch, 0, UnitPhase.ABSENT), now, out
            )
    return True


def answer_unit(context: Context) -> bool:
    """Pass the answer to a dispatch to the replication set, and do not repeat the same instruction
    at once.

    While an older replica is still stopping, such repetitions would go back and forth as fast as the
    network allows. The next heartbeat causes the repetition instead.
    """
    message = context.message
    if isinstance(message, DispatchResponse):
        decisions: list[LeaderDecision] = []
        for status in context.news:
            report_status(context.state, context.member, status, context.now, decisions)
        context.out.extend(effect for effect in decisions if not _is_repetition(effect, message))
    return True


def _is_repetition(effect: LeaderDecision, message: DispatchResponse) -> bool:
    if not isinstance(effect, SendMessage) or effect.agent != message.agent:
        return False
    return isinstance(effect.message, Dispatch) and effect.message.op is message.op


def report_status(
    state: LeaderState, member: Member, status: UnitStatus, now: float, out: list[LeaderDecision]
) -> None:
    """Pass one status to its replication set, after noting preparation progress and failures.

    A status with an assignment that was never given raises an alarm first.
    """
    unit = status.unit
    if status.assignment > state.numbers.counter:
        seen = (
            f"it holds {unit} under assignment {status.assignment}, and none above "
            f"{state.numbers.counter} was ever given"
        )
        refuse_claim(state, member.name, now, out, what="epoch refused", about=seen)
    if unit in state.sets.restricted:
        return
    if status.state is UnitPhase.PREPARING and unit in state.sets.memos:
        record_preparation_progress(state, member.name, status, now)
    if status.error is not None and status.state is UnitPhase.STOPPED and unit in state.sets.by_unit:
        current = state.sets.by_unit[unit]
        for one in current.replicas:
            if one.agent == member.name and one.assignment == status.assignment:
                failed = f"it failed on agent {member.name}: {decode_problem(status.error)}"
                state.history.set_reason(unit, failed, "failure")
                record_unit_failure(
                    state, unit, member.name, now, unready=was_never_ready(state, current, one, now)
                )
    apply_event_to_set(
        state, unit, ReplicaReport(member.name, member.agent_epoch, status.assignment, status.state), now, out
    )
