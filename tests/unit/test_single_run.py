"""Only one `rowlock run` of a system runs on a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from rowlock.cli import STOPPED, main
from rowlock.errors import CommandError
from rowlock.processes.single_run import claim_run
from schemas.config.model import Config, load_config
from tests.kits.command_line import CONFIG

HOLDER = (
    "import sys; from pathlib import Path; from schemas.config.model import load_config;"
    "from rowlock.processes.single_run import claim_run\n"
    "with claim_run(load_config(Path(sys.argv[1]))): print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "rowlock.yaml"
    file.write_text(CONFIG)
    return load_config(file)


@contextmanager
def _running(config: Config) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that holds the claim of a run."""
    command = [sys.executable, "-c", HOLDER, str(config.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def _run(config: Config) -> Result:
    return CliRunner().invoke(main, ["run", "-c", str(config.path)])


def test_a_second_run_is_refused_before_it_checks_anything(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.cli._check_before_start", lambda *_, **__: pytest.fail("checked"))
    with _running(config) as first:
        second = _run(config)
    assert second.exit_code == 2, second.output
    assert second.stderr.splitlines()[0] == (
        f"rowlock: another `rowlock run` (pid {first.pid}) of this configuration is running on this machine: "
        "stop it first (see `rowlock status`)"
    )


def test_a_run_that_was_killed_does_not_block_the_next(config: Config) -> None:
    with _running(config) as first:
        first.kill()
        first.wait()
        with (
            claim_run(config),
            pytest.raises(CommandError, match=rf"\(pid {os.getpid()}\)"),
            claim_run(config),
        ):
            pytest.fail("two runs")


def test_systems_of_other_prefixes_run_beside(config: Config) -> None:
    other = config.model_copy(update={"kafka": config.kafka.model_copy(update={"prefix": "other"})})
    with claim_run(config), claim_run(other):
        pass


def test_a_state_dir_without_right_to_write_is_left_to_check(config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with claim_run(config.model_copy(update={"state_dir": tmp_path / "file" / "state"})):
        pass


@pytest.mark.parametrize(
    ("summary", "last"), [("caught up: 2 tables", "rowlock: caught up: 2 tables"), ("", STOPPED)]
)
def test_a_run_until_caught_up_ends_with_a_sentence(
    config: Config, monkeypatch: pytest.MonkeyPatch, summary: str, last: str
) -> None:
    """Ctrl-C ends it before it has caught up."""
    monkeypatch.setenv("ROWLOCK_LOG", "console")
    monkeypatch.setattr("rowlock.cli._check_before_start", lambda *_, **__: [])
    goal = SimpleNamespace(summary=summary)
    monkeypatch.setattr("rowlock.inspect.caught_up.CaughtUpGoal", lambda *_: goal)
    monkeypatch.setattr("rowlock.processes.run.run_processes", lambda *_, **__: 0)
    ran = CliRunner().invoke(main, ["run", "--until-caught-up", "-c", str(config.path)])
    assert ran.exit_code == 0, ran.output
    assert last in ran.stderr.splitlines()
