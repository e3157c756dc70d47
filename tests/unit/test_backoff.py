"""What is tried again: one back-off, its delays as a table, and who has which; nobody doubles a pause alone."""

from __future__ import annotations

import re
import threading
from math import inf
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

import producer.capture
from consumer.attempt import transactions
from consumer.ordering.lanes import LaneLimits
from consumer.process.operations import fencing
from consumer.targets import progress_store
from consumer.units import supervision
from coordinator.core.health import HealthConfig
from coordinator.core.owner.state import OwnerConfig
from coordinator.transport import client
from rowlock.agent import apply, capture
from rowlock.processes import supervisor
from schemas.backoff import Backoff, pause_after

ROOT = Path(__file__).resolve().parents[2]
#: The pauses after each failure in a row, in seconds, until they stay.
PAUSES = {
    "capture of a source": (producer.capture._BACKOFF, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0], 60.0),
    "an apply unit, a query": (supervision.TROUBLE, [0.5, 1, 2, 4, 8, 16, 20], 60.0),
    "a fence": (fencing.FENCE, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0], inf),
    "the apply process": (apply.RESTARTS, [1, 2, 4, 8, 16, 30], 60.0),
    "capture that waits for a person": (capture.LOOKS, [15, 30, 60, 120], inf),
    "coordinator and agent of a run": (supervisor.RESTARTS, [1, 2, 4, 8, 16, 30], 60.0),
}  # fmt: skip


@pytest.mark.parametrize("what", PAUSES)
def test_pauses_double_up_to_a_limit_and_begin_again_after_a_quiet_time(what: str) -> None:
    backoff, pauses, quiet = PAUSES[what]
    now, seen = 1000.0, []
    assert (backoff.pause, backoff.next_at) == (0, -inf)
    for _ in range(len(pauses) + 1):
        backoff = backoff.failed(now)
        assert backoff.next_at == now + backoff.pause
        seen.append(backoff.pause)
        now = backoff.next_at
    assert seen == pytest.approx([*pauses, pauses[-1]])
    assert backoff.well().failed(now).pause == pauses[0]
    assert backoff.quiet == quiet
    later = min(quiet, 1e9)
    assert backoff.failed(backoff.since + later - 1).pause == pauses[-1]
    assert backoff.failed(backoff.since + later).pause == (pauses[0] if quiet < inf else pauses[-1])


def test_quiet_is_counted_from_a_start_that_was_later_than_the_failure() -> None:
    backoff = Backoff(first=1, longest=8, quiet=60).failed(0).failed(1).started(50)
    assert backoff.failed(70).pause == 4
    assert backoff.failed(110).pause == 1


@pytest.mark.parametrize(
    ("first", "longest", "pauses"),
    [
        (LaneLimits().pause, LaneLimits().max_pause, [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2]),
        (transactions.FIRST_PAUSE_S, inf, [0, 0.05, 0.1, 0.2, 0.4]),
        (progress_store.MAKE_PAUSE_S, inf, [0, 0.05, 0.1, 0.2, 0.4, 0.8]),
        (OwnerConfig().retry_first, OwnerConfig().retry_most, [0, 1, 2, 4, 8, 16, 32, 60, 60]),
        (HealthConfig().retry_first, HealthConfig().retry_most, [0, 10, 20, 40, 80, 160, 320, 600, 600]),
        (client.ClientTiming().retry_first, client.ClientTiming().retry_most, [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1]),
    ],
)  # fmt: skip
def test_pauses_of_what_counts_its_failures_itself(first: float, longest: float, pauses: list[float]) -> None:
    assert [pause_after(number, first, longest) for number in range(len(pauses))] == pytest.approx(pauses)
    assert pause_after(100_000, first, 3600) <= 3600


def test_nobody_doubles_a_pause_alone() -> None:
    """`deploy` knows nothing of ours; what doubles elsewhere is how long is waited for a preparation, and is no pause."""
    doubling = re.compile(
        r"\b2(\.0)? ?\*\* ?[a-z(]|(pause|wait|delay|backoff)\w* ?\*=? ?2\b|2 ?\* ?(pause|wait|delay)"
    )
    found = {
        str(path.relative_to(ROOT))
        for package in ("producer", "consumer", "coordinator", "rowlock", "schemas")
        for path in (ROOT / package).rglob("*.py")
        if doubling.search(path.read_text())
    }
    sizes = {"consumer/targets/checks/column_fit.py", "consumer/tables/evolution/widening.py"}  # of types
    assert found - sizes == {
        "schemas/backoff.py",
        "coordinator/core/owner/patience.py",
    }


def test_an_agent_that_no_coordinator_serves_says_so_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(client.time, "monotonic", lambda: now[0])
    asked = client.HeartbeatClient("a", ("127.0.0.1:1",), lambda _: None)

    class Closing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            now[0] += 1.0
            if now[0] >= 100 + 2 * client.UNLED_S + 2:
                self.set()
            return False

    asked._closing = cast("Any", Closing())
    monkeypatch.setattr(client, "ask_leader", lambda *_, **__: None)
    with capture_logs() as logs:
        asked._run()
    assert [line["log_level"] for line in logs] == ["warning", "warning"]
    assert asked._unled(now[0] - 1, served=True) == now[0]
    assert asked._unled(now[0] - 1, served=False) == now[0] - 1
    assert logs[0]["peers"] == ("127.0.0.1:1",)
