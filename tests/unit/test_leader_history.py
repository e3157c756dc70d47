"""The text of histories of owner and agent: what a step means, and that a wrong expectation is found."""

from __future__ import annotations

import pytest

from tests.kits import agent_history
from tests.kits.leader_history import play


def test_orders_follow_from_their_own_step() -> None:
    cluster = play("a joins; +u; tick ⇒ a prepare u; tick ⇒ nothing")
    assert [each.agent for each in cluster.state.sets.by_unit["u"].replicas] == ["a"]


@pytest.mark.parametrize(
    "history",
    ["a joins; +u; tick ⇒ nothing", "a joins; +u; tick ⇒ b prepare u", "a joins; tick ⇒ a prepare u"],
)
def test_a_wrong_expectation_is_found(history: str) -> None:
    with pytest.raises(AssertionError, match="tick ⇒"):
        play(history)


@pytest.mark.parametrize("step", ["tock", "joins", "pause", "a: prepared", "+"])
def test_an_unknown_step_is_refused(step: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        play(f"a joins; {step}")


@pytest.mark.parametrize(
    "history",
    [
        "announce; prepare u#5 ⇒ nothing",
        "announce; prepare u#5 ⇒ prepare u#6, answer u#6 preparing",
        "announce; prepare u#5; u is prepared",
    ],
)
def test_a_wrong_expectation_of_the_agent_is_found(history: str) -> None:
    with pytest.raises(AssertionError, match=r"⇒|u is"):
        agent_history.play(history)


@pytest.mark.parametrize("step", ["tock", "announce p", "prepare u", "u#5: dances", "grant"])
def test_an_unknown_step_of_the_agent_is_refused(step: str) -> None:
    with pytest.raises(ValueError, match="no step"):
        agent_history.play(f"announce; {step}")
