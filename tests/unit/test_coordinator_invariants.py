"""Violated invariants: of a stored record, of a step; what a restricted unit keeps, how a person ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from coordinator.control.codec import Changes, decode_message, encode_message
from coordinator.core import replication
from coordinator.core.leader import steps
from coordinator.core.leader.invariants import find_step_violations
from coordinator.core.leader.state import (
    Alarm,
    Fence,
    Fenced,
    Inventory,
    LeaderDecision,
    LeaderState,
    Move,
    Pause,
    Persist,
    Refused,
    Resume,
    SendMessage,
    StepDown,
    Tick,
)
from coordinator.core.leader.unit_sets import UnitSets
from coordinator.core.messages import HeartbeatResponse, Sync, UnitStatus
from coordinator.core.records import (
    AgentRecord,
    CounterRecord,
    DurableRecord,
    PausedRecord,
    UnitRecord,
    UnreadableRecord,
)
from coordinator.core.replication import Replica, ReplicationSet
from coordinator.core.replication_table import ReplicaPhase, Role, SetState
from coordinator.core.schedulers import InventoryUnit, UnitKind
from schemas.units import UnitPhase
from tests.kits.leader_core import Cluster, spec

AGENTS: dict[str, DurableRecord] = {
    "agent/a": AgentRecord("a", "a-1", 1),
    "agent/b": AgentRecord("b", "b-1", 2),
}
GOOD: dict[str, DurableRecord] = {"unit/good": UnitRecord("good", "1", (("a", 1, 3),))}
WRONG = {
    "two replicas have one assignment": {"unit/bad": UnitRecord("bad", "1", (("a", 1, 5), ("b", 2, 5)))},
    "two replicas are on one agent": {"unit/bad": UnitRecord("bad", "1", (("a", 1, 5), ("a", 1, 6)))},
    "the incarnation is not registered": {"unit/bad": UnitRecord("bad", "1", (("b", 9, 5),))},
    "the assignment is none": {"unit/bad": UnitRecord("bad", "1", (("b", 2, 0),))},
    "the record is that of another unit": {"unit/bad": UnitRecord("good", "1", (("b", 2, 5),))},
    "the record is not readable": {"unit/bad": UnreadableRecord("unit/bad", b'{"unit":7}', "not a string")},
}


def reports(unit: str, assignment: int) -> UnitStatus:
    return UnitStatus(unit, assignment, UnitPhase.REPLICATING)


def restored(wrong: dict[str, DurableRecord]) -> Cluster:
    """A new leader; agent a writes "good", and b writes "bad" under an assignment that is in no record."""
    cluster = Cluster(rev=11, records={**AGENTS, **GOOD, **wrong, "counter": CounterRecord(100)})
    cluster.up(Sync, "a", sent=1.0, running=(reports("good", 3),))
    cluster.up(Sync, "b", sent=1.0, running=(reports("bad", 7),))
    cluster.do(Inventory((spec("bad"), spec("good"), spec("new"))))
    return cluster


def last_granted(cluster: Cluster, agent: str) -> tuple[tuple[str, int], ...]:
    found = [m for to, m in cluster.sent if to == agent and isinstance(m, HeartbeatResponse)]
    return found[-1].granted


def about(effects: list[LeaderDecision], unit: str) -> list[LeaderDecision]:
    """Return what instructs an agent about a unit, stores something of it, or fences it."""
    return [
        effect
        for effect in effects
        if (isinstance(effect, SendMessage) and getattr(effect.message, "unit", "") == unit)
        or (isinstance(effect, Persist) and any(key.endswith(f"/{unit}") for key, _ in effect.records))
        or (isinstance(effect, Fence) and effect.unit == unit)
    ]


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_record_restricts_its_unit_alone(wrong: dict[str, DurableRecord]) -> None:
    cluster = restored(wrong)
    assert list(cluster.state.sets.restricted) == ["bad"]
    for _ in range(30):
        cluster.now += 1.0
        cluster.beat("a", reports("good", 3))
        cluster.beat("b", reports("bad", 7))
        cluster.do(Tick())
    assert not cluster.state.claim.stepped_down
    assert about(cluster.effects, "bad") == []
    assert last_granted(cluster, "b") == (("bad", 7),), "its lease goes on"
    assert last_granted(cluster, "a") == (("good", 3),)
    assert about(cluster.effects, "new"), "other units are scheduled"
    assert any(isinstance(e, Alarm) and e.what == "invariant violated" for e in cluster.effects)


def test_units_that_share_an_assignment_are_both_restricted() -> None:
    cluster = restored({"unit/bad": UnitRecord("bad", "1", (("b", 2, 3),))})
    assert sorted(cluster.state.sets.restricted) == ["bad", "good"]


def test_a_restricted_unit_is_left_alone_when_its_agent_is_lost_or_its_topic_is_dropped() -> None:
    cluster = restored(WRONG["two replicas have one assignment"])
    cluster.now += 1000.0
    cluster.beat("a", reports("good", 3))
    cluster.do(Tick())
    cluster.do(Inventory((spec("good"),)))
    for _ in range(3):
        cluster.now += 10.0
        cluster.do(Tick())
    assert about(cluster.effects, "bad") == []
    assert "bad" in cluster.state.sets.by_unit


def test_an_assignment_that_was_never_given_is_granted_no_lease() -> None:
    cluster = restored(WRONG["the record is not readable"])
    cluster.beat("b", reports("bad", 10**9))
    assert last_granted(cluster, "b") == ()


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_pause_and_resume_place_a_restricted_unit_anew(wrong: dict[str, DurableRecord]) -> None:
    cluster = restored(wrong)
    assert any(isinstance(e, Refused) for e in cluster.do(Move("bad", "a")))
    cluster.do(Pause("bad"))
    assert cluster.state.sets.restricted == {}
    fence = [e for e in cluster.effects if isinstance(e, Fence)][-1]
    assert (fence.unit, fence.uid) == ("bad", "1")
    assert fence.assignment > 100
    cluster.dispatched()
    cluster.beat("b", reports("bad", 7))
    assert cluster.dispatched() == [("b", "bad", "remove")], "what writes is told to stop"
    cluster.do(Fenced("bad", fence.assignment))
    assert cluster.records["unit/bad"] == UnitRecord("bad", "1", ())
    cluster.do(Resume("bad"))
    cluster.beat("b")
    cluster.do(Tick())
    placed = cluster.records["unit/bad"]
    assert isinstance(placed, UnitRecord)
    assert placed.holders[0][2] > fence.assignment
    assert not Cluster(rev=12, records=cluster.records).state.sets.restricted


UNUSABLE_AGENTS = {
    "not readable": {"agent/b": UnreadableRecord("agent/b", b"7", "not an object")},
    "of another agent": {"agent/b": AgentRecord("c", "c-1", 2)},
    "under another key": {"agent/c": AgentRecord("b", "b-1", 2), "agent/b": None},
}


@pytest.mark.parametrize("records", UNUSABLE_AGENTS.values(), ids=UNUSABLE_AGENTS)
def test_units_of_an_agent_without_a_usable_record_are_restricted(
    records: dict[str, DurableRecord | None],
) -> None:
    known = {**AGENTS, **GOOD, "unit/bad": UnitRecord("bad", "1", (("b", 2, 5),)), **records}
    cluster = Cluster(rev=11, records={key: record for key, record in known.items() if record is not None})
    cluster.up(Sync, "a", sent=1.0, running=(reports("good", 3),))
    cluster.do(Inventory((spec("bad"), spec("good"))))
    for _ in range(30):
        cluster.now += 1.0
        cluster.beat("a", reports("good", 3))
        cluster.do(Tick())
    assert list(cluster.state.sets.restricted) == ["bad"]
    assert about(cluster.effects, "bad") == [], "its agent may still write it"


UNUSABLE_PAUSES: dict[str, DurableRecord] = {
    "not readable": UnreadableRecord("paused/u", b"7", "not an object"),
    "of another unit": PausedRecord("v"),
}


@pytest.mark.parametrize("record", UNUSABLE_PAUSES.values(), ids=UNUSABLE_PAUSES)
def test_a_unit_with_an_unusable_pause_stays_paused(record: DurableRecord) -> None:
    cluster = Cluster(rev=11, records={**AGENTS, "paused/u": record})
    cluster.up(Sync, "a", sent=1.0)
    units = ("u", "v", "w")
    cluster.do(Inventory(tuple(spec(unit) for unit in units)))
    cluster.do(Tick())
    named = {"v"} if isinstance(record, PausedRecord) else set()
    assert {unit for unit in units if about(cluster.effects, unit)} == {*units} - {"u"} - named
    assert any(isinstance(e, Alarm) and e.what == "record not usable" for e in cluster.effects)
    cluster.do(Resume("u"))
    assert "paused/u" not in cluster.records


def fences(cluster: Cluster, unit: str) -> list[tuple[str, int]]:
    """Return the fences that have been requested, and forget them."""
    found = [(e.uid, e.assignment) for e in cluster.effects if isinstance(e, Fence) and e.unit == unit]
    cluster.effects.clear()
    return found


def test_a_pause_fences_the_target_of_the_record_and_that_of_the_inventory() -> None:
    cluster = restored(WRONG["two replicas have one assignment"])
    cluster.do(Inventory((spec("bad", "2"), spec("good"))))
    cluster.do(Pause("bad"))
    (of_record,) = fences(cluster, "bad")
    assert of_record[0] == "1", "the worker writes into the target for which it was placed"
    cluster.do(Fenced("bad", of_record[1]))
    (of_inventory,) = fences(cluster, "bad")
    assert of_inventory[0] == "2"
    assert cluster.records["unit/bad"] == WRONG["two replicas have one assignment"]["unit/bad"]
    cluster.do(Fenced("bad", of_record[1]))
    assert fences(cluster, "bad") == [], "a second answer to the first fence is none to the second"
    assert of_inventory[1] > of_record[1]
    cluster.do(Fenced("bad", of_inventory[1]))
    assert cluster.records["unit/bad"] == UnitRecord("bad", "2", ())


def test_a_unit_whose_target_is_not_known_is_not_taken_for_fenced() -> None:
    unit = "apply/p/t"
    damaged = UnreadableRecord(f"unit/{unit}", b"7", "not an object")
    cluster = Cluster(rev=11, records={**AGENTS, f"unit/{unit}": damaged})
    cluster.do(Inventory(()))
    cluster.do(Pause(unit))
    for _ in range(20):
        cluster.now += 10.0
        cluster.do(Tick())
    unknown = [e.about for e in cluster.effects if isinstance(e, Alarm) and e.what == "unit not fenced"]
    assert len(unknown) == 1
    assert unit in unknown[0]
    assert fences(cluster, unit) == []
    assert cluster.records[f"unit/{unit}"] == damaged
    cluster.do(Inventory((spec(unit, "pg/7"),)))
    ((uid, assignment),) = fences(cluster, unit)
    assert uid == "pg/7", "the inventory names its target"
    cluster.do(Fenced(unit, assignment))
    assert cluster.records[f"unit/{unit}"] == UnitRecord(unit, "pg/7", ())


def test_a_capture_unit_is_fenced_without_a_target() -> None:
    unit = "capture/s"
    cluster = Cluster(rev=11, records={**AGENTS, f"unit/{unit}": UnreadableRecord(f"unit/{unit}", b"7", "7")})
    cluster.do(Inventory((InventoryUnit(unit, UnitKind.CAPTURE, "s"),)))
    cluster.do(Pause(unit))
    assert [uid for uid, _ in fences(cluster, unit)] == [""]


def test_a_later_term_restricts_again_what_was_not_mended() -> None:
    first = restored(WRONG["two replicas have one assignment"])
    second = Cluster(rev=12, records=first.records)
    assert list(second.state.sets.restricted) == ["bad"]


# a step


def broken_step(wrong: Callable[[ReplicationSet], ReplicationSet]) -> Any:
    """Return a replication set's step that makes something wrong of unit "u"."""
    real = replication.step_set

    def step(current: ReplicationSet, event: Any) -> Any:
        after, out = real(current, event)
        return (wrong(after) if after.unit == "u" else after), out

    return step


def two_units() -> Cluster:
    """A term that has lasted for a lease, with two units that wait for an agent."""
    cluster = Cluster()
    cluster.now += cluster.state.config.lease
    cluster.join("a")
    cluster.do(Inventory((spec("u"), spec("v"))))
    return cluster


def undurable(current: ReplicationSet) -> ReplicationSet:
    """Make the secondary a primary that was never ready."""
    replicas = tuple(replace(one, role=Role.PRIMARY) for one in current.replicas)
    return replace(current, state=SetState.REPLICATING, replicas=replicas)


def foreign(current: ReplicationSet) -> ReplicationSet:
    return replace(current, replicas=tuple(replace(one, assignment=1) for one in current.replicas))


@pytest.mark.parametrize("wrong", [undurable, foreign])
def test_a_step_that_violates_ends_the_term_and_nothing_of_it_is_carried_out(
    monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    cluster = two_units()
    monkeypatch.setattr(replication, "step_set", broken_step(wrong))
    out = cluster.do(Tick())
    assert [type(effect) for effect in out] == [Alarm, StepDown]
    assert cluster.state.claim.stepped_down
    assert not any(key.startswith("unit/") for key in cluster.records)


@pytest.mark.parametrize("reason", ["the last term ended", "the term is young"])
def test_a_term_that_must_not_end_restricts_and_carries_out_the_rest_of_the_step(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    cluster = two_units()
    if reason == "the term is young":
        cluster.now -= 0.1
    else:
        cluster.state.claim.ends_on_violation = False
    monkeypatch.setattr(replication, "step_set", broken_step(undurable))
    out = cluster.do(Tick())
    assert list(cluster.state.sets.restricted) == ["u"]
    assert not cluster.state.claim.stepped_down
    assert about(out, "u") == []
    assert cluster.state.sets.by_unit["u"] == ReplicationSet("u"), "as it was before the step"
    assert "unit/v" in cluster.records
    monkeypatch.undo()
    cluster.replicate("v", "a")


def test_a_unit_without_its_place_in_the_index_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = two_units()

    def replace_set(sets: UnitSets, before: ReplicationSet, after: ReplicationSet) -> None:
        sets.touched.setdefault(after.unit, before)
        sets.by_unit[after.unit] = after

    monkeypatch.setattr(UnitSets, "replace_set", replace_set)
    _, out = steps.step_leader(cluster.state, Tick(), cluster.now)
    assert isinstance(out[-1], StepDown)


HERE = Replica("a", 1, 5, Role.PRIMARY, seen=ReplicaPhase.REPLICATING)
NEXT = Replica("b", 2, 6, Role.SECONDARY, durable=False)
NONE = ReplicationSet("u")
ONE = ReplicationSet("u", SetState.REPLICATING, (HERE,))
TWO = ReplicationSet("u", SetState.PREPARE, (HERE, NEXT))
LATER = ReplicationSet("u", SetState.PREPARE, (NEXT,))


def after_step(current: ReplicationSet | None, index: str) -> LeaderState:
    """Return a state in which unit "u" of the inventory has this set, and is in the index at these agents."""
    cluster = Cluster(rev=11, records={**AGENTS, "counter": CounterRecord(100)})
    cluster.do(Inventory((spec("u"),)))
    sets = cluster.state.sets
    sets.by_agent = {agent: {"u": None} for agent in index}
    sets.by_unit = {} if current is None else {"u": current}
    return cluster.state


def placed(**other: Any) -> ReplicationSet:
    return ReplicationSet("u", SetState.REPLICATING, (replace(HERE, **other),))


@pytest.mark.parametrize(
    ("before", "current", "index", "found"),
    [
        (ONE, ONE, "a", None),
        (ONE, ONE, "", "the index by agent lacks it at agent a"),
        (ONE, NONE, "", None),
        (ONE, NONE, "a", "the index by agent still has it at agent a"),
        (ONE, TWO, "ab", None),
        (ONE, TWO, "a", "the index by agent lacks it at agent b"),
        (TWO, ONE, "a", None),
        (TWO, ONE, "ab", "the index by agent still has it at agent b"),
        (TWO, LATER, "b", None),
        (TWO, LATER, "ab", "the index by agent still has it at agent a"),
        (NONE, LATER, "b", None),
        (None, LATER, "b", None),
        (ONE, None, "", "it is in the inventory and has no replication set"),
        (None, NONE, "", None),
        (ONE, replace(NONE, state=SetState.PREPARE), "", "prepare with 0 primaries"),
        (ONE, replace(ONE, state=SetState.PREPARE), "a", "prepare with 1 primaries"),
        (ONE, placed(seen=None), "a", "was never ready"),
        (ONE, placed(durable=False), "a", "was never ready"),
        (ONE, placed(agent="b", agent_epoch=2), "b", "assignment 5 had been given before"),
        (ONE, placed(agent="b"), "b", "assignment 5 had been given before"),
        (ONE, placed(agent_epoch=0), "a", "assignment 5 had been given before"),
        (ONE, placed(assignment=4), "a", "assignment 4 had been given before"),
        (ONE, placed(agent_epoch=2), "a", "incarnation 2 of agent a has not been registered"),
        (ONE, placed(agent="c", assignment=6), "c", "incarnation 1 of agent c has not been registered"),
        (ONE, placed(assignment=101), "a", "assignment 101 was not given to it"),
        (ONE, placed(assignment=100), "a", None),
    ],
)
def test_each_violation_of_a_step_is_found(
    before: ReplicationSet | None, current: ReplicationSet | None, index: str, found: str | None
) -> None:
    why = find_step_violations(after_step(current, index), 5, {"u": before}).get("u")
    assert (why is None) if found is None else (why is not None and found in why)


def test_one_assignment_for_two_units_of_a_step_is_found() -> None:
    state = after_step(LATER, "b")
    state.sets.by_unit["v"] = replace(LATER, unit="v")
    state.sets.by_agent["b"]["v"] = None
    assert find_step_violations(state, 5, {"u": NONE, "v": None}) == {"v": "assignment 6 was not given to it"}


def test_a_unit_that_left_the_inventory_may_have_no_set() -> None:
    state = after_step(None, "")
    assert find_step_violations(state, 5, {"other": ReplicationSet("other")}) == {}


# the control topic


def test_a_record_that_cannot_be_decoded_leaves_the_others_of_its_message() -> None:
    good = UnitRecord("v", "1", ())
    data = msgspec.json.decode(encode_message(Changes(3, (("unit/u", good), ("unit/v", good)))))
    data["records"][0][1] = {"unit": 7}
    found = decode_message(msgspec.json.encode(data))
    assert isinstance(found, Changes)
    (key, unreadable), other = found.changes
    assert other == ("unit/v", good)
    assert isinstance(unreadable, UnreadableRecord)
    assert (key, unreadable.key, unreadable.data) == ("unit/u", "unit/u", b'{"unit":7}')
    again = decode_message(encode_message(found))
    assert again == found, "a snapshot keeps it as it is"
