"""The download cache: versioned folders outside the work tree, each complete or absent.

A folder is built beside its final place under a file lock and then renamed, so that two first runs at once download
only once and a killed run leaves nothing that looks finished.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.embedded.errors import EmbeddedError

MB = 1 << 20


def cache_dir() -> Path:
    """$ROWLOCK_CACHE, else rowlock's folder in the user's cache directory."""
    own = os.environ.get("ROWLOCK_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "rowlock")


def ensure_cached(name: str, build: Callable[[Path], None], need: int) -> Path:
    """The cache's folder of this name; builds it first if it is not there, given `need` bytes of free space."""
    final = cache_dir() / name
    if final.is_dir():
        return final
    with _lock_folder(name):
        if not final.is_dir():
            require_space(final.parent, need, f"downloading {name}")
            _build_folder(final, build)
    return final


def require_space(folder: Path, need: int, purpose: str) -> None:
    """Refuses to begin what the disk cannot hold: a full disk half-way is far harder to understand."""
    free = shutil.disk_usage(folder).free
    if free < need:
        raise EmbeddedError(
            f"the disk that holds {folder}",
            f"{free // MB} MB are free; {purpose} needs {need // MB} MB",
            "make room there, or choose another place with ROWLOCK_CACHE (downloads) or TMPDIR (data)",
        )


@contextmanager
def _lock_folder(name: str) -> Iterator[None]:
    """Held by at most one thread of one process; the lock vanishes with its holder."""
    lock = _find_folder() / f".{name}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
    shutil.rmtree(staging, ignore_errors=True)  # left by a killed run: we hold the lock, nobody uses it
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
