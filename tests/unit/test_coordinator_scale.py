"""What makes the owner fast at many units changes nothing that it decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.leader.periodic import build_scheduler_view
from coordinator.core.leader.sets import compute_heartbeat_interval
from coordinator.core.leader.state import LeaderConfig, LeaderState
from coordinator.core.leader.term_state import TermClaim
from coordinator.core.leader.unit_sets import UnitMemo
from coordinator.core.members import Member, MemberState
from coordinator.core.messages import Liveness
from coordinator.core.progress import advance_mark
from coordinator.core.replication import Replica, ReplicationSet
from coordinator.core.replication_table import ReplicaPhase, Role, SetState
from coordinator.core.schedulers import (
    AgentLoads,
    AgentView,
    InventoryUnit,
    MoveLimits,
    RequestedMoves,
    SchedulerView,
    UnitKind,
    UnitView,
    plan_tasks,
)
from schemas.units import UnitProgress

AGENTS = "ABCD"
_P, _S, _U = Role.PRIMARY, Role.SECONDARY, Role.UNDETERMINED
SHAPES: list[tuple[SetState, tuple[Role, ...]]] = [
    (SetState.ABSENT, ()),
    (SetState.REPLICATING, (_P,)),
    (SetState.REPLICATING, (_P,)),
    (SetState.REPLICATING, (_U, _P)),
    (SetState.PREPARE, (_S,)),
    (SetState.PREPARE, (_P, _S)),
    (SetState.COMMIT, (_S,)),
    (SetState.REMOVING, (_U,)),
    (SetState.RECOVERING, (_U,)),
]


@st.composite
def owners(draw: st.DrawFn) -> LeaderState:
    """An owner with some agents and units in any state; times are around 100."""
    state = LeaderState(
        "o",
        5,
        LeaderConfig(
            limits=MoveLimits(burst=draw(st.sampled_from([1, 3, 100])), agent_burst=draw(st.integers(1, 3)))
        ),
        TermClaim(0.0),
    )
    for name in AGENTS:
        where = draw(st.sampled_from(list(MemberState)))
        liveness = draw(st.sampled_from([Liveness.ALIVE, Liveness.ALIVE, Liveness.STOPPING]))
        state.members.by_name[name] = Member(name, "i", 1, 0.0, state=where, liveness=liveness)
    state.plan.inventory = {}
    for number in range(draw(st.integers(0, 12))):
        _unit(draw, state, f"u{number:02}")
    return state


def _unit(draw: st.DrawFn, state: LeaderState, unit: str) -> None:
    shape, roles = draw(st.sampled_from(SHAPES))
    agents = draw(st.permutations(AGENTS))
    replicas = tuple(
        Replica(agent, 1, assignment, role, seen=ReplicaPhase.REPLICATING)
        for assignment, (agent, role) in enumerate(zip(agents, roles, strict=False), start=1)
    )
    state.sets.by_unit[unit] = ReplicationSet(unit, shape, replicas)
    memo = UnitMemo(draw(st.sampled_from(["1", "1", "2"])), rows_per_s=draw(st.integers(0, 50)))
    memo.failures, memo.avoid = draw(st.sampled_from([(0, None), (1, "A")]))
    memo.due_at = draw(st.sampled_from([0.0, 200.0]))
    state.sets.memos[unit] = memo
    apart, kind = draw(st.sampled_from([None, None, "x"])), draw(st.sampled_from(UnitKind))
    if draw(st.integers(0, 5)):
        assert state.plan.inventory is not None
        state.plan.inventory[unit] = InventoryUnit(unit, kind, "s", "p", "1", apart)
    if not draw(st.integers(0, 6)):
        state.sets.paused[unit] = None


@given(owners())
@settings(max_examples=150)
def test_a_plan_without_movers_is_the_same_from_sums(state: LeaderState) -> None:
    whole, sums = (build_scheduler_view(state, 100.0, whole=whole) for whole in (True, False))
    # a plan with no wishes still drains: the owner then looks at all units
    whole = replace(whole, agents=tuple(replace(agent, draining=False) for agent in whole.agents))
    sums = replace(sums, agents=whole.agents)
    limits = state.config.limits
    assert plan_tasks(sums, RequestedMoves(), limits) == plan_tasks(whole, RequestedMoves(), limits)
    loads = [AgentLoads(seen, limits) for seen in (whole, sums)]
    for agent in AGENTS:
        for kind in UnitKind:
            assert loads[0].get_load(agent, kind) == loads[1].get_load(agent, kind)


_units = st.lists(
    st.tuples(st.sampled_from(UnitKind), st.integers(0, 9), st.sampled_from(["", "A", "B"])), max_size=15
)


@given(_units, st.lists(st.booleans(), min_size=4, max_size=4))
@settings(max_examples=100)
def test_the_least_loaded_agent_is_found_without_looking_at_all(
    units: list[Any], accepts: list[bool]
) -> None:
    agents = tuple(AgentView(name, one) for name, one in zip(AGENTS, accepts, strict=True))
    placed = [
        UnitView(InventoryUnit(f"p{i}", kind, "s"), SetState.REPLICATING, at, (at,), rows)
        for i, (kind, rows, at) in enumerate(units)
        if at
    ]
    loads = AgentLoads(SchedulerView(agents, tuple(placed)), MoveLimits(agent_burst=5))
    for number, (kind, rows, _) in enumerate(units):
        new = UnitView(InventoryUnit(f"n{number}", kind, "s"), SetState.ABSENT, rows_per_s=rows)
        able = [name for name in loads.agents if loads.can_take(new, name)]
        best = loads.find_best_agent(new)
        assert best == min(able, key=lambda name: loads._rank_agent(new, name), default=None)
        if best is not None:
            loads.place_new_unit(new, best)
        if placed and number % 3 == 0:
            loads.place_unit(placed[0], placed[0].primary or "", -1)  # as a move does: a load goes down
            loads.place_unit(placed[0], "C")


_marks = st.builds(
    UnitProgress, st.integers(0, 3), st.integers(0, 3), st.none() | st.tuples(*[st.integers(0, 1)] * 4)
)


@given(_marks, _marks)
@settings(max_examples=200)
def test_forward_is_the_greater_of_each_part(known: UnitProgress, reported: UnitProgress) -> None:
    checkpoint = max(known.checkpoint_ts, reported.checkpoint_ts)
    positions = [mark.position for mark in (known, reported) if mark.position is not None]
    resolved = max(known.resolved_ts, reported.resolved_ts, checkpoint)
    assert advance_mark(known, reported) == UnitProgress(checkpoint, resolved, max(positions, default=None))


@pytest.mark.parametrize(
    ("units", "seconds"), [(0, 1.0), (5_000, 1.0), (10_000, 2.0), (12_500, 2.5), (100_000, 2.5)]
)
def test_heartbeats_come_more_seldom_with_many_units_and_well_within_the_lease(
    units: int, seconds: float
) -> None:
    state = LeaderState("o", 5, LeaderConfig(interval=1.0, lease=10.0, statuses_per_s=5000), TermClaim(0.0))
    state.sets.by_unit = {str(number): ReplicationSet(str(number)) for number in range(units)}
    assert compute_heartbeat_interval(state) == seconds
