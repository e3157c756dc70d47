"""How a unit does, by its row: what REST, `units list` and `status` show."""

from __future__ import annotations

import pytest

from coordinator.rest.models import Unit
from coordinator.server.operators.condition import Condition, condition
from schemas.findings import TRIES_AGAIN
from tests.fake_control import unit


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"state": "replicating"}, Condition("running")),
        (
            {"state": "replicating", "error": "log_bin is OFF: start the server with --log-bin"},
            Condition("stopped", "log_bin is OFF", "start the server with --log-bin"),
        ),
        ({"state": "replicating", "error": "no remedy is known"}, Condition("stopped", "no remedy is known")),
        (
            {"state": "replicating", "error": f"{TRIES_AGAIN}no database answers at h:1: refused"},
            Condition("restarting", "no database answers at h:1: refused"),
        ),
        ({"state": "prepare", "error": "ended with code 1"}, Condition("restarting", "ended with code 1")),
        ({"state": "absent", "agent": None, "error": "gone"}, Condition("restarting", "gone")),
        ({"state": "prepare"}, Condition("starting", "it is being placed on a1")),
        ({"state": "absent", "agent": None}, Condition("starting", "no agent has it yet")),
        ({"state": "prepare", "moving_to": "a2", "error": "a2 could not"}, Condition("running")),
        ({"state": "recovering"}, Condition("running")),
        (
            {"state": "absent", "agent": None, "paused": True},
            Condition("stopped", "it is paused", "rowlock units resume"),
        ),
    ],
)
def test_condition(row: dict[str, object], expected: Condition) -> None:
    found = unit("capture/b1", **row)
    assert condition(found) == expected
    told = Unit.model_validate(found)
    assert (told.health, told.reason, told.remedy) == (expected.health, expected.reason, expected.remedy)


def test_what_is_not_running_always_has_a_reason() -> None:
    for state in ("absent", "recovering", "prepare", "commit", "replicating", "removing"):
        for error in (None, "seen: mend", f"{TRIES_AGAIN}seen"):
            for paused in (False, True):
                for agent in (None, "a1"):
                    found = condition(
                        unit("capture/b1", state=state, error=error, paused=paused, agent=agent)
                    )
                    assert (found.reason is None) == (found.health == "running")
                    assert not (found.health == "running" and error and state == "replicating")
