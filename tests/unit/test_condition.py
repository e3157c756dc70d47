"""How a unit does, by its row: what REST, `units list` and `status` show."""

from __future__ import annotations

import pytest

from coordinator.core.leader.invariants import explain_restriction
from coordinator.rest.models import Unit
from coordinator.server.operators.condition import RESTRICTION_REMEDY, UnitCondition, judge_condition
from schemas.findings import TRIES_AGAIN, WAITS_FOR_LOCK
from schemas.problems import Problem, encode_problem
from tests.stands.fake_control import unit


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"state": "replicating"}, UnitCondition("running")),
        (
            {"state": "replicating", "error": "log_bin is OFF: start the server with --log-bin"},
            UnitCondition("stopped", "log_bin is OFF", "start the server with --log-bin"),
        ),
        (
            {"state": "replicating", "error": encode_problem(Problem("denied", statement="GRANT SELECT"))},
            UnitCondition("stopped", "denied", "GRANT SELECT"),
        ),
        (
            {"state": "replicating", "error": "no remedy is known"},
            UnitCondition("stopped", "no remedy is known"),
        ),
        (
            {"state": "replicating", "error": f"{TRIES_AGAIN}no database answers at h:1: refused"},
            UnitCondition("restarting", "no database answers at h:1: refused"),
        ),
        (
            {"state": "replicating", "error": f"{WAITS_FOR_LOCK}{encode_problem(Problem('held', 'end it'))}"},
            UnitCondition("running", "held", "end it"),
        ),
        (
            {"state": "prepare", "error": "ended with code 1"},
            UnitCondition("restarting", "ended with code 1"),
        ),
        ({"state": "absent", "agent": None, "error": "gone"}, UnitCondition("restarting", "gone")),
        ({"state": "prepare"}, UnitCondition("starting", "it is being placed on a1")),
        ({"state": "absent", "agent": None}, UnitCondition("starting", "no agent has it yet")),
        ({"state": "prepare", "moving_to": "a2", "error": "a2 could not"}, UnitCondition("running")),
        ({"state": "recovering"}, UnitCondition("running")),
        (
            {"state": "absent", "agent": None, "paused": True},
            UnitCondition("stopped", "it is paused", "rowlock units resume"),
        ),
        (
            {"state": "replicating", "restricted": "two primaries"},
            UnitCondition("stopped", explain_restriction("two primaries"), RESTRICTION_REMEDY),
        ),
    ],
)
def test_condition(row: dict[str, object], expected: UnitCondition) -> None:
    found = unit("capture/b1", **row)
    assert judge_condition(found) == expected
    notified = Unit.model_validate(found)
    assert (notified.health, notified.reason, notified.remedy) == (
        expected.health,
        expected.reason,
        expected.remedy,
    )


def test_what_is_not_running_always_has_a_reason() -> None:
    for state in ("absent", "recovering", "prepare", "commit", "replicating", "removing"):
        for error in (None, "seen: mend", f"{TRIES_AGAIN}seen"):
            for paused in (False, True):
                for agent in (None, "a1"):
                    found = judge_condition(
                        unit("capture/b1", state=state, error=error, paused=paused, agent=agent)
                    )
                    assert (found.reason is None) == (found.health == "running")
                    assert not (found.health == "running" and error and state == "replicating")
