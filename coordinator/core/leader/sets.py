"""Steps replication sets, and turns their outputs into messages and durable records."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core import replication
from coordinator.core.leader.inventory_shrinks import parse_pipeline_name
from coordinator.core.leader.state import (
    Alarm,
    Fence,
    LeaderDecision,
    LeaderState,
    Persist,
    SendMessage,
)
from coordinator.core.leader.term_state import PendingRecord
from coordinator.core.leader.unit_sets import UnitMemo
from coordinator.core.messages import Dispatch, Header
from coordinator.core.records import CounterRecord, DurableRecord, UnitRecord, build_record_key
from coordinator.core.replication import ImpossibleReport, Instruct, Replica, ReplicationSet, SetInput
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import InventoryUnit
from schemas.units import UnitOperation

_UNKNOWN_TARGET = "its record cannot be read and it is not in the inventory, so its target is not known"


def take_next_number(state: LeaderState) -> int:
    """Return a number that was never given before, to a unit or to an agent."""
    return state.numbers.take_next()


def build_leader_header(state: LeaderState, agent_epoch: int, assignment: int = 0) -> Header:
    return Header(state.rev, agent_epoch, assignment, state.numbers.take_op_seq())


def compute_heartbeat_interval(state: LeaderState) -> float:
    """Return the seconds between two heartbeats of an agent: longer with many units, at most a quarter
    of the lease.
    """
    config = state.config
    return max(config.interval, min(len(state.sets.by_unit) / config.statuses_per_s, config.lease / 4))


def persist_records(
    state: LeaderState,
    records: Iterable[DurableRecord],
    now: float,
    out: list[LeaderDecision],
    *,
    delete: Iterable[str] = (),
    unit: tuple[str, int] | None = None,
    agent: tuple[str, int] | None = None,
    fence: tuple[str, int] | None = None,
) -> None:
    """Store records (always with the counter) and delete others; `unit`, `agent` or `fence` waits for it."""
    token = state.numbers.begin_persist(PendingRecord(now, unit, agent, fence))
    stored = [(build_record_key(r), r) for r in (CounterRecord(state.numbers.counter), *records)]
    out.append(Persist(token, (*stored, *((key, None) for key in delete))))


def apply_event_to_set(
    state: LeaderState, unit: str, event: SetInput, now: float, out: list[LeaderDecision]
) -> None:
    """Step the unit's set, carry out its outputs, and keep the indexes. A restricted unit is left as it
    is. Raises SetRefusedError as the set does.
    """
    if unit in state.sets.restricted:
        return
    before = state.sets.by_unit.get(unit)
    if before is None:
        before = ReplicationSet(unit)  # the agent reports a unit that is not in the inventory: an orphan
    state.sets.cells.update(replication.list_cells(before, event))
    after, results = replication.step_set(before, event)
    for result in results:
        match result:
            case Instruct():
                _send_instruction(state, unit, result, out)
            case replication.PersistReplicas(assignment, replicas):
                record = _build_unit_record(state, unit, replicas)
                persist_records(state, [record], now, out, unit=(unit, assignment))
            case ImpossibleReport(cell, agent, assignment):
                words = "/".join(part.value for part in cell)
                out.append(
                    Alarm(
                        "impossible report", f"unit {unit}, agent {agent}, assignment {assignment}: {words}"
                    )
                )
    if after != before:
        _handle_set_change(state, before, after, now, out)


def _send_instruction(state: LeaderState, unit: str, what: Instruct, out: list[LeaderDecision]) -> None:
    member, memo = state.members.by_name.get(what.agent), state.sets.memos.get(unit)
    echo, lease = 0.0, 0.0
    if what.op is UnitOperation.START and member is not None and member.agent_epoch == what.agent_epoch:
        echo, lease = member.echo, state.config.lease
    head = build_leader_header(state, what.agent_epoch, what.assignment)
    out.append(
        SendMessage(what.agent, Dispatch(head, unit, what.op, memo.mark if memo else None, echo, lease))
    )


def _build_unit_record(state: LeaderState, unit: str, replicas: tuple[Replica, ...]) -> UnitRecord:
    memo = state.sets.memos[unit]
    return UnitRecord(unit, memo.uid, memo.store_replicas(replicas))


def _handle_set_change(
    state: LeaderState, before: ReplicationSet, after: ReplicationSet, now: float, out: list[LeaderDecision]
) -> None:
    unit = after.unit
    state.sets.replace_set(before, after)
    if [(r.assignment, r.role) for r in before.replicas] == [
        (r.assignment, r.role) for r in after.replicas
    ] and (before.state is after.state):
        return
    state.history.record_unit_change(before, after, now)
    memo = state.sets.begin_state(after, now)
    state.plan.note_change()
    if after.state is SetState.ABSENT:
        fence_unless_desired(state, unit, now, out)
    elif after.state is SetState.REPLICATING and len(memo.recorded) > len(after.replicas):
        persist_records(state, [_build_unit_record(state, unit, after.replicas)], now, out)


def find_desired_unit(state: LeaderState, unit: str) -> InventoryUnit | None:
    """Return the unit from the inventory if it is to run."""
    spec = state.plan.find_unit(unit)
    return None if spec is None or unit in state.sets.paused else spec


def fence_unless_desired(state: LeaderState, unit: str, now: float, out: list[LeaderDecision]) -> None:
    """Fence a unit that is not to run. Since no agent takes the unit over, nothing else would fence an
    agent that was only considered lost.
    """
    if unit in state.sets.restricted:
        return
    memo = state.sets.memos[unit]
    absent = state.sets.by_unit[unit].state is SetState.ABSENT
    if state.plan.inventory is None or find_desired_unit(state, unit) is not None or not absent:
        return
    if not memo.recorded:
        forget_absent_unit(state, unit, now, out)
        return
    state.sets.fencing[unit] = now
    if not memo.fence:
        memo.begin_fence(take_next_number(state))
        persist_records(state, [], now, out, fence=(unit, memo.fence))
        if not _has_known_target(unit, memo):
            out.append(Alarm("unit not fenced", f"unit {unit}: {_UNKNOWN_TARGET}"))
    elif memo.fence_durable and _has_known_target(unit, memo):
        out.append(Fence(unit, memo.uid, memo.fence))


def _has_known_target(unit: str, memo: UnitMemo) -> bool:
    """Return whether a fence of the unit reaches its target. A capture unit has none."""
    return bool(memo.uid) or parse_pipeline_name(unit) is None


def fence_stored(
    state: LeaderState, unit: str, assignment: int, now: float, out: list[LeaderDecision]
) -> None:
    """Note that the assignment of a fence is durable: no later leader gives a lower one, whatever its
    clock shows.
    """
    memo = state.sets.memos.get(unit)
    if memo is not None and memo.fence == assignment:
        memo.confirm_fence_stored()
        fence_unless_desired(state, unit, now, out)


def confirm_fenced(
    state: LeaderState, unit: str, assignment: int, now: float, out: list[LeaderDecision]
) -> None:
    """Delete the unit's record, because no process can write for the unit any more. If the record cannot be
    trusted, the target of the inventory is fenced first.
    """
    memo = state.sets.memos.get(unit)
    if memo is None or memo.fence != assignment or unit in state.sets.restricted:
        return
    state.sets.fencing.pop(unit, None)
    memo.end_fence()
    if find_desired_unit(state, unit) is None and state.sets.by_unit[unit].state is SetState.ABSENT:
        spec = state.plan.find_unit(unit)
        if spec is not None and memo.begin_next_target(spec.uid):
            fence_unless_desired(state, unit, now, out)
            return
        persist_records(state, [_build_unit_record(state, unit, ())], now, out)
        forget_absent_unit(state, unit, now, out)


def forget_absent_unit(state: LeaderState, unit: str, now: float, out: list[LeaderDecision]) -> None:
    """Drop an absent unit that is not in the inventory, with its record."""
    if state.plan.inventory is None or unit in state.plan.inventory:
        return
    paused = [f"paused/{unit}"] if state.sets.forget_unit(unit) else []
    state.history.forget_unit(unit)
    persist_records(
        state, [], now, out, delete=[f"unit/{unit}", *paused]
    )  # a requested move of the unit is dropped with the next plan
