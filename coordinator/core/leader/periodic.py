"""The leader's periodic work: give up preparations that hang, plan, compute progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from coordinator.core.leader.configuration import accepts_units, is_stale
from coordinator.core.leader.failures import (
    compute_agent_room,
    find_avoided_agent,
    record_unit_failure,
)
from coordinator.core.leader.patience import has_prepare_timed_out
from coordinator.core.leader.sets import (
    apply_event_to_set,
    fence_unless_desired,
    find_desired_unit,
    persist_records,
    take_next_number,
)
from coordinator.core.leader.state import Alarm, LeaderDecision, LeaderState
from coordinator.core.members import MemberState
from coordinator.core.progress import PipelineUnits
from coordinator.core.records import PipelineRecord
from coordinator.core.replication import Assign, Cancel, Remove, ReplicationSet, SetRefusedError
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import (
    AddTask,
    AgentView,
    InventoryUnit,
    MoveTask,
    RemoveTask,
    RequestedMoves,
    SchedulerView,
    ScheduleTask,
    UnitKind,
    UnitView,
    plan_tasks,
)
from schemas.units import UnitProgress

AgentPlace = tuple[str, UnitKind, str | None]


def abandon_stuck_preparations(state: LeaderState, now: float, out: list[LeaderDecision]) -> None:
    """Give up a preparation or start that takes too long (`patience`). A stop is only reported, because
    nothing can replace it.
    """
    for unit in list(state.sets.unsettled):
        memo, current = state.sets.memos[unit], state.sets.by_unit[unit]
        if not has_prepare_timed_out(state, memo, now):
            continue
        hangs = current.secondary if current.state is SetState.PREPARE else None
        if current.state is SetState.COMMIT and current.secondary is None and not current.leaving:
            hangs = current.primary
        if hangs is None:
            memo.wait_again(now)
            out.append(Alarm("unit does not settle", f"unit {unit} is {current.state.value}"))
            continue
        memo.give_up_preparation()
        record_unit_failure(state, unit, hangs.agent, now, unready=True)
        moving = current.state is SetState.PREPARE and current.primary is not None
        out.append(Alarm("preparation given up", f"unit {unit} on agent {hangs.agent}"))
        waited = f"agent {hangs.agent} had not prepared it after {now - memo.since:.0f} s"
        state.history.set_reason(unit, waited, "failure")
        apply_event_to_set(state, unit, Cancel() if moving else Remove(), now, out)


def retry_fences(state: LeaderState, now: float, out: list[LeaderDecision]) -> None:
    """Request again the fences that are not confirmed, and drop those of units that are to run again."""
    for unit, asked in list(state.sets.fencing.items()):
        if (
            find_desired_unit(state, unit) is not None
            or state.sets.by_unit[unit].state is not SetState.ABSENT
        ):
            del state.sets.fencing[unit]
            state.sets.memos[unit].end_fence()
        elif now >= asked + 5 * state.config.interval:
            fence_unless_desired(state, unit, now, out)


def schedule_units(state: LeaderState, now: float, out: list[LeaderDecision]) -> None:
    """Make a plan if anything can have changed, and carry it out."""
    plan, config = state.plan, state.config
    if plan.inventory is None or not _has_work(state, now):
        return
    balance = now >= plan.next_balance
    requested = RequestedMoves(plan.moves, plan.rebalance, balance)
    view = build_scheduler_view(state, now, whole=_may_move_units(state, requested))
    planned = plan_tasks(view, requested, config.limits)
    has_more = len([t for t in planned.tasks if isinstance(t, AddTask)]) >= config.limits.burst
    ends_balancing = balance and planned.by != "balance"
    pause = config.interval if planned.full else config.balance_every
    plan.finish(planned, now + pause if ends_balancing else None, has_more=has_more)
    for task in planned.tasks:
        if isinstance(task, MoveTask):
            state.history.record_move(task.unit, planned.by)
        _apply_task(state, task, now, out)
    _keep_moves(state, {task.unit for task in planned.tasks if isinstance(task, MoveTask)}, now, out)


def _keep_moves(state: LeaderState, begun: set[str], now: float, out: list[LeaderDecision]) -> None:
    """Forget requested moves that have begun or can never begin, together with their records."""
    over: list[str] = []
    for move in state.plan.moves:
        why = None if move.unit in begun else explain_impossible_move(state, move.unit, move.agent)
        if why is not None:
            out.append(Alarm("move dropped", f"unit {move.unit}: {why}"))
        if why is not None or move.unit in begun:
            state.plan.forget_move(move.unit)
            over.append(f"move/{move.unit}")
    if over:
        persist_records(state, [], now, out, delete=over)


def explain_impossible_move(state: LeaderState, unit: str, agent: str) -> str | None:
    """Return why a requested move that has not begun can never begin, or None. An agent that this leader
    has not heard yet may still appear.
    """
    member = state.members.by_name.get(agent)
    current = state.sets.by_unit.get(unit)
    if member is None or member.leaving or member.state is MemberState.EXPIRED:
        return f"agent {agent} is away or draining"
    if current is None:
        return "it no longer exists"
    at = current.primary
    return f"it is on agent {agent} already" if at is not None and at.agent == agent else None


def _has_work(state: LeaderState, now: float) -> bool:
    units_wake, agents_wake = state.sets.wake_retries(now), state.members.wake_backed_off(now)
    if units_wake or agents_wake:
        state.plan.note_change()
    return state.plan.is_due(now)


def _may_move_units(state: LeaderState, requested: RequestedMoves) -> bool:
    """Return whether any unit may be moved. Then the units that replicate undisturbed are examined one
    by one.
    """
    leaving = any(m.leaving and state.sets.by_agent.get(name) for name, m in state.members.by_name.items())
    return leaving or bool(requested.moves) or requested.rebalance or requested.balance


def build_scheduler_view(state: LeaderState, now: float, *, whole: bool) -> SchedulerView:
    """Return the schedulers' view. Unless `whole`, it contains only the sums of units that replicate
    undisturbed (nearly all).
    """
    agents = tuple(
        AgentView(
            name, accepts_units(state, member), member.leaving, room=compute_agent_room(state, name, now)
        )
        for name, member in sorted(state.members.by_name.items())
    )
    if whole:
        return SchedulerView(
            agents,
            tuple(
                _build_unit_view(state, state.sets.by_unit[unit], now) for unit in sorted(state.sets.by_unit)
            ),
        )
    others, number, rows = _summarize_steady_units(state)
    steady = {key: (count, rows[key]) for key, count in number.items()}
    return SchedulerView(
        agents,
        tuple(_build_unit_view(state, state.sets.by_unit[unit], now) for unit in sorted(others)),
        steady,
    )


def _summarize_steady_units(state: LeaderState) -> tuple[list[str], Counter[AgentPlace], Counter[AgentPlace]]:
    """Return the units that do not replicate undisturbed, and the number and rows a second of the others
    by place.

    This is one short loop, because it is most of the cost of a plan.
    """
    others: list[str] = []
    number: Counter[AgentPlace] = Counter()
    rows: Counter[AgentPlace] = Counter()
    inventory, memos = state.plan.inventory or {}, state.sets.memos
    unsteady = {*state.sets.paused, *state.sets.restricted}
    since = any(state.configuration.since.values())
    for unit, current in state.sets.by_unit.items():
        spec = inventory.get(unit)
        memo = memos[unit]
        undisturbed = current.state is SetState.REPLICATING and len(current.replicas) == 1
        if (
            not undisturbed
            or spec is None
            or memo.uid != spec.uid
            or unit in unsteady
            or (since and is_stale(state, spec, current))
        ):
            others.append(unit)
            continue
        place = (current.replicas[0].agent, spec.kind, spec.apart)
        number[place] += 1
        rows[place] += memo.rows_per_s
    return others, number, rows


def _build_unit_view(state: LeaderState, current: ReplicationSet, now: float) -> UnitView:
    memo, spec = state.sets.memos[current.unit], find_desired_unit(state, current.unit)
    same = spec is not None and (
        current.state is SetState.ABSENT or (memo.uid == spec.uid and not is_stale(state, spec, current))
    )
    primary = current.primary
    if current.unit in state.sets.restricted:  # it counts as load, and no scheduler touches it
        known = spec or InventoryUnit(current.unit, UnitKind.APPLY, "")
        at = tuple(replica.agent for replica in current.replicas[-1:])
        return UnitView(known, SetState.RECOVERING, holders=at, rows_per_s=memo.rows_per_s)
    return UnitView(
        spec or InventoryUnit(current.unit, UnitKind.APPLY, ""),
        current.state,
        primary.agent if primary else None,
        tuple(r.agent for r in current.replicas),
        memo.rows_per_s,
        same,
        memo.due_at <= now,
        find_avoided_agent(state, memo, now),
    )


def _apply_task(state: LeaderState, task: ScheduleTask, now: float, out: list[LeaderDecision]) -> None:
    try:
        match task:
            case RemoveTask(unit):
                state.history.set_reason(unit, _find_removal_reason(state, unit))
                apply_event_to_set(state, unit, Remove(), now, out)
            case AddTask(unit, agent) | MoveTask(unit, agent):
                spec = find_desired_unit(state, unit)
                if spec is not None:
                    state.sets.renew_identity(unit, spec.uid)
                member = state.members.by_name[agent]
                apply_event_to_set(
                    state, unit, Assign(agent, member.agent_epoch, take_next_number(state)), now, out
                )
    except SetRefusedError as refused:
        state.history.count_dropped("plan refused")
        out.append(Alarm("plan refused", str(refused)))


def _find_removal_reason(state: LeaderState, unit: str) -> str:
    """Return the reason to remove the unit."""
    if unit in state.sets.paused:
        return "paused"
    spec = state.plan.find_unit(unit)
    if spec is None:
        return "it is no longer configured, or its topic no longer exists"
    anew = state.sets.memos[unit].uid != spec.uid
    return "its topic was created again" if anew else "its configuration has changed"


# progress


def collect_pipeline_units(
    state: LeaderState, sources: Mapping[str, Iterable[str]]
) -> dict[str, PipelineUnits]:
    """Return the units that the progress of each pipeline is computed from, by the inventory and the
    `sources` of each pipeline.
    """
    found: dict[str, dict[str, list[str]]] = {
        pipeline: {source: [] for source in of_pipeline} for pipeline, of_pipeline in sources.items()
    }
    for unit, spec in (state.plan.inventory or {}).items():
        if spec.pipeline is not None and spec.kind is UnitKind.APPLY:
            found.setdefault(spec.pipeline, {}).setdefault(spec.source, []).append(unit)
    return {
        pipeline: PipelineUnits(
            pipeline, {source: tuple(sorted(units)) for source, units in by_source.items()}
        )
        for pipeline, by_source in sorted(found.items())
    }


def advance_pipelines(state: LeaderState, now: float, out: list[LeaderDecision]) -> None:
    """Advance the progress of the pipelines, and store it at intervals, one store at a time."""
    pipelines, memos = state.pipelines, state.sets.memos
    if state.plan.inventory is None or now < pipelines.next_progress:
        return
    marks: dict[str, UnitProgress | None] = {
        unit: memos[unit].mark for unit, spec in state.plan.inventory.items() if memos[unit].uid == spec.uid
    }
    pipelines.advance(marks, now + state.config.interval)
    unstored = pipelines.find_unstored(now)
    if unstored:
        persist_records(state, [PipelineRecord(p, v) for p, v in unstored.items()], now, out)
        pipelines.begin_store(state.numbers.token, unstored, now + state.config.progress_every)
