"""Which slot serves which unit when slots cannot reach a server, or lack a secret; the rest of the plan is in
test_slots_together and test_slot_pool."""

from __future__ import annotations

from consumer.slots.messages import ReleaseUnit, ServeUnit, UnitReleased
from consumer.slots.plan import PlanEffect, SendCommand, SlotPlan

OWN = 0


def serve(topic: str, epoch: int = 7, run: str = "r") -> ServeUnit:
    return ServeUnit(run, topic, "s", 1, "id", epoch, 9, 10)


def place_units(count: int, *slots: int) -> SlotPlan:
    plan = SlotPlan(OWN)
    for slot in (OWN, *slots):
        plan.open_slot(slot)
    for number in range(count):
        plan.serve_unit(serve(f"t{number}"))
    return plan


def release_all(plan: SlotPlan, effects: list[PlanEffect]) -> dict[str, int]:
    """Answer each ReleaseUnit, and return where the units go then."""
    moved = {}
    for effect in effects:
        assert isinstance(effect, SendCommand)
        assert isinstance(effect.command, ReleaseUnit)
        released = UnitReleased("r", effect.command.topic, 7, 9, 10)
        for sent in plan.record_release(effect.slot, released):
            assert isinstance(sent, SendCommand)
            assert isinstance(sent.command, ServeUnit)
            moved[sent.command.topic] = sent.slot
    return moved


def test_units_leave_a_slot_that_cannot_reach_a_server_and_come_back() -> None:
    plan = place_units(4, 1, 2)
    moved = release_all(plan, plan.begin_trouble(1))
    assert moved == {"t0": 2, "t2": 2}
    assert plan.list_units(1) == []
    plan.serve_unit(serve("new"))
    assert plan.get_slot(("r", "new")) == 2, "although the other has fewer"
    moved = release_all(plan, plan.end_trouble(1))
    assert len(moved) == 2
    assert set(moved.values()) == {1}


def test_a_failed_unit_is_not_given_back_to_a_slot_that_cannot_reach_its_target() -> None:
    plan = place_units(2, 1, 2)
    plan.begin_trouble(1)
    plan.record_release(1, UnitReleased("r", "t0", 7, 9, 10, failed=True))
    (sent,) = plan.serve_unit(serve("t0", epoch=8))
    assert isinstance(sent, SendCommand)
    assert sent.slot == 2


def test_no_unit_moves_if_no_slot_can_reach_a_server() -> None:
    plan = place_units(4, 1, 2)
    release_all(plan, plan.begin_trouble(1))
    moved = release_all(plan, plan.begin_trouble(2))
    assert sorted(map(len, (plan.list_units(1), plan.list_units(2)))) == [2, 2], "they are even again"
    assert set(moved.values()) == {1}


def test_the_only_slot_keeps_its_units() -> None:
    plan = place_units(2, 1)
    assert plan.begin_trouble(1) == []
    assert plan.begin_trouble(OWN) == []
    assert plan.begin_trouble(5) == [], "it is lost already"


def test_a_new_slot_gets_all_units_of_one_that_cannot_reach_a_server() -> None:
    plan = place_units(3, 1, 2)
    release_all(plan, plan.begin_trouble(1))
    plan.lose_slot(2)
    moved = release_all(plan, plan.open_slot(3))
    assert plan.get_slot(("r", "t0")) is not None or not moved


def test_units_leave_a_slot_that_lacks_a_secret_of_their_pipeline() -> None:
    plan = place_units(4, 1, 2)
    plan.serve_unit(serve("other", run="q"))
    assert plan.get_slot(("q", "other")) == 1
    effects = plan.refuse_pipeline(1, "r")
    assert effects == [SendCommand(1, ReleaseUnit("r", topic)) for topic in ("t0", "t2")]
    assert release_all(plan, effects) == {"t0": 2, "t2": 2}
    assert plan.end_trouble(2) == [], "it had none, and no unit can leave it"
    assert plan.list_units(1) == [("q", "other")]
    plan.serve_unit(serve("new"))
    assert plan.get_slot(("r", "new")) == 2, "although the other has fewer"
    moved = release_all(plan, plan.end_trouble(1))
    assert set(moved.values()) == {1}
    assert plan.end_trouble(1) == []


def test_the_own_slot_serves_a_pipeline_whose_secrets_every_other_one_lacks() -> None:
    plan = place_units(2, 1, 2)
    first = release_all(plan, plan.refuse_pipeline(1, "r"))
    second = release_all(plan, plan.refuse_pipeline(2, "r"))
    assert (first, second) == ({"t0": 2}, {"t0": OWN, "t1": OWN})
    assert plan.begin_trouble(1) == [], "there is no better place for them"
    assert release_all(plan, plan.open_slot(3)) == {"t0": 3, "t1": 3}


def test_a_lost_slot_is_no_obstacle_for_one_with_its_number() -> None:
    plan = place_units(1, 1)
    release_all(plan, plan.refuse_pipeline(1, "r"))
    plan.lose_slot(1)
    assert release_all(plan, plan.open_slot(1)) == {"t0": 1}
