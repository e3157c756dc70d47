"""How a test awaits something of a run, `Run.until`: a run that has ended is reported at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.running import Run


def ended_run(tmp_path: Path, code: int = 2) -> Run:
    log = tmp_path / "run.log"
    log.write_text("the agent has started\nno such setting: lanez\n")
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])
    process.wait(60)
    return Run(tmp_path / "rowlock.yaml", log, process)


def test_a_run_that_ended_by_itself_fails_at_once_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"exit code 2; missing: rows(.|\n)*no such setting: lanez"):
        ended_run(tmp_path).until(lambda: False, "rows", 600)


def test_a_condition_that_raises_because_the_run_ended_does_not_hide_it(tmp_path: Path) -> None:
    def ask_the_run() -> None:
        raise ConnectionError

    with pytest.raises(AssertionError, match="exit code 2; missing: rows"):
        ended_run(tmp_path).until(ask_the_run, "rows", 600)


def test_what_an_ended_run_has_done_counts(tmp_path: Path) -> None:
    assert ended_run(tmp_path).until(lambda: 7, "rows", 600) == 7


def test_a_run_that_the_test_has_stopped_is_not_reported(tmp_path: Path) -> None:
    run = ended_run(tmp_path, 0)
    assert run.stop() == 0
    with pytest.raises(AssertionError, match="not within 0 s: rows"):
        run.until(lambda: False, "rows", 0)
