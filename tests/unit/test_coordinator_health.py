"""An agent that gets nothing ready: judged as a whole, backed off, tried again, cleared; what that does to
plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core import health
from coordinator.core.health import WELL, AgentHealth, HealthConfig
from coordinator.core.leader.state import Inventory, LeaderConfig, Move, Tick
from coordinator.core.messages import Hello, UnitStatus
from coordinator.core.replication_table import Role, SetState
from coordinator.core.schedulers import (
    AddTask,
    AgentView,
    MoveLimits,
    MoveRequest,
    MoveTask,
    RequestedMoves,
    plan_tasks,
)
from coordinator.server.operators import view as views
from schemas.units import UnitPhase
from tests.kits.leader_core import CONFIG, Cluster, spec
from tests.kits.schedulers import BALANCE, MANY, unit, view

QUICK = HealthConfig(failures=2, retry_first=10.0, retry_most=40.0, trust_after=5.0)


def after(*units: str, at: float = 100.0) -> AgentHealth:
    known = WELL
    for name in units:
        known = health.record_agent_failure(known, name, at, QUICK)
    return known


def test_one_unit_that_fails_again_and_again_does_not_blame_the_agent() -> None:
    assert after("u", "u", "u").trusted
    assert after("u", "u", "u").failures == 3


def test_several_units_do_and_each_round_is_longer_up_to_a_limit() -> None:
    known, waits = after("u", "v"), []
    for _ in range(4):
        assert not known.trusted
        waits.append(known.due_at - known.failed_at)
        known = health.record_agent_failure(known, "v", known.due_at, QUICK)
    assert waits == [10.0, 20.0, 40.0, 40.0]


def test_what_had_begun_before_it_backed_off_says_nothing_new() -> None:
    known = after("u", "v", "w", "y")
    assert (known.rounds, known.failures, known.due_at) == (1, 4, 110.0)


def test_while_it_backs_off_there_is_no_room_then_for_one_on_trial() -> None:
    known = after("u", "v")
    assert known.compute_room(109.9, 0) == 0
    assert known.compute_room(110.0, 0) == 1
    assert known.compute_room(110.0, 1) == 0
    assert known.backs_off(105.0) == 5.0
    assert WELL.compute_room(0.0, 7) is None
    assert WELL.backs_off(0.0) is None


# plans

ILL = [AgentView("A"), AgentView("B"), AgentView("C", room=0)]


def test_nothing_is_placed_on_or_moved_to_an_agent_that_backs_off() -> None:
    new = view(ILL, *[unit(f"u{i}") for i in range(6)])
    assert {
        task.agent for task in plan_tasks(new, RequestedMoves(), MANY).tasks if isinstance(task, AddTask)
    } == {"A", "B"}
    loaded = view(ILL, *[unit(f"u{i}", "AB"[i % 2]) for i in range(12)])
    assert not plan_tasks(loaded, BALANCE, MANY).tasks
    drained = view([replace(ILL[0], accepts=False, draining=True), *ILL[1:]], unit("u", "A"))
    assert plan_tasks(drained, RequestedMoves(), MANY).tasks == (MoveTask("u", "B", "drain"),)


def test_an_agent_on_trial_gets_one() -> None:
    trial = [*ILL[:2], AgentView("C", room=1)]
    loaded = view(trial, *[unit(f"u{i}", "AB"[i % 2]) for i in range(12)])
    assert [task.agent for task in plan_tasks(loaded, BALANCE, MANY).tasks] == ["C"]
    new = view(trial, *[unit(f"u{i}") for i in range(9)])
    assert [task.agent for task in plan_tasks(new, RequestedMoves(), MANY).tasks].count("C") == 1


def test_where_all_back_off_units_are_placed_all_the_same_and_nothing_moves() -> None:
    alone = [AgentView("A", room=0), AgentView("B", accepts=False)]
    assert plan_tasks(view(alone, unit("u")), RequestedMoves(), MANY).tasks == (AddTask("u", "A"),)
    both = [AgentView("A", room=0), AgentView("B", room=0)]
    assert not plan_tasks(view(both, *[unit(f"u{i}", "A") for i in range(8)]), BALANCE, MANY).tasks


def test_whoever_names_the_agent_is_obeyed() -> None:
    asked = RequestedMoves((MoveRequest("u", "C"),))
    assert plan_tasks(view(ILL, unit("u", "A")), asked, MANY).tasks == (MoveTask("u", "C", "move"),)


def test_balance_leaves_a_unit_that_waits_and_does_not_send_one_where_it_failed() -> None:
    waits = [unit(f"u{i}", "A", due=False) for i in range(6)]
    assert not plan_tasks(view("AB", *waits), BALANCE, MANY).tasks
    failed = [unit(f"u{i}", "A", avoid="B") for i in range(6)]
    assert not plan_tasks(view("AB", *failed), BALANCE, MANY).tasks
    apart = [unit("u0", "A", apart="x", avoid="B"), unit("u1", "A", apart="x", avoid="B")]
    assert not plan_tasks(view("AB", *apart), BALANCE, MoveLimits()).tasks


def test_drain_leaves_a_unit_that_waits() -> None:
    draining = [AgentView("A", accepts=False, draining=True), AgentView("B")]
    assert not plan_tasks(view(draining, unit("u", "A", due=False)), RequestedMoves(), MANY).tasks


# the owner

HOLES = replace(CONFIG, health=QUICK, retry_first=0.0, retry_most=0.0, limits=MANY, balance_every=5.0)


def hole(cluster: Cluster, agent: str) -> int:
    """Let every preparation on the agent fail; returns how many there were."""
    held = [
        (u, r.assignment)
        for u, s in sorted(cluster.state.sets.by_unit.items())
        for r in s.replicas
        if r.agent == agent
    ]
    cluster.beat(
        agent, *[UnitStatus(u, assignment, UnitPhase.STOPPED, error="no Java") for u, assignment in held]
    )
    return len(held)


def well(cluster: Cluster, agent: str) -> list[UnitStatus]:
    """What an agent says that does as it is told, at once."""
    reported = {
        Role.SECONDARY: UnitPhase.PREPARED,
        Role.PRIMARY: UnitPhase.REPLICATING,
        Role.UNDETERMINED: UnitPhase.STOPPED,
    }
    return [
        UnitStatus(unit, r.assignment,
        UnitPhase.STOPPED if r is s.primary and s.secondary and s.state is SetState.COMMIT else reported[r.role])  # noqa: E501
        for unit, s in cluster.state.sets.by_unit.items() for r in s.replicas if r.agent == agent
    ]  # fmt: skip


def run(cluster: Cluster, seconds: float, *holes: str) -> int:
    """Let time pass: everything works but on `holes`; returns how many preparations failed there."""
    failed, end = 0, cluster.now + seconds
    while cluster.now < end:
        cluster.now += 0.5
        failed += sum(hole(cluster, agent) for agent in holes)
        for agent in sorted(set(cluster.state.members.by_name) - set(holes)):
            cluster.beat(agent, *well(cluster, agent))
        cluster.do(Tick())
    return failed


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(config=HOLES)
    made.join("a", "b", "x")
    made.do(Inventory(tuple(spec(f"u{i:02}") for i in range(12))))
    return made


def test_an_agent_on_which_nothing_gets_ready_does_not_attract_units_for_ever(cluster: Cluster) -> None:
    assert run(cluster, 60.0, "x") < 12
    row = next(
        r
        for r in views.build_leader_view(
            cluster.state, None, cluster.now, errors={}, streams={}, counters={}
        ).agents
        if r.name == "x"
    )
    assert row.failures >= 2
    assert row.backs_off_s is not None
    assert all(s.primary is not None for s in cluster.state.sets.by_unit.values())


def test_once_it_can_again_it_is_tried_with_one_unit_and_cleared(cluster: Cluster) -> None:
    run(cluster, 12.0, "x")
    assert not cluster.state.members.health["x"].trusted
    (notified,) = [about for what, about in cluster.state.history.entries if what == "agent backs off"]
    assert (notified["agent"], notified["for_s"]) == ("x", 10.0)
    run(cluster, 400.0)
    assert ("agent is trusted again", {"agent": "x"}) in cluster.state.history.entries
    assert "x" not in cluster.state.members.health
    held = [
        u for u, s in cluster.state.sets.by_unit.items() if s.primary is not None and s.primary.agent == "x"
    ]
    assert len(held) >= 3


def test_a_restart_of_the_agent_clears_it(cluster: Cluster) -> None:
    run(cluster, 12.0, "x")
    cluster.up(Hello, "x", assignment=0, rev=0, incarnation="x-2")
    assert "x" not in cluster.state.members.health
    assert not cluster.state.members.backing


def test_a_unit_that_fails_everywhere_blames_no_agent() -> None:
    made = Cluster(config=HOLES)
    made.join("a", "b", "c")
    made.do(Inventory((spec("bad"), spec("worse"), *(spec(f"u{i}") for i in range(4)))))
    for _ in range(40):
        made.now += 1.0
        for name in ("bad", "worse"):
            for one in made.state.sets.by_unit[name].replicas:
                made.beat(
                    one.agent, UnitStatus(name, one.assignment, UnitPhase.STOPPED, error="no such table")
                )
        made.do(Tick())
    assert all(known.trusted for known in made.state.members.health.values())


def test_a_unit_that_fails_after_it_has_worked_blames_no_agent(cluster: Cluster) -> None:
    run(cluster, 10.0)
    run(cluster, 10.0)
    assert hole(cluster, "a") >= 3
    assert "a" not in cluster.state.members.health


def test_a_person_may_still_move_a_unit_there(cluster: Cluster) -> None:
    run(cluster, 12.0, "x")
    unit_name = next(iter(cluster.state.sets.by_agent["a"]))
    cluster.do(Move(unit_name, "x"))
    cluster.do(Tick())
    assert [r.agent for r in cluster.state.sets.by_unit[unit_name].replicas] == ["a", "x"]


def test_the_defaults_are_what_the_configuration_says() -> None:
    from rowlock.coordinator.run import build_leader_config
    from schemas.config.coordination import CoordinationConfig

    assert build_leader_config(CoordinationConfig()) == LeaderConfig()
