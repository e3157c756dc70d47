"""The earlier versions that a system is upgraded from: those of docs/releases.md, each installed from the
repository's own history."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.fetch.cache import MB, ensure_cached
from tests.kits.running import Program

ROOT = Path(__file__).resolve().parents[2]
NEWEST = 2
"""So many of the newest versions are tried."""
SPACE = 1500 * MB
"""PySpark and its dependencies, and what pip needs meanwhile."""


@dataclass(frozen=True)
class Release:
    """A row of docs/releases.md. `commit`: as it is written there, perhaps abbreviated."""

    version: str
    commit: str


def listed(page: str) -> list[Release]:
    """Return the releases of docs/releases.md, newest first. Raises ValueError for a row that is not one."""
    rows = [line for line in page.splitlines() if line.startswith("|")]
    found = []
    for row in rows[2:]:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) != 4 or not all(cells[:3]):
            raise ValueError(f"docs/releases.md: {row!r} is not version, date, commit and notes")
        found.append(Release(cells[0], cells[2]))
    return found


def to_try(releases: Sequence[Release], head: str | None) -> list[Release]:
    """Return the newest releases but for the present commit."""
    return [each for each in releases if head is None or not head.startswith(each.commit)][:NEWEST]


def earlier_releases() -> list[Release]:
    """Return the releases that this tree is to continue."""
    return to_try(listed((ROOT / "docs/releases.md").read_text()), _git("rev-parse", "HEAD"))


def installed(release: Release) -> Program:
    """Return the program of an earlier version; it is installed if it is not there yet. Skips the test where
    the history is missing."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{release.commit}^{{commit}}")
    if commit is None:
        _without_history(f"commit {release.commit} of version {release.version} is not in this clone")
    environment = ensure_cached(f"rowlock-{commit[:12]}", lambda folder: _install(commit, folder), SPACE)
    # PYTHONSAFEPATH: `python -m`, in its children too, shall not find the present tree in the working
    # directory.
    program = Program(str(environment / "bin/python"), {"PYTHONSAFEPATH": "1"}, environment)
    found = subprocess.run(
        [program.python, "-P", "-c", "import rowlock; print(rowlock.__file__)"],
        cwd=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(found.stdout.strip()).is_relative_to(environment), found.stdout
    return program


def _without_history(why: str) -> None:
    if os.environ.get("ROWLOCK_REQUIRE_HISTORY"):
        pytest.fail(
            f"{why}: clone with the whole history (ROWLOCK_REQUIRE_HISTORY is set, as .ci/run does)",
            pytrace=False,
        )
    pytest.skip(f"{why}: clone with the whole history to test the upgrade")


def _install(commit: str, folder: Path) -> None:
    """Make an environment with the archive of a commit, and its dependencies, installed by pip."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory(prefix="rowlock-old-") as tree:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, tree], check=True)


def _git(*words: str) -> str | None:
    """Return what a git command prints; None: it fails, or there is no repository."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
