"""What operators ask for outlives its owner or is refused; and a list of topics that is suddenly short is
doubted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.leader import steps
from coordinator.core.leader.inventory_shrinks import find_suspicious_shrink, parse_pipeline_name
from coordinator.core.leader.state import (
    Alarm,
    CancelMove,
    Drain,
    Inventory,
    LeaderCommand,
    Move,
    Pause,
    Refused,
    Resume,
    SendMessage,
    Tick,
    Undrain,
)
from coordinator.core.messages import Heartbeat, HeartbeatResponse, Liveness, UnitStatus
from coordinator.core.records import MoveRecord
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import InventoryUnit, MoveLimits, MoveRequest, UnitKind
from schemas.problems import Problem
from schemas.units import UnitPhase
from tests.kits.leader_core import CONFIG, Cluster, spec
from tests.kits.leader_history import play

TIGHT = replace(CONFIG, limits=MoveLimits(concurrent=1, per_agent=1))


@pytest.fixture
def cluster() -> Cluster:
    """u and v replicate on a; b is there; one move at a time."""
    history = "a joins; +u +v; tick; a: prepared u, prepared v; a: replicating u, replicating v; b joins"
    return play(history, Cluster(config=TIGHT))


def refused(cluster: Cluster, command: LeaderCommand) -> str:
    return "".join(str(e.problem) for e in cluster.do(command) if isinstance(e, Refused))


def later(cluster: Cluster) -> list[MoveRequest]:
    """What a later owner knows of moves."""
    return list(steps.begin_leader_term("later", 99, cluster.records, TIGHT, 0.0)[0].plan.moves)


def test_a_move_that_waits_is_stored_until_it_begins(cluster: Cluster) -> None:
    cluster.do(Move("u", "b"))
    cluster.do(Move("v", "b"))
    assert later(cluster) == [MoveRequest("u", "b"), MoveRequest("v", "b")]
    cluster.do(Tick())
    assert cluster.state.sets.by_unit["u"].state is SetState.PREPARE
    assert later(cluster) == [MoveRequest("v", "b")]


def test_a_later_owner_waits_for_the_agents_before_it_gives_a_move_up(cluster: Cluster) -> None:
    cluster.do(Move("u", "b"))
    new = Cluster(99, cluster.records, TIGHT)
    new.do(Inventory((spec("u"), spec("v"))))
    new.do(Tick())
    assert new.state.plan.moves == (MoveRequest("u", "b"),)
    new.now += TIGHT.leader_lease + TIGHT.silence if TIGHT.leader_lease < 1e6 else 0
    new.state.members.by_name["b"] = replace(new.state.members.by_name["b"], draining=True)
    new.state.plan.has_work = True
    out = new.do(Tick())
    assert any(isinstance(e, Alarm) and e.what == "move dropped" for e in out)
    assert "move/u" not in new.records


def test_a_move_of_a_paused_or_unknown_unit_is_refused(cluster: Cluster) -> None:
    cluster.do(Pause("u"))
    assert "paused" in refused(cluster, Move("u", "b"))
    cluster.do(Resume("u"))
    assert not refused(cluster, Move("u", "b"))
    cluster.do(Inventory((spec("u"),)))
    assert "removed" in refused(cluster, Move("v", "b"))


def test_a_pause_forgets_the_move(cluster: Cluster) -> None:
    cluster.do(Move("u", "b"))
    cluster.do(Pause("u"))
    assert not cluster.state.plan.moves
    assert "move/u" not in cluster.records


def test_a_move_is_cancelled_before_it_begins_and_while_it_prepares(cluster: Cluster) -> None:
    cluster.do(Move("u", "b"))
    cluster.do(CancelMove("u"))
    assert (cluster.state.plan.moves, "move/u" in cluster.records) == ((), False)
    cluster.do(Move("u", "b"))
    cluster.do(Tick())
    assert not refused(cluster, CancelMove("u"))
    current = cluster.state.sets.by_unit["u"]
    assert current.primary is not None
    assert (current.primary.agent, current.secondary) == ("a", None)
    assert "not being moved" in refused(cluster, CancelMove("v"))
    assert "no unit" in refused(cluster, CancelMove("x"))


def test_too_late_to_cancel(cluster: Cluster) -> None:
    cluster.do(Move("u", "b"))
    cluster.do(Tick())
    cluster.holds("b", "u", UnitPhase.PREPARED)
    assert "asked to stop" in refused(cluster, CancelMove("u"))


def test_a_move_off_an_agent_that_drains_is_not_cancelled_alone(cluster: Cluster) -> None:
    cluster.do(Drain("a"))
    cluster.do(Tick())
    unit = next(u for u, s in cluster.state.sets.by_unit.items() if s.secondary)
    (refusal,) = [e for e in cluster.do(CancelMove(unit)) if isinstance(e, Refused)]
    assert refusal.problem == Problem("agent a is giving up its units", "undrain it instead")


def test_balance_does_not_begin_a_cancelled_move_again(cluster: Cluster) -> None:
    cluster.state.config = replace(TIGHT, balance_every=30.0)
    cluster.do(Move("u", "b"))
    cluster.do(Tick())
    cluster.do(CancelMove("u"))
    cluster.beat("b")
    assert cluster.state.sets.memos["u"].due_at == cluster.now + 30.0


def test_a_drain_is_undone_and_the_agent_has_not_been_told_for_good(cluster: Cluster) -> None:
    cluster.do(Drain("a"))
    assert not cluster.state.members.by_name["a"].accepts
    assert not refused(cluster, Undrain("a"))
    assert cluster.state.members.by_name["a"].accepts
    assert not steps.begin_leader_term("p", 11, cluster.records, CONFIG, 0.0)[0].members.by_name["a"].draining
    assert "no agent" in refused(cluster, Undrain("x"))


def test_an_agent_that_stops_by_itself_is_not_undrained(cluster: Cluster) -> None:
    cluster.beat("b", liveness=Liveness.STOPPING)
    assert "start it again" in refused(cluster, Undrain("b"))


def test_no_lease_for_a_primary_that_has_been_told_to_stop(cluster: Cluster) -> None:
    cluster.do(Move("u", "b"))
    cluster.do(Tick())
    cluster.holds("b", "u", UnitPhase.PREPARED)
    held = [
        UnitStatus(u, cluster.state.sets.by_unit[u].replicas[0].assignment, UnitPhase.REPLICATING)
        for u in ("u", "v")
    ]
    out = cluster.up(Heartbeat, "a", sent=cluster.now, statuses=tuple(held))
    granted = [
        e.message.granted
        for e in out
        if isinstance(e, SendMessage) and isinstance(e.message, HeartbeatResponse)
    ]
    assert [unit for unit, _ in granted[0]] == ["v"]


# doubt

KNOWN = {"apply/p/1": "p", "apply/p/2": "p", "apply/p/3": "p", "apply/q/1": "q"}


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (list(KNOWN), {}),
        ([], {"p": 3, "q": 1}),
        (["apply/p/1", "apply/p/2", "apply/q/1"], {}),
        (["apply/p/1", "apply/q/1", "apply/q/2"], {"p": 2}),
    ],
)
def test_most_units_of_a_configured_pipeline_gone_at_once_is_doubtful(
    found: list[str], missing: dict[str, int]
) -> None:
    assert find_suspicious_shrink(KNOWN, found, ["p", "q"]) == missing


def test_what_is_no_longer_configured_is_not_doubted() -> None:
    assert find_suspicious_shrink(KNOWN, [], ["q"]) == {"q": 1}
    assert find_suspicious_shrink(KNOWN, [], []) == {}


def test_pipelines_by_name() -> None:
    assert [parse_pipeline_name(u) for u in ("apply/p/t.b", "capture/b", "u")] == ["p", None, None]


def applies(*units: str) -> Inventory:
    specs = tuple(InventoryUnit(f"apply/p/{u}", UnitKind.APPLY, "s", "p", "1") for u in units)
    return Inventory((InventoryUnit("capture/s", UnitKind.CAPTURE, "s"), *specs), {"p": ("s",)})


def test_an_empty_list_of_topics_stops_nothing_until_it_has_been_so_for_long() -> None:
    made = Cluster()
    made.join("a")
    made.do(applies("x", "y"))
    made.do(Tick())
    nothing = applies()
    out = made.do(nothing)
    assert [e.what for e in out if isinstance(e, Alarm)] == ["topics are missing"]
    for _ in range(29):
        made.now += 1.0
        made.beat(
            "a",
            *[
                UnitStatus(u, s.replicas[0].assignment, UnitPhase.PREPARING)
                for u, s in made.state.sets.by_unit.items()
                if s.replicas
            ],
        )
        assert not [e for e in made.do(nothing) if isinstance(e, Alarm)]
        made.do(Tick())
        assert all(s.state is SetState.PREPARE for s in made.state.sets.by_unit.values())
    made.now += 1.0
    assert [e.what for e in made.do(nothing) if isinstance(e, Alarm)] == ["topics are gone"]
    made.do(Tick())
    assert made.state.sets.by_unit["apply/p/x"].state is SetState.REMOVING
    assert made.state.sets.by_unit["capture/s"].state is SetState.PREPARE


def test_one_that_is_well_again_ends_the_doubt_and_the_time_begins_anew() -> None:
    made = Cluster()
    made.do(applies("x", "y"))
    made.do(applies())
    made.now += 29.0
    made.do(applies("x", "y"))
    assert made.state.plan.suspicious is None
    made.now += 29.0
    made.do(applies())
    assert set(made.state.plan.inventory or ()) == {"capture/s", "apply/p/x", "apply/p/y"}


def test_two_looks_with_nothing_between_them_are_no_long_time() -> None:
    """An owner that stood still has not seen that all was well meanwhile."""
    made = Cluster()
    made.do(applies("x", "y"))
    made.do(applies())
    made.now += 31.0
    assert not [each for each in made.do(applies()) if isinstance(each, Alarm)]
    for _ in range(2):
        made.now += 15.0
        assert set(made.state.plan.inventory or ()) == {"capture/s", "apply/p/x", "apply/p/y"}
        made.do(applies())
    assert set(made.state.plan.inventory or ()) == {"capture/s"}, "it is believed once it has been looked at"


def test_a_new_owner_doubts_it_as_well() -> None:
    made = Cluster()
    made.join("a")
    made.do(applies("x", "y"))
    made.do(Tick())
    new = Cluster(99, made.records)
    new.do(applies())
    assert new.state.plan.inventory is None
    assert new.records["apply/p/x".join(["unit/", ""])] == made.records["unit/apply/p/x"]
    new.do(applies("x"))
    assert set(new.state.plan.inventory or ()) == {"capture/s", "apply/p/x"}


def test_records_of_moves_have_keys() -> None:
    assert steps.begin_leader_term("o", 1, {"move/u": MoveRecord("u", "a")}, CONFIG, 0.0)[0].plan.moves == (
        MoveRequest("u", "a"),
    )
