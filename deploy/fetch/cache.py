"""The download cache: versioned folders outside the work tree, each complete or absent.

A folder is built beside its final place under a file lock and then renamed, so that two first runs at
once download only once and a killed run leaves nothing that looks finished.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from deploy.errors import EmbeddedError
from deploy.fetch.progress import WAIT_LINE_EVERY_S, print_wait
from schemas.io.file_lock import try_lock

MB = 1 << 20
CACHE_LOCK_POLL_S = 0.2
"""Seconds between two attempts to lock a folder of the cache."""


def cache_dir() -> Path:
    """Return $ROWLOCK_CACHE, else rowlock's folder in the user's cache directory."""
    own = os.environ.get("ROWLOCK_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "rowlock")


def ensure_cached(name: str, build: Callable[[Path], None], need: int) -> Path:
    """Return the cache's folder of this name; build it first if it is missing, which needs `need` bytes
    of free space.
    """
    final = cache_dir() / name
    if final.is_dir():
        return final
    with _lock_folder(name):
        if not final.is_dir():
            require_space(final.parent, need, f"downloading {name}")
            _build_folder(final, build)
    return final


def require_space(folder: Path, need: int, purpose: str) -> None:
    """Raise EmbeddedError before an action for which the disk has no room: a disk that fills half-way
    is harder to diagnose.
    """
    free = shutil.disk_usage(folder).free
    if free < need:
        raise EmbeddedError(
            f"the disk that holds {folder}",
            f"{free // MB} MB are free; {purpose} needs {need // MB} MB",
            "make room there, or choose another place with ROWLOCK_CACHE (downloads) or TMPDIR (data)",
        )


@contextmanager
def _lock_folder(name: str) -> Iterator[None]:
    """Hold a lock that at most one thread of one process has; it is released when its holder dies."""
    lock = _find_folder() / f".{name}.lock"
    with lock.open("w") as file:
        _await_lock(file, f"downloading {name}")
        yield


def _await_lock(file: IO[str], what: str) -> None:
    """Lock the file. `what`: what another process does that has the lock."""
    began = next_line = time.monotonic()
    while not try_lock(file):
        now = time.monotonic()
        if now >= next_line:
            print_wait(what, now - began)
            next_line = now + WAIT_LINE_EVERY_S
        time.sleep(CACHE_LOCK_POLL_S)


def _find_folder() -> Path:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedError(
            "the download cache",
            f"cannot create {folder} ({error.strerror})",
            "set ROWLOCK_CACHE to a writable folder",
        ) from error
    return folder


def _build_folder(final: Path, build: Callable[[Path], None]) -> None:
    staging = final.with_name(f".{final.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)  # left by a killed run: with the lock held, it is unused
    staging.mkdir()
    try:
        build(staging)
        staging.rename(final)
    except OSError as error:
        raise EmbeddedError(
            f"the download cache {final.parent}",
            f"writing failed ({error})",
            "make room or set ROWLOCK_CACHE, then run it again",
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
