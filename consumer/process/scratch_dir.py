"""A folder for one process. Agents of one machine may share a state_dir, and nothing of it outlives the process."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def own_folder(where: Path) -> Iterator[Path]:
    """Make a folder in `where` that is removed at the end; what processes that are dead have left there is removed as well.

    Who lives is told by a lock on the file beside the folder, which the system lets go whatever the process dies of.
    """
    where.mkdir(parents=True, exist_ok=True)
    for lock in where.glob("*.lock"):
        _sweep_folder(lock)
    folder, held = _create_locked_folder(where)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        Path(held.name).unlink(missing_ok=True)
        held.close()


def _create_locked_folder(where: Path) -> tuple[Path, IO[str]]:
    while True:
        folder = where / f"{os.getpid()}-{secrets.token_hex(4)}"
        held = folder.with_name(f"{folder.name}.lock").open("w")
        if _try_lock(held):  # else a sweep was faster, and removes it
            folder.mkdir()
            return folder, held
        held.close()


def _sweep_folder(lock: Path) -> None:
    try:
        found = lock.open("r+")
    except FileNotFoundError:  # swept by another one
        return
    with found:
        if _try_lock(found):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
