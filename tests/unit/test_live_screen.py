"""The live view of `rowlock run` under a pseudo-terminal, with the lines of the log above it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rowlock.cli import STOPPED
from tests.kits.terminal import ROOT, Terminal

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: [bank.*]}
"""
VIEW = re.compile(r"^to-hq +484 ", re.MULTILINE)


def command(folder: Path, *options: str, mode: str = "well", before: tuple[str, ...] = ()) -> list[str]:
    (folder / "rowlock.yaml").write_text(CONFIG)
    words = (*before, "run", "-c", str(folder / "rowlock.yaml"), *options)
    return [sys.executable, "-m", "tests.stands.live_run", mode, *words]


def terminal(folder: Path, *options: str, mode: str = "well", width: int = 100, **env: str) -> Terminal:
    return Terminal(command(folder, *options, mode=mode), env, width=width)


@pytest.mark.parametrize("ending", ["keys", "SIGTERM"])
def test_view_is_shown_below_the_log_and_removed_at_the_end(tmp_path: Path, ending: str) -> None:
    with terminal(tmp_path) as seen:
        seen.until(lambda text: VIEW.search(text) and "3 rows in quarantine" in text, "figures")
        assert not seen.seen.has_cursor
        seen.until(lambda text: "step 12" in text, "the log goes on")
        view = seen.text.index("source  rows/s")
        assert len(VIEW.findall(seen.text)) == 1, "the view is replaced"
        for line in ("a line of Java", "process started", "unit stopped", "cause=" + "x" * 150, "step 10"):
            assert -1 < seen.text.find(line) < view, line
        assert "http://127.0.0.1:7780" in seen.text[view:]
        seen.type(b"\x03") if ending == "keys" else seen.process.send_signal(signal.SIGTERM)
        assert seen.end() == 0
        assert seen.seen.has_cursor
        assert "source  rows/s" not in seen.text
        assert "step 10" in seen.text
        last = [line.strip() for line in seen.seen.lines if line.strip()][-2:]
        assert last[0] == STOPPED
        assert last[1].startswith("rowlock: add -c "), "the file is not ./rowlock.yaml"
        assert "incubator modules: another" in seen.text
        assert "jdk.incubator.vector" not in seen.text


def test_every_line_of_the_log_is_shown_once_and_whole(tmp_path: Path) -> None:
    with terminal(tmp_path) as seen:
        seen.until(lambda text: text.count("step 25 ") == 2, "both logs")
        seen.type(b"\x03")
        seen.end()
        for child in ("agent", "coordinator"):
            steps = re.findall(rf"step (\d+) +.*child={child}\b", seen.text)
            assert steps[:26] == [str(number) for number in range(26)]


def test_silence_of_the_coordinator_is_shown_and_the_log_goes_on(tmp_path: Path) -> None:
    with terminal(tmp_path, mode="silent") as seen:
        seen.until(lambda text: re.search(r"figures are \d+ s old: coordinator c1 does not", text), "a note")
        assert VIEW.search(seen.text)


def test_a_view_that_fails_leaves_the_run_alone(tmp_path: Path) -> None:
    with terminal(tmp_path, mode="failing") as seen:
        seen.until(lambda text: "live view ended" in text, "a warning")
        assert "no room" in seen.text
        assert seen.seen.has_cursor
        last = max(map(int, re.findall(r"step (\d+)", seen.text)))
        seen.until(lambda text: f"step {last + 5}" in text, "the log goes on")
        assert not VIEW.search(seen.text)
        seen.type(b"\x03")
        assert seen.end() == 0


def test_a_resized_terminal_is_filled_to_its_new_width(tmp_path: Path) -> None:
    with terminal(tmp_path) as seen:
        seen.until(lambda text: VIEW.search(text) and "state" in text, "figures")
        seen.resize(40, 30)
        seen.until(lambda text: "state" not in text, "fewer columns")
        view = seen.text[seen.text.index("source  rows/s") :].splitlines()
        assert max(map(len, view)) <= 40


def test_no_color_means_no_colors(tmp_path: Path) -> None:
    colors = {str(number) for number in (*range(30, 38), *range(90, 98))}
    for env, expected in (({"NO_COLOR": "1"}, False), ({}, True)):
        with terminal(tmp_path, mode="silent", **env) as seen:
            seen.until(lambda text: "s old" in text, "a note")
            assert bool(seen.seen.styles & colors) is expected


@pytest.mark.parametrize(
    ("options", "env"),
    [
        (("--log-format", "json"), {}),
        (("--log-format", "console"), {}),
        ((), {"ROWLOCK_LOG": "json"}),
        ((), {"TERM": "dumb"}),
    ],
)
def test_lines_are_printed_where_no_view_is_wanted(
    tmp_path: Path, options: tuple[str, ...], env: dict[str, str]
) -> None:
    with terminal(tmp_path, *options, **env) as seen:
        seen.until(lambda text: "step 12" in text, "the log")
        seen.type(b"\x03")
        assert seen.end() == 0
        assert "rows/s" not in seen.text
        assert (STOPPED in seen.text) is ("json" not in (*options, *env.values()))
        lines = [line for line in seen.seen.lines if "step" in line]
        is_json = "json" in (*options, *env.values())
        assert all(line.startswith("{") == is_json for line in lines)
        assert not is_json or json.loads(lines[-1])["event"].startswith("step")


@pytest.mark.parametrize("before", [(), ("--log-format", "console")], ids=" ".join)
def test_a_pipe_gets_lines_only(tmp_path: Path, before: tuple[str, ...]) -> None:
    env = {name: value for name, value in os.environ.items() if name != "ROWLOCK_LOG"}
    process = subprocess.Popen(
        command(tmp_path, before=before),
        cwd=ROOT,
        env={**env, "TERM": "xterm"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process, process.stderr as lines:
        found = [next(lines) for _ in range(20)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert "\x1b" not in "".join(found)
    assert "rows/s" not in "".join(found)
    steps = [line for line in found if "step" in line]
    assert steps
    assert all(line.startswith("{") == (before == ()) for line in steps)
