"""A scratch folder of one process.

Agents of one machine may share a state_dir; each folder is deleted when its process ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from schemas.io.file_lock import try_lock


@contextmanager
def own_folder(where: Path) -> Iterator[Path]:
    """Create a folder in `where` that is deleted at the end, and delete the folders of dead processes
    there.

    A lock on a file beside the folder shows that its process lives; the system releases the lock however
    the process dies.
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
        if try_lock(held):  # otherwise another process swept it, and deletes it
            folder.mkdir()
            return folder, held
        held.close()


def _sweep_folder(lock: Path) -> None:
    try:
        found = lock.open("r+")
    except FileNotFoundError:  # swept by another process
        return
    with found:
        if try_lock(found):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
