"""The operators' view of a term, built from the leader's state. Pure; linear in units (about 3 µs each)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from coordinator.core.health import WELL
from coordinator.core.leader.configuration import has_active_config
from coordinator.core.leader.state import LeaderState
from coordinator.core.leader.unit_sets import UnitMemo
from coordinator.core.members import Member
from coordinator.core.progress import PipelineProgress
from coordinator.core.replication import Replica, ReplicationSet
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import InventoryUnit
from coordinator.server.operators.api import AgentRow, LeaderView, PipelineRow, UnitRow, View
from schemas.units import ApplyName, CaptureName, parse_unit_name


def build_leader_view(
    state: LeaderState,
    leader: LeaderView | None,
    now: float,
    *,
    errors: dict[str, str],
    streams: Mapping[str, Mapping[str, int]],
    counters: Mapping[str, int],
) -> View:
    """Return the view at `now`. `streams`: counters of each connected agent. Errors of units that
    replicate are removed from `errors`.
    """
    rates: Counter[str] = Counter()
    units = tuple(
        _build_unit_row(state, state.sets.by_unit[name], now, errors, rates)
        for name in sorted(state.sets.by_unit)
    )
    agents = tuple(
        _build_agent_row(state, member, now, rates[name], streams.get(name))
        for name, member in sorted(state.members.by_name.items())
    )
    dropped = {f"dropped.{why}": count for why, count in sorted(state.history.dropped.items())}
    waiting = {"persist.waiting": len(state.numbers.waiting), "units.unsettled": len(state.sets.unsettled)}
    return View(leader, agents, units, list_pipeline_rows(state), {**counters, **dropped, **waiting})


def list_pipeline_rows(state: LeaderState) -> tuple[PipelineRow, ...]:
    """Return the stored progress of the pipelines. The next leader begins with it, so nothing shown goes
    back.
    """
    return tuple(
        _build_pipeline_row(name, state.pipelines.stored.get(name, PipelineProgress()), now.waits_for)
        for name, now in sorted(state.pipelines.progress.items())
        if name in state.pipelines.units
    )


def _build_pipeline_row(name: str, p: PipelineProgress, waits_for: tuple[str, ...]) -> PipelineRow:
    by_source = {source: ts for source, ts in p.by_source.items() if ts}
    return PipelineRow(
        name, p.checkpoint_ts or None, p.resolved_ts or None, p.cut_ts or None, by_source, waits_for
    )


def _build_unit_row(
    state: LeaderState, current: ReplicationSet, now: float, errors: dict[str, str], rates: Counter[str]
) -> UnitRow:
    name, memo = current.unit, state.sets.memos[current.unit]
    spec = state.plan.find_unit(name)
    primary, secondary = current.primary, current.secondary
    shown = primary or secondary or (current.replicas[-1] if current.replicas else None)
    if current.state is SetState.REPLICATING:
        errors.pop(name, None)
    if primary is not None:
        rates[primary.agent] += memo.rows_per_s
    mark = memo.mark
    kind, source, pipeline = _find_identity(name, spec)
    return UnitRow(
        name,
        kind,
        source,
        pipeline,
        current.state.value,
        shown.agent if shown else None,
        shown.assignment if shown else 0,
        (mark.checkpoint_ts or None) if mark else None,  # a mark has 0 for a time that is not known
        (mark.resolved_ts or None) if mark else None,
        ":".join(map(str, mark.position)) if mark and mark.position else None,
        memo.rows_per_s if primary is not None else 0,
        name in state.sets.paused,
        memo.waits if current.state is SetState.REPLICATING else errors.get(name),
        round(now - memo.since, 3),
        _find_move_target(primary, secondary),
        0 if _is_stable(state, current, memo, now) else memo.failures,
        state.sets.restricted.get(name),
    )


def _is_stable(state: LeaderState, current: ReplicationSet, memo: UnitMemo, now: float) -> bool:
    """Return whether the unit has replicated for so long that its earlier failures no longer count."""
    return current.state is SetState.REPLICATING and now - memo.since >= state.config.stable_after


def _find_identity(name: str, spec: InventoryUnit | None) -> tuple[str, str, str | None]:
    """Return kind, source and pipeline. For a unit that is no longer in the inventory they are taken
    from its name.
    """
    if spec is not None:
        return spec.kind.value, spec.source, spec.pipeline
    named = parse_unit_name(name)
    source = named.source if isinstance(named, CaptureName) else ""
    pipeline = named.pipeline if isinstance(named, ApplyName) else None
    return name.partition("/")[0], source, pipeline


def _find_move_target(primary: Replica | None, secondary: Replica | None) -> str | None:
    return secondary.agent if primary is not None and secondary is not None else None


def _build_agent_row(
    state: LeaderState, member: Member, now: float, rows_per_s: int, stream: Mapping[str, int] | None
) -> AgentRow:
    health = state.members.health.get(member.name, WELL)
    rest = health.backs_off(now)
    return AgentRow(
        member.name,
        member.incarnation,
        member.agent_epoch,
        member.state.value,
        member.liveness.value,
        member.draining,
        round(max(0.0, now - member.heard_at), 3),
        len(state.sets.by_agent.get(member.name, {})),
        rows_per_s,
        stream is not None,
        dict(stream or {}),
        health.failures,
        None if rest is None else round(rest, 1),
        member.config.digest if member.config is not None else "",
        has_active_config(state, member),
        member.version,
        member.slots,
    )
