"""SIGHUP asks the leader for a reload, says what came of it, and stops a process whose terminal has gone."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any, cast

import pytest
import structlog

from rowlock.coordinator import sighup
from rowlock.coordinator.leader_client import LeaderClient
from rowlock.errors import CommandError
from tests.kits.coordination import until


class Leader:
    """`answers`: what it says, or raises."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def __enter__(self) -> Leader:
        return self

    def __exit__(self, *_: object) -> None: ...

    def reload_config(self) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast(dict[str, Any], answer)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_what_came_of_it_is_logged(monkeypatch: pytest.MonkeyPatch, logged: list[Any]) -> None:
    leader = Leader(
        {"digest": "abc", "changes": ["pipelines.p.lanes: 4 → 2"]},
        CommandError("c.yaml:3: wrong\nc.yaml:4: wrong"),
        OSError("broken"),
    )
    monkeypatch.setattr(LeaderClient, "from_config", lambda _: leader)
    for _ in range(3):
        sighup.ask_for_reload(cast(Any, None))
    assert [(line["event"], line["log_level"]) for line in logged] == [
        ("configuration reloaded", "info"),
        ("reload refused", "error"),
        ("reload failed", "error"),
    ]
    assert logged[0]["changes"] == ["pipelines.p.lanes: 4 → 2"]
    assert logged[1]["errors"] == ["c.yaml:3: wrong", "c.yaml:4: wrong"]


def test_each_signal_asks_and_one_of_a_lost_terminal_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    terminals, asked, killed = [True, True, False], list[str](), list[signal.Signals]()
    monkeypatch.setattr(sighup, "_is_on_terminal", lambda: terminals.pop(0))
    monkeypatch.setattr(sighup, "ask_for_reload", asked.append)
    before = signal.getsignal(signal.SIGHUP)
    with contextlib.ExitStack() as stack:
        stack.enter_context(sighup.reload_on_hangup(cast(Any, "c")))
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: asked == ["c"], what="the question")
        monkeypatch.setattr(os, "kill", lambda _, number: killed.append(number))
        signal.raise_signal(signal.SIGHUP)
        until(lambda: killed == [signal.SIGTERM], what="the stop")
    assert asked == ["c"]
    assert signal.getsignal(signal.SIGHUP) is before
