"""The events that a coordinator reports to its watchers: every unit and agent that comes or goes, why, and
how long it took."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.control.codec import Candidate
from coordinator.control.events import Lost, NewLeader, WriteConfirmed
from coordinator.core.leader import history
from coordinator.core.leader.history import UnitHistory
from coordinator.core.leader.state import Drain, Move, Pause, Resign, Resume
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import SetState
from coordinator.server.requests import StreamLeft, TickDue
from schemas.problems import Problem, encode_problem
from tests.kits.coordinator_server import PlayedCoordinator, replicating


def notified(played: PlayedCoordinator, what: str) -> list[dict[str, Any]]:
    return [dict(row.about) for row in played.machine.journal.list_events_after(0, 1000) if row.what == what]


def test_a_first_placement_names_the_agent_and_what_it_took() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    assert notified(played, "elected") == [{"name": "me", "units": 0, "agents": 0}]
    assert [each["agent"] for each in notified(played, "agent joined")] == ["a1"]
    placed = notified(played, "unit placed")
    assert [each["unit"] for each in placed] == sorted(played.states())
    assert {(each["to"], each["why"], "from" in each) for each in placed} == {
        ("a1", "no agent ran it", False)
    }
    assert all(each["took_s"] >= 0 for each in placed)
    assert notified(played, "unit moved") == []


def test_a_move_that_was_asked_for_is_told_with_both_agents() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1", "a2")
    unit, (_, here) = next(iter(played.states().items()))
    there = "a2" if here == "a1" else "a1"
    played.command(Move(unit, there)).wait_for_value(0)
    played.run(3.0)
    (moved,) = notified(played, "unit moved")
    assert (moved["unit"], moved["from"], moved["to"], moved["why"]) == (unit, here, there, "asked for")
    assert moved["cause"] == "move"
    assert notified(played, "unit stopped") == []
    (accepted,) = notified(played, "command accepted")
    assert not any("cause" in each for each in notified(played, "unit placed")), "no agent had them before"
    assert (accepted["command"], accepted["unit"], accepted["agent"]) == ("move", unit, there)


def test_a_drain_moves_units_and_says_so() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1", "a2")
    there = [unit for unit, (_, agent) in played.states().items() if agent == "a1"]
    played.command(Drain("a1")).wait_for_value(0)
    played.run(10.0)
    moved = notified(played, "unit moved")
    assert sorted(each["unit"] for each in moved) == sorted(there)
    assert {(each["why"], each["cause"]) for each in moved} == {("the agent gives up its units", "drain")}


def test_an_agent_that_is_gone_takes_its_units_with_it_for_the_true_reason() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1", "a2")
    lost = [unit for unit, (_, agent) in played.states().items() if agent == "a1"]
    machine, _ = played.agents.pop("a1")
    played.report_event(StreamLeft(machine, "the connection was reset"))
    played.run(15.0)
    (missing,) = notified(played, "agent gone")
    assert missing["agent"] == "a1"
    assert missing["units"] == len(lost) > 0
    assert "its lease has expired" in missing["why"]
    assert missing["stream"] == "the connection was reset"
    stopped = notified(played, "unit stopped")
    assert sorted(each["unit"] for each in stopped) == sorted(lost)
    again = [
        each for each in notified(played, "unit placed") if each["to"] == "a2" and each.get("from") == "a1"
    ]
    assert sorted(each["unit"] for each in again) == sorted(lost)
    assert {each["why"] for each in [*stopped, *again]} == {"agent a1 was lost"}
    assert {each["cause"] for each in again} == {"agent_lost"}


def test_a_failure_is_told_with_the_worker_s_words() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    unit = next(iter(played.states()))
    played.fail("a1", unit, encode_problem(Problem("the disk is full", "make room")))
    played.run(5.0)
    (stopped,) = notified(played, "unit stopped")
    assert (stopped["unit"], stopped["from"]) == (unit, "a1")
    assert stopped["why"] == "it failed on agent a1: the disk is full: make room"
    assert notified(played, "unit placed")[-1]["unit"] == unit


def test_a_pause_is_told_with_who_asked() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    unit = next(iter(played.states()))
    played.command(Pause(unit)).wait_for_value(0)
    played.run(3.0)
    (stopped,) = notified(played, "unit stopped")
    assert (stopped["unit"], stopped["why"]) == (unit, "paused")
    assert notified(played, "command accepted")[0]["by"] == "unknown"
    played.command(Resume(unit)).wait_for_value(0)
    played.run(3.0)
    assert notified(played, "unit placed")[-1]["unit"] == unit


def test_a_refused_command_is_told_too() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    with pytest.raises(Exception, match="no unit"):
        played.command(Pause("apply/p/none")).wait_for_value(0)
    (refused,) = notified(played, "command refused")
    assert refused["why"] == "there is no unit apply/p/none"


def test_the_end_of_a_term_is_told_with_its_reason() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.command(Resign()).wait_for_value(0)
    assert notified(played, "resigned") == [{"why": "asked to resign"}]
    other = replicating(PlayedCoordinator().elect(), "a1")
    other.report_event(NewLeader(20, Candidate("c2", "h:1", "h:2")), Lost(10, "another has claimed"))
    assert notified(other, "term lost") == [{"why": "another has claimed"}]


def test_what_a_new_owner_finds_in_its_place_is_no_news() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    before = len(notified(played, "unit placed"))
    played.report_event(Lost(10, "fenced"))
    played.elect(20)
    played.run(8.0)
    played.report_event(WriteConfirmed(20, played.now), TickDue())
    assert {state for state, _ in played.states().values()} == {"replicating"}
    assert len(notified(played, "unit placed")) == before
    assert notified(played, "unit stopped") == notified(played, "unit moved") == []


@pytest.mark.parametrize(("before", "took_s"), [(SetState.ABSENT, 0.0), (SetState.PREPARE, 2.5)])
def test_a_change_took_the_time_since_it_began(before: SetState, took_s: float) -> None:
    place = UnitHistory()
    place.begin_change(100.0)
    assert history._measure_duration(place, ReplicationSet("u", before), 102.5) == took_s
