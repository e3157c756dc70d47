"""Tries an installed rowlock as a new user would: the demo, `init` and `run`, in an empty folder without git.

`python -m tools.wheel_trial PYTHON` tries the one of that Python's environment. Nothing here imports rowlock:
the trial has only the installed commands.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_KEPT = "Everything keeps running"
_DEMO_S = 5
#: Variables of this process by which an installed rowlock could find the work tree.
_HIDDEN = ("PYTHONPATH", "ROWLOCK_CONFIG")
#: Arguments of `rowlock docs`: the first page, one that messages name, and one in Chinese.
_PAGES: tuple[tuple[str, ...], ...] = ((), ("start-over",), ("zh/tdsql",))
_BANK = (
    "CREATE DATABASE own",
    "CREATE TABLE own.acct (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO own.acct VALUES (1, 'Ada'), (2, 'Zoë')",
)


class TrialError(Exception):
    """The installed rowlock does not do what a new user expects. The message contains what was printed."""


def try_installed(python: Path) -> list[str]:
    """Run the demo, then `init` and `run` for a database of its servers, and return what was measured.

    `python`: the interpreter of the environment with rowlock.
    """
    rowlock = python.absolute().with_name("rowlock")
    with open_empty_folder() as (empty, env):
        began = time.monotonic()
        with subprocess.Popen(
            [rowlock, "demo", "--keep", "--seconds", str(_DEMO_S)], cwd=empty, env=env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as demo:  # fmt: skip
            try:
                folder = _await_kept_demo(demo)
                kept_s = time.monotonic() - began
                _try_first_hour(rowlock, folder, empty, env)
            finally:
                demo.terminate()
    if folder.exists():
        raise TrialError(f"the demo has left its folder {folder}")
    whole_s = time.monotonic() - began
    return [f"demo in {kept_s:.0f} s", f"init, run and verify in {whole_s - kept_s:.0f} s"]


def try_commands(python: Path) -> None:
    """Run what a new user tries before anything else: the version, help, and pages of the documentation."""
    rowlock = python.absolute().with_name("rowlock")
    with open_empty_folder() as (empty, env):
        _run([rowlock, "--version"], empty, env)
        _run([rowlock, "init", "--help"], empty, env)
        for page in _PAGES:
            file = Path(_run([rowlock, "docs", *page], empty, env).strip())
            if not file.is_file() or file.suffix != ".html":
                raise TrialError(
                    f"rowlock docs {' '.join(page)} printed {file}, which is no page of the site"
                )


@contextlib.contextmanager
def open_empty_folder() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield an empty folder, and the environment of a user who has neither a clone nor git."""
    env = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    with tempfile.TemporaryDirectory(prefix="rowlock-trial-") as scratch:
        empty = Path(scratch) / "empty"
        empty.mkdir()
        yield empty, {**env, "PATH": hide_git(env["PATH"], Path(scratch) / "programs")}


def hide_git(path: str, links: Path) -> str:
    """Return a PATH without git: each of its folders that has git is replaced by one with links to the other
    programs. `links`: where these folders are made.
    """
    kept = []
    for number, folder in enumerate(map(Path, path.split(os.pathsep))):
        if not (folder / "git").exists():
            kept.append(folder)
            continue
        without = links / str(number)
        without.mkdir(parents=True)
        for program in folder.iterdir():
            if not program.name.startswith("git"):
                (without / program.name).symlink_to(program.absolute())
        kept.append(without)
    return os.pathsep.join(map(str, kept))


def _run(command: list[str | Path], folder: Path, env: dict[str, str]) -> str:
    """Run a command in `folder`, and return what it printed. Raises TrialError if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        shown = " ".join(map(str, command))
        raise TrialError(f"{shown} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _await_kept_demo(demo: subprocess.Popen[str]) -> Path:
    """Read the demo's output until it keeps running, and return its folder."""
    lines = demo.stdout or iter(())
    printed = list(itertools.takewhile(lambda line: _KEPT not in line, lines))
    for line in lines:
        if line.startswith("  cd "):
            return Path(line.removeprefix("  cd ").strip())
    raise TrialError("rowlock demo --keep has ended:\n" + "".join(printed))


def _try_first_hour(rowlock: Path, demo: Path, folder: Path, env: dict[str, str]) -> None:
    """Copy a database of the demo's first branch into a new one, as README describes it."""

    def run(*command: str | Path) -> str:
        return _run(list(command), folder, env)

    for statement in _BANK:
        run(demo / "north", "-e", statement)
    run(demo / "office", "-c", "CREATE DATABASE own")
    ports = {name: _find_port(demo / name) for name in ("north", "office")}
    source = f"mariadb://root:@127.0.0.1:{ports['north']}/own"
    target = f"postgresql://postgres:@127.0.0.1:{ports['office']}/own"
    run(rowlock, "init", source, target, "--kafka", _find_kafka(demo / "follow"), "--yes")
    run(rowlock, "run", "--until-caught-up")
    verified = run(rowlock, "verify")
    if "equal" not in verified or "2 rows" not in verified:
        raise TrialError(f"rowlock verify after a first run: {verified}")


def _find_port(program: Path) -> str:
    """Return the port in a client's command, after -P or -p."""
    words = program.read_text().split()
    return next(port for option, port in itertools.pairwise(words) if option in ("-P", "-p"))


def _find_kafka(program: Path) -> str:
    """Return the broker, the last argument of the command `follow`."""
    return program.read_text().split()[-2]


if __name__ == "__main__":
    try:
        try_commands(Path(sys.argv[1]))
        sys.stdout.write("; ".join(try_installed(Path(sys.argv[1]))) + "\n")
    except TrialError as error:
        sys.exit(f"trial: {error}")
