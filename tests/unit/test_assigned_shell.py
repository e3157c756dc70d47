"""How long a query that starts is waited for, by a clock of our own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from consumer.assigned import shell
from consumer.assigned.shell import WARM_IDLE_S, WARM_SLOW_S, PipelineShell

Look = tuple[int, dict[str, int], bool]


class Query:
    """What it looks like at each second; `at`: the clock."""

    name, active = "q", True

    def __init__(self, looks: Callable[[float], Look]) -> None:
        self.at, self._looks = 0.0, looks

    def look(self) -> Look:
        return self._looks(self.at)


def _warmed_after(monkeypatch: pytest.MonkeyPatch, query: Query) -> float:
    """Return how long the shell waits for `query`, in its own seconds."""

    def sleep(_seconds: float) -> None:
        query.at += 1.0
        assert query.at < 1000, "waits for ever"

    clock = SimpleNamespace(monotonic=lambda: query.at, sleep=sleep)
    monkeypatch.setattr(shell, "time", clock)
    starting = object.__new__(PipelineShell)
    starting._ending = threading.Event()
    starting._warm(query)  # type: ignore[arg-type]
    return query.at


def test_a_first_batch_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that moves onto a query which does nothing yet stands still: seen for 17 s on a busy machine."""
    took = 3 * WARM_SLOW_S
    query = Query(lambda at: (0 if at >= took else -1, {}, False))
    assert _warmed_after(monkeypatch, query) == took


def test_a_query_with_nothing_to_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WARM_IDLE_S <= _warmed_after(monkeypatch, Query(lambda _at: (-1, {}, True))) <= WARM_IDLE_S + 1


def test_a_query_that_died_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(lambda _at: (-1, {}, False))
    query.active = False
    assert _warmed_after(monkeypatch, query) == 0
