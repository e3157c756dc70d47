"""Folders of processes that share a state_dir."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from consumer.process import scratch_dir
from consumer.process.scratch_dir import own_folder

CHILD = """
import sys, time
from pathlib import Path
from consumer.process.scratch_dir import own_folder
with own_folder(Path(sys.argv[1])) as folder:
    (folder / "queries").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


def start(where: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(where)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_each_process_has_its_own_and_only_what_the_dead_left_is_removed(tmp_path: Path) -> None:
    alive, here = start(tmp_path)
    dead, left = start(tmp_path)
    assert here != left
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert left.is_dir()
    with own_folder(tmp_path) as folder:
        assert folder.is_dir()
        assert (here / "queries").is_dir(), "it lives"
        assert not left.exists(), "it is dead"
    alive.communicate("")
    assert list(tmp_path.iterdir()) == [], "who ends takes his away"


def test_another_process_may_have_swept_a_dead_one_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opened the lock's file before this process did, and ends between the two."""
    lock = tmp_path / "7-dead.lock"
    lock.touch()
    own = scratch_dir.try_lock

    def try_lock(file: IO[str]) -> bool:
        lock.unlink(missing_ok=True)
        return own(file)

    monkeypatch.setattr(scratch_dir, "try_lock", try_lock)
    with own_folder(tmp_path) as folder:
        assert folder.is_dir()
