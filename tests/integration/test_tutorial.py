"""The tutorial: its commands run as they are printed, and print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
from deploy.guard.guardian import kill_tree
from tests.kits.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("first-report.md", "break-and-repair.md")
END = "--- end of the block:"
BLOCK = re.compile(r"^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
SERVERS = """\
export KAFKA={kafka}
export BANK=mariadb://rowlock:tutorial@127.0.0.1:{mariadb}/bank
export OFFICE=postgresql://rowlock:tutorial@127.0.0.1:{postgres}/office
bank() {{ {bank} "$@"; }}
office() {{ {office} "$@"; }}
"""


class Step(NamedTuple):
    """A block of commands of a page."""

    place: str
    commands: str
    code: int
    """The exit code that the text before it names; 0 without one."""
    shown: tuple[str, ...]
    """The lines that the page shows as its output."""


def read_steps(folder: Path) -> list[Step]:
    """Return the blocks of both parts of the tutorial."""
    steps = []
    for name in PAGES:
        text, end = (folder / name).read_text(), 0
        for found in BLOCK.finditer(text):
            code = re.search(r"exit code (\d)", text[end : found.start()])
            shown = tuple(" ".join(line.split()) for line in (found[2] or "").splitlines())
            place = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
            steps.append(Step(place, found[1], int(code[1]) if code else 0, shown))
            end = found.end()
    return steps


class Shell:
    """A reader's shell, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        programs = folder / "programs"
        programs.mkdir()
        rowlock = programs / "rowlock"
        rowlock.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rowlock.cli "$@"\n')
        rowlock.chmod(0o755)
        env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "400"}
        self.process = subprocess.Popen(
            ["bash"], cwd=folder, env=env | {"PATH": f"{programs}:{env['PATH']}"}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, commands: str) -> tuple[int, str]:
        """Return exit code and output of the last command of a block."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{commands}\necho '{END}' $?\n")
        self.process.stdin.flush()
        lines = []
        while not (line := self.process.stdout.readline()).startswith(END):
            assert line, f"the shell has ended: {lines}"
            lines.append(" ".join(line.split()))
        return int(line.split()[-1]), "\n".join(lines)

    def follow(self, step: Step) -> None:
        """Run a block; one with output on the page is repeated until it prints that."""
        code, output = self.run(step.commands)

        def is_shown() -> bool:
            nonlocal code, output
            if not all(line in output for line in step.shown):
                code, output = self.run(step.commands)
            return all(line in output for line in step.shown)

        try:
            until(is_shown, f"{step.place} prints {step.shown}", 120)
        finally:
            print(f"{step.place}: exit code {code}\n{output}")  # shown if the test fails
        assert code == step.code, step.place


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    kafka, mariadb, postgres = Kafka(), MariaDB(), PostgreSQL()
    with combine_services(kafka, mariadb, postgres):
        opened = Shell(tmp_path)
        clients = (shlex.join(server.build_shell_command("")[:-1]) for server in (mariadb, postgres))
        bank, office = clients
        names = SERVERS.format(
            kafka=kafka.bootstrap, mariadb=mariadb.port, postgres=postgres.port, bank=bank, office=office
        )
        with opened.process:
            assert opened.run(names) == (0, "")
            yield opened
            kill_tree(opened.process.pid)


def test_the_chinese_tutorial_has_the_same_commands() -> None:
    english, chinese = (read_steps(ROOT / "docs" / name) for name in ("tutorial", "zh"))
    assert len(english) > 20
    assert [step[1:] for step in chinese] == [step[1:] for step in english]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_both_parts_of_the_tutorial_work_as_they_are_printed(shell: Shell) -> None:
    servers, *steps = read_steps(ROOT / "docs" / "tutorial")
    assert re.findall(r"^(?:export )?\w+", servers.commands, re.M) == re.findall(
        r"^(?:export )?\w+", SERVERS, re.M
    ), "the first block names the servers, which the test replaces by its own"
    for step in steps:
        shell.follow(step)
    assert "Traceback" not in shell.run("cat run.log")[1]
