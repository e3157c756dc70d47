"""Services that a test stopped go on before the next one, and tests that stop none are not held up by
that."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests import services
from tests.kits.families import family, send
from tests.kits.waiting import until
from tests.services import SERVICES, may_have_stopped, revive_all


def request_of(markers: set[str], names: tuple[str, ...]) -> Any:
    node = SimpleNamespace(get_closest_marker=lambda name: name if name in markers else None)
    return SimpleNamespace(node=node, fixturenames=names)


@pytest.mark.parametrize(
    ("markers", "names", "may"),
    [
        ({"integration"}, ("unique",), True),
        ({"faults", "slow"}, (), True),
        (set(), ("tmp_path", "postgres"), True),
        ({"slow"}, ("tmp_path", "unique"), False),
    ],
)
def test_who_may_have_stopped_a_service(markers: set[str], names: tuple[str, ...], may: bool) -> None:
    assert may_have_stopped(request_of(markers, names)) == may


def test_a_unit_test_has_stopped_none(request: pytest.FixtureRequest) -> None:
    assert not may_have_stopped(request)


def test_every_service_is_named() -> None:
    text = Path(str(services.__file__)).read_text()
    fixtures = re.findall(r"^@pytest\.fixture\(scope=.(?:session|module).\)\ndef (\w+)\(", text, re.MULTILINE)
    assert set(fixtures) == SERVICES


def test_what_stands_still_goes_on_with_its_family_and_what_has_ended_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    monkeypatch.setattr(services, "_started", [SimpleNamespace(start=lambda: started.append("again"))])
    with subprocess.Popen(["/bin/sh", "-c", "sleep 600 & wait"]) as process:
        try:
            until(lambda: len(family(process.pid)) == 2, "a family")
            both = family(process.pid)
            send(both, signal.SIGSTOP)
            until(lambda: all(each.status() == psutil.STATUS_STOPPED for each in both), "it stands still")
            revive_all()
            until(lambda: all(each.status() != psutil.STATUS_STOPPED for each in both), "it goes on", 30)
        finally:
            send(reversed(family(process.pid)), signal.SIGKILL)
    assert started == ["again"]
