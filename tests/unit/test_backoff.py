"""Retries: one back-off, its delays as a table, and who has which; no other code doubles a pause."""

from __future__ import annotations

import ast
import re
import threading
from math import inf
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

import producer.capture
from consumer.attempt import transactions
from consumer.ordering.lanes.lane import LaneLimits
from consumer.process.operations import fencing
from consumer.targets import progress as statements
from consumer.units import supervision
from coordinator.core.health import HealthConfig
from coordinator.core.leader.state import LeaderConfig
from coordinator.transport import client, leader_search
from rowlock.agent import apply, capture
from rowlock.processes import supervisor
from schemas.backoff import Backoff, pause_after

ROOT = Path(__file__).resolve().parents[2]
#: The pauses after each failure in a row, in seconds, until they stay.
PAUSES = {
    "capture of a source": (producer.capture._BACKOFF, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0],
     60.0),
    "an apply unit, a query": (supervision.TROUBLE_BACKOFF, [0.5, 1, 2, 4, 8, 16, 20], 60.0),
    "a fence": (fencing.FENCE_BACKOFF, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0], inf),
    "the apply process": (apply.APPLY_RESTART_BACKOFF, [1, 2, 4, 8, 16, 30], 60.0),
    "capture that waits for a person": (capture.REFUSAL_RETRY_BACKOFF, [15, 30, 60, 120], inf),
    "coordinator and agent of a run": (supervisor.CHILD_RESTART_BACKOFF, [1, 2, 4, 8, 16, 30], 60.0),
}  # fmt: skip


@pytest.mark.parametrize("what", PAUSES)
def test_pauses_double_up_to_a_limit_and_begin_again_after_a_quiet_time(what: str) -> None:
    backoff, pauses, quiet = PAUSES[what]
    now, seen = 1000.0, []
    assert (backoff.pause, backoff.next_at) == (0, -inf)
    for _ in range(len(pauses) + 1):
        backoff = backoff.with_failure(now)
        assert backoff.next_at == now + backoff.pause
        seen.append(backoff.pause)
        now = backoff.next_at
    assert seen == pytest.approx([*pauses, pauses[-1]])
    assert backoff.quiet == quiet
    later = min(quiet, 1e9)
    assert backoff.with_failure(backoff.since + later - 1).pause == pauses[-1]
    assert backoff.with_failure(backoff.since + later).pause == (pauses[0] if quiet < inf else pauses[-1])


def test_quiet_is_counted_from_a_start_that_was_later_than_the_failure() -> None:
    backoff = Backoff(first=1, longest=8, quiet=60).with_failure(0).with_failure(1).with_start(50)
    assert backoff.with_failure(70).pause == 4
    assert backoff.with_failure(110).pause == 1


@pytest.mark.parametrize(
    ("first", "longest", "pauses"),
    [
        (LaneLimits().pause, LaneLimits().max_pause, [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2]),
        (transactions.FIRST_RETRY_DELAY_S, inf, [0, 0.05, 0.1, 0.2, 0.4]),
        (statements.MAKE_PAUSE_S, inf, [0, 0.05, 0.1, 0.2, 0.4, 0.8]),
        (LeaderConfig().retry_first, LeaderConfig().retry_most, [0, 1, 2, 4, 8, 16, 32, 60, 60]),
        (HealthConfig().retry_first, HealthConfig().retry_most, [0, 10, 20, 40, 80, 160, 320, 600, 600]),
        (client.ClientTiming().retry_first, client.ClientTiming().retry_most, [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1]),  # noqa: E501
    ],
)  # fmt: skip
def test_pauses_of_what_counts_its_failures_itself(first: float, longest: float, pauses: list[float]) -> None:
    assert [pause_after(number, first, longest) for number in range(len(pauses))] == pytest.approx(pauses)
    assert pause_after(100_000, first, 3600) <= 3600


def test_nobody_doubles_a_pause_alone() -> None:
    """`deploy` knows nothing of ours; what doubles elsewhere is how long is waited for a preparation, and is
    no pause."""
    found = {
        str(path.relative_to(ROOT))
        for package in ("producer", "consumer", "coordinator", "rowlock", "schemas")
        for path in (ROOT / package).rglob("*.py")
        if any(_doubles(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    assert found == {
        "schemas/backoff.py",
        "coordinator/core/leader/patience.py",
    }


def _doubles(node: ast.AST) -> bool:
    """Return whether a pause is doubled here: something times a power of two, two to the power of a count of
    failures, or twice a pause.

    A power of two that is a bound of a type is no factor, and its exponent counts bits.
    """
    if isinstance(node, ast.AugAssign):
        return (
            isinstance(node.op, ast.Mult)
            and _two(node.value)
            and _named(node.target, "pause|wait|delay|backoff")
        )
    if not isinstance(node, ast.BinOp):
        return False
    if isinstance(node.op, ast.Pow):
        return _two(node.left) and _named(node.right, "fail|attempt|tries|retr|given_up|restart")
    if not isinstance(node.op, ast.Mult):
        return False
    sides = (node.left, node.right)
    power = any(
        isinstance(each, ast.BinOp) and isinstance(each.op, ast.Pow) and _two(each.left)
        and not isinstance(each.right, ast.Constant)
        for each in sides
    )  # fmt: skip
    return power or (
        any(map(_two, sides)) and any(_named(each, "pause|wait|delay|backoff") for each in sides)
    )


def _two(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 2


def _named(node: ast.AST, words: str) -> bool:
    return re.search(words, ast.unparse(node), re.IGNORECASE) is not None


@pytest.mark.parametrize(
    ("text", "doubles"),
    [
        ("first * 2.0 ** failures", True), ("2 ** n * first", True), ("min(2 ** failures, 30)", True), ("pause *= 2", True),  # noqa: E501
        ("2 * self._pause", True), ("-(2 ** (type_.bits - 1))", False), ("2**n - 1", False), ("2 * width", False),  # noqa: E501
        ("16 * 2**20", False),
    ],
)  # fmt: skip
def test_a_bound_of_a_type_is_no_pause(text: str, doubles: bool) -> None:
    assert any(map(_doubles, ast.walk(ast.parse(text)))) == doubles


def test_an_agent_that_no_coordinator_serves_says_so_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(client.time, "monotonic", lambda: now[0])
    asked = client.HeartbeatClient("a", ("127.0.0.1:1",), lambda _: None)

    class Closing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            now[0] += 1.0
            if now[0] >= 100 + 2 * leader_search.UNLED_S + 2:
                self.set()
            return False

    asked._closing = cast("Any", Closing())
    monkeypatch.setattr(leader_search, "ask_leader", lambda *_, **__: None)
    with capture_logs() as logs:
        asked._run_thread()
        assert [line["log_level"] for line in logs] == ["warning", "warning"]
        asked.search.note_round(served=True)
        now[0] += leader_search.UNLED_S - 0.1
        asked.search.note_round(served=False)
        assert len(logs) == 2, "it was served a moment ago"
        now[0] += 0.1
        asked.search.note_round(served=False)
    assert len(logs) == 3
    assert logs[0]["peers"] == ("127.0.0.1:1",)
