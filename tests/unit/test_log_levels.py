"""What the product handles by itself, as it is designed, is no error in the log; what needs a person is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumer.attempt.attempt import Attempt
from consumer.attempt.reports import Report
from consumer.slots.served_pipeline import _log_report
from rowlock.agent import run as agent_run
from rowlock.agent.apply import ApplyWorker
from rowlock.agent.run import LEADER_START_S, AgentConfiguration
from schemas.config.changes.parts import compute_config_digest
from schemas.config.model import load_config

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: h, port: 1, user: u, password: p, tables: [bank.*]}
targets:
  t: {type: postgres, host: h, port: 1, user: u, password: p, database: d}
pipelines:
  p: {sources: [b1], target: t, lanes: LANES, routes: [{from: bank.*, to: "public.{table}"}]}
"""


def test_an_attempt_that_a_takeover_ended_is_no_error() -> None:
    with capture_logs() as logs:
        _log_report(Report("t", "fenced", 1, 5, message="another worker owns t of pipeline p now"))
    assert [(each["event"], each["log_level"]) for each in logs] == [("unit was continued elsewhere", "info")]
    assert logs[0]["message"].startswith("another command or process has worked on the unit")
    assert logs[0]["seen"] == "another worker owns t of pipeline p now"


def test_an_apply_process_that_is_started_again_is_a_warning(tmp_path: Path) -> None:
    shell: Any = ApplyWorker(None, SimpleNamespace(list_units=tuple), None)  # type: ignore[arg-type]
    shell._start_later = lambda _: None
    with capture_logs() as logs:
        shell._end_lost_units("the apply process ended with code -9")
    assert [(each["event"], each["log_level"], each["restart_in_s"]) for each in logs] == [
        ("apply process ended, will be restarted", "warning", 1.0)
    ]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[int], Path]:
    def write(lanes: int) -> Path:
        file = tmp_path / "c.yaml"
        file.write_text(CONFIG.replace("LANES", str(lanes)))
        return file

    return write


def test_an_edited_file_is_an_error_only_if_the_leader_does_not_activate_it(
    write: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader names the configuration of an earlier one until it has read its own inventory once."""
    now = [100.0]
    monkeypatch.setattr(agent_run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    earlier = load_config(write(1))
    agent = AgentConfiguration(load_config(write(2)), lambda _: None)

    def levels(digest: str, seconds: float) -> list[str]:
        now[0] += seconds
        with capture_logs() as logs:
            assert not agent.adopt_config(digest)
        return [each["log_level"] for each in logs]

    digest = compute_config_digest(earlier)
    assert levels(digest, 0.0) == ["info"]
    assert levels(digest, LEADER_START_S - 5.0) == ["info"]
    assert levels(digest, 5.0) == ["error"]
    assert levels(digest, 500.0) == ["error"]
    assert levels("of another leader", 5.0) == ["info"]


def test_a_stop_that_is_not_recorded_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop itself is logged as an error, and holds without the record."""
    shell: Any = SimpleNamespace(
        spec=SimpleNamespace(unit=SimpleNamespace(topic="t")), _build_report=lambda trouble: trouble
    )
    trouble: Any = SimpleNamespace(fault=False, state="stopped", problem=None)
    monkeypatch.setattr("consumer.attempt.attempt.encode_problem", lambda _: "why")
    machine = Attempt._record_trouble(shell, trouble)
    next(machine)
    with capture_logs() as logs, pytest.raises(StopIteration):
        machine.throw(ValueError("the target refuses it"))
    assert [(each["event"], each["log_level"]) for each in logs] == [
        ("stop of a unit not recorded", "warning")
    ]
