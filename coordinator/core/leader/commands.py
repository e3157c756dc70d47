"""Operators' commands to the leader, and the reasons to refuse them."""

from __future__ import annotations

from dataclasses import replace

from coordinator.core import replication
from coordinator.core.leader import agents as leader_members
from coordinator.core.leader import configuration
from coordinator.core.leader.invariants import explain_restriction
from coordinator.core.leader.sets import apply_event_to_set, fence_unless_desired, persist_records
from coordinator.core.leader.state import (
    CancelMove,
    Drain,
    LeaderCommand,
    LeaderDecision,
    LeaderState,
    Move,
    Pause,
    Rebalance,
    Refused,
    Reload,
    Resign,
    Resume,
    Undrain,
)
from coordinator.core.members import MemberState
from coordinator.core.messages import Liveness
from coordinator.core.records import AgentRecord, MoveRecord, PausedRecord
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import MoveRequest
from schemas.problems import Problem


def execute_leader_command(
    state: LeaderState, command: LeaderCommand, now: float, out: list[LeaderDecision]
) -> None:
    """Execute the command or return Refused. All commands but `Rebalance` and `Resign` are stored, so
    that they outlive this leader.
    """
    problem = _explain_restricted_refusal(state, command) or explain_command_refusal(state, command)
    if problem is not None:
        out.append(Refused(command, problem))
        return
    state.plan.note_change()
    match command:
        case Move(unit, agent):
            state.plan.request_move(MoveRequest(unit, agent))
            persist_records(state, [MoveRecord(unit, agent)], now, out)
        case CancelMove(unit):
            _cancel_move(state, unit, now, out)
        case Drain(agent):
            _set_draining(state, agent, True, now, out)
        case Undrain(agent):
            _set_draining(state, agent, False, now, out)
        case Rebalance():
            state.plan.request_rebalance()
        case Pause(unit):
            if unit in state.sets.restricted:
                state.sets.end_restriction(unit)
            forget_move(state, unit, now, out)
            state.sets.paused[unit] = None
            fence_unless_desired(state, unit, now, out)
            persist_records(state, [PausedRecord(unit)], now, out)
        case Resume(unit):
            state.sets.paused.pop(unit, None)
            persist_records(state, [], now, out, delete=[f"paused/{unit}"])
        case Reload():
            configuration.begin_reload(state, command, now, out)
        case Resign():
            leader_members.step_down_leader(state, "asked to resign", out)


def forget_move(state: LeaderState, unit: str, now: float, out: list[LeaderDecision]) -> None:
    """Drop a requested move that has not begun."""
    if state.plan.forget_move(unit):
        persist_records(state, [], now, out, delete=[f"move/{unit}"])


def _cancel_move(state: LeaderState, unit: str, now: float, out: list[LeaderDecision]) -> None:
    """Cancel a unit's move. Balancing leaves the unit where it is for a while; otherwise it would begin
    the same move at once.
    """
    forget_move(state, unit, now, out)
    if _is_cancellable(state.sets.by_unit[unit]):
        state.sets.memos[unit].wait_until(now + state.config.balance_every)
        state.sets.retrying[unit] = None
        apply_event_to_set(state, unit, replication.Cancel(), now, out)


def _is_cancellable(current: ReplicationSet) -> bool:
    return current.state is SetState.PREPARE and current.primary is not None


def _set_draining(
    state: LeaderState, agent: str, draining: bool, now: float, out: list[LeaderDecision]
) -> None:
    member = state.members.put_member(replace(state.members.by_name[agent], draining=draining))
    record = AgentRecord(agent, member.incarnation, member.agent_epoch, draining=draining)
    persist_records(state, [record], now, out)


def _explain_restricted_refusal(state: LeaderState, command: LeaderCommand) -> Problem | None:
    """Return that the command is about a restricted unit, or None. A pause ends the restriction."""
    if isinstance(command, Move | CancelMove | Resume) and command.unit in state.sets.restricted:
        why = explain_restriction(state.sets.restricted[command.unit])
        return Problem(f"unit {command.unit}: {why}", "pause it, and then resume it")
    return None


def explain_command_refusal(state: LeaderState, command: LeaderCommand) -> Problem | None:
    """Return why the command cannot be executed, or None."""
    match command:
        case Move(unit, agent):
            return _explain_move_refusal(state, unit, agent)
        case CancelMove(unit):
            return _explain_cancel_refusal(state, unit)
        case Drain(agent):
            if agent not in state.members.by_name:
                return Problem(f"there is no agent {agent}")
            others = any(
                configuration.accepts_units(state, m)
                for name, m in state.members.by_name.items()
                if name != agent
            )
            return None if others else Problem("no other agent could take its units")
        case Undrain(agent):
            return _explain_undrain_refusal(state, agent)
        case Pause(unit) | Resume(unit):
            return None if unit in state.sets.by_unit else Problem(f"there is no unit {unit}")
    return None


def _explain_move_refusal(state: LeaderState, unit: str, agent: str) -> Problem | None:
    if unit not in state.sets.by_unit:
        return Problem(f"there is no unit {unit}")
    if unit in state.sets.paused:
        return Problem(f"unit {unit} is paused and runs nowhere", "resume it first")
    if state.plan.inventory is not None and unit not in state.plan.inventory:
        return Problem(f"unit {unit} is being removed")
    if agent not in state.members.by_name or not state.members.by_name[agent].accepts:
        return Problem(f"agent {agent} is unknown, away or draining")
    if not configuration.has_active_config(state, state.members.by_name[agent]):
        return Problem(f"agent {agent} does not have the active configuration", "see `rowlock agents list`")
    primary = state.sets.by_unit[unit].primary
    is_there = primary is not None and primary.agent == agent
    return Problem(f"unit {unit} is on agent {agent} already") if is_there else None


def _explain_cancel_refusal(state: LeaderState, unit: str) -> Problem | None:
    if unit not in state.sets.by_unit:
        return Problem(f"there is no unit {unit}")
    current = state.sets.by_unit[unit]
    if any(m.unit == unit for m in state.plan.moves):
        return None
    if not _is_cancellable(current):
        late = "the old agent was already asked to stop, so the move continues to its end"
        moving = current.state is SetState.COMMIT and len(current.replicas) > 1
        return Problem(f"unit {unit}: {late}" if moving else f"unit {unit} is not being moved")
    primary = current.primary
    member = None if primary is None else state.members.by_name.get(primary.agent)
    if member is None or not member.leaving:
        return None
    return Problem(f"agent {member.name} is giving up its units", "undrain it instead")


def _explain_undrain_refusal(state: LeaderState, agent: str) -> Problem | None:
    member = state.members.by_name.get(agent)
    if member is None:
        return Problem(f"there is no agent {agent}")
    if member.liveness is Liveness.STOPPING and member.state is not MemberState.EXPIRED:
        return Problem(f"agent {agent} reports that it is stopping", "start it again")
    return None
