"""Violated invariants in the modelled world: a wrong record, and a check that is too strict. Neither stops
a unit that it is not about, whatever else happens and whoever leads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.core.leader import invariants
from coordinator.core.leader import state as o
from coordinator.core.records import DurableRecord, UnitRecord, UnreadableRecord
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import SetState
from tests.sim.coordination import candidates
from tests.sim.coordination.nodes import CAPTURES, CONFIG, UNITS, AgentNode, Options
from tests.sim.coordination.scripted import UNIT, Scripted
from tests.sim.coordination.world import CoordinationSimulation

LEASE = 10.0
OTHERS = tuple(unit for unit in (*UNITS, *CAPTURES) if unit != UNIT)


def wrong_records(right: UnitRecord) -> dict[str, DurableRecord]:
    """Return what may be stored of UNIT instead of the record."""
    agent, epoch, assignment = right.holders[0]
    other = "a1" if agent != "a1" else "a2"
    return {
        "assignment twice": UnitRecord(UNIT, right.uid, (*right.holders, (other, 1, assignment))),
        "future incarnation": UnitRecord(UNIT, right.uid, ((agent, epoch + 10**6, assignment),)),
        "not readable": UnreadableRecord(f"unit/{UNIT}", b"7", "not an object"),
    }


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the product, a lease lasts for several elections. That of CONFIG may end within one."""
    monkeypatch.setattr(candidates, "CONFIG", replace(CONFIG, lease=LEASE))


KINDS = ("assignment twice", "future incarnation", "not readable")


def plant(w: CoordinationSimulation, kind: str) -> None:
    """The leader's process stores a wrong record of UNIT, which only the next leaders read."""
    w.has_planted_violation = True
    node = w.current()
    assert node is not None
    right = node.records[f"unit/{UNIT}"]
    assert isinstance(right, UnitRecord)
    w._commit(node, ((f"unit/{UNIT}", wrong_records(right)[kind]),), lambda: None)


def restricted(w: CoordinationSimulation) -> list[str]:
    node = w.current()
    return sorted(node.state.sets.restricted) if node is not None and node.state is not None else []


def writing(w: CoordinationSimulation) -> set[str]:
    """Return the units for which a worker writes."""
    workers = [one for agent in w.agents.values() for one in agent.workers.values()]
    return {one.unit for one in workers if one.live and one.stage == "writing"}


def settle(w: Scripted) -> tuple[AgentNode, AgentNode]:
    """Wait until every unit is written; return where UNIT is, and another agent."""
    found = w.settle()
    w.until("every unit is written", lambda: writing(w) == {*UNITS, *CAPTURES})
    return found


def go_on(w: Scripted, seconds: float) -> None:
    """Let the world go on; every unit is written all the time, but for the moment in which it moves."""
    end = w.now + seconds
    written = dict.fromkeys((*UNITS, *CAPTURES), w.now)
    while w.now < end:
        w.run_until(w.now + 0.1)
        written.update(dict.fromkeys(writing(w), w.now))
        stopped = {unit for unit, at in written.items() if w.now - at > 1.5}
        assert not stopped, f"at {w.now:.1f} s nothing writes {stopped}"


def is_settled_on(w: Scripted, unit: str, agent: str) -> bool:
    current = w.unit(unit)
    primary = current.primary
    return current.state is SetState.REPLICATING and primary is not None and primary.agent == agent


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_record_stops_no_unit_in_any_later_term(kind: str) -> None:
    w = Scripted()
    settle(w)
    plant(w, kind)
    go_on(w, 1.0)
    for _ in range(4):
        w.notify(o.Resign())
        go_on(w, LEASE)
        assert restricted(w) == [UNIT]
    terms = len(w.topic.claims)
    go_on(w, 5 * LEASE)
    assert len(w.topic.claims) == terms, "no term ends"


@pytest.mark.parametrize("kind", KINDS)
def test_other_units_are_moved_and_replaced_beside_a_wrong_record(kind: str) -> None:
    w = Scripted()
    home, other = settle(w)
    plant(w, kind)
    go_on(w, 1.0)
    w.notify(o.Resign())
    go_on(w, LEASE)
    moved = next(u for u in OTHERS if (p := w.unit(u).primary) is not None and p.agent != other.name)
    w.notify(o.Move(moved, other.name))
    w.until("it has moved", lambda: is_settled_on(w, moved, other.name))
    w.crash_agent(home, 100.0)
    w.until("the others are placed again", lambda: writing(w) == set(OTHERS), within=60.0)
    assert restricted(w) == [UNIT], "what was on the agent that died waits for a person"
    w.notify(o.Pause(UNIT))
    w.until("its record is replaced", lambda: UnitRecord(UNIT, "1", ()) == w.owner.records[f"unit/{UNIT}"])
    w.notify(o.Resume(UNIT))
    w.until("it is placed anew", lambda: UNIT in writing(w), within=30.0)
    w.finish()


@pytest.mark.parametrize("seed", range(12))
def test_a_wrong_record_among_all_faults_leaves_the_other_units_well(seed: int) -> None:
    world = CoordinationSimulation(Options(seed))

    def try_to_plant() -> None:
        node = world.current()
        known = node.records.get(f"unit/{UNIT}") if node is not None else None
        if isinstance(known, UnitRecord) and known.holders:
            plant(world, KINDS[seed % 3])
        else:
            world.at(0.5, try_to_plant)

    world.at(4.0, try_to_plant)
    world.run_until(20.0)
    world.heal()
    assert world.run_until(world.now + 60.0, world.judge.converged), world.judge.why_not()
    world.judge.after()


@pytest.mark.parametrize("state", [SetState.REPLICATING, SetState.RECOVERING])
def test_a_check_that_is_too_strict_stops_no_unit(monkeypatch: pytest.MonkeyPatch, state: SetState) -> None:
    """Every term finds a violation in each unit that it touches; each coordinator gives up one at most."""
    w = Scripted()
    settle(w)
    w.has_planted_violation = True
    terms = len(w.topic.claims)
    real = invariants.find_set_violation

    def find(current: ReplicationSet) -> Any:
        return f"{state.value} is not allowed" if current.state is state else real(current)

    monkeypatch.setattr(invariants, "find_set_violation", find)
    monkeypatch.setattr(invariants, "_has_kept_one_replica", lambda *_: False)
    monkeypatch.setattr("tests.kits.invariants.check_leader_invariants", lambda state: None)  # the judge's
    w.notify(o.Resign())
    go_on(w, 10 * LEASE)
    assert len(w.topic.claims) - terms <= 1 + len(w.owners)
    assert restricted(w) == sorted({*UNITS, *CAPTURES})
