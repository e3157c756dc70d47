"""What is done more often just after a start: an agent asks for its leader, and a new leader for the
topics."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from coordinator.core.leader.state import Inventory
from coordinator.server import background
from coordinator.server.background import FRESH, FRESH_S, InventoryPoller
from coordinator.transport import client as module
from coordinator.transport import leader_search
from coordinator.transport.client import ClientTiming, HeartbeatClient


class Pauses:
    """Stands for a condition: notes how long it was waited for."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify(self) -> None: ...

    def wait(self, seconds: float) -> None:
        self.seen.append(seconds)


def test_a_new_leader_asks_for_the_catalogue_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = [100.0], Pauses()
    monkeypatch.setattr(background.time, "monotonic", lambda: now[0])
    poller = InventoryPoller(lambda: Inventory(()), lambda *_: None, 1.0)
    poller._changed = cast(Any, pauses)
    poller.set_term(7)
    assert poller._wait_for_turn(0) == 7, "at once"
    assert poller._wait_for_turn(7) == 7
    now[0] += FRESH_S
    assert poller._wait_for_turn(7) == 7
    assert pauses.seen == [1.0 / FRESH, 1.0]


@pytest.mark.parametrize("known_rev", [0, 5])
def test_an_agent_that_has_seen_no_leader_yet_asks_more_often(
    monkeypatch: pytest.MonkeyPatch, known_rev: int
) -> None:
    timing, pauses = ClientTiming(), list[float]()
    client = HeartbeatClient("a", ("127.0.0.1:1",), lambda _: None)
    client.search.note_rev(known_rev)

    class Closing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 10:
                self.set()
            return False

    client._closing = Closing()
    monkeypatch.setattr(leader_search, "ask_leader", lambda *_, **__: None)
    monkeypatch.setattr(module.random, "uniform", lambda _low, high: high)
    client._run_thread()
    most = timing.retry_most if known_rev else timing.retry_unknown
    assert pauses[0] == 2 * timing.retry_first
    assert max(pauses) == pauses[-1] == most
