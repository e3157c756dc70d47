"""The parent's side of the guardian: every child process is started, and every temporary folder is
made, through it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

# The child registers itself before it becomes the service. The pipe reports end of file only after the
# child has let go of it, so there is no moment in which a kill of the parent would leave an
# unregistered service running.
_WRAPPER = 'echo "+p $$" >&0; exec "$@" </dev/null'
NOBODY_UID = 65534


class _GuardianClient:
    """A guardian process and the pipe that keeps it waiting."""

    def __init__(self) -> None:
        read, self.pipe = os.pipe()
        script = Path(__file__).with_name("guardian.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)],
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        os.close(read)
        atexit.register(self._finish_cleanup, os.getpid())

    def send_line(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.pipe, os.fsencode(line + "\n"))

    def _finish_cleanup(self, owner: int) -> None:
        """At a normal exit: close the pipe and wait until all services and folders are removed."""
        if os.getpid() == owner:
            os.close(self.pipe)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=20)


_guard: _GuardianClient | None = None
_lock = threading.Lock()


def _get_guard() -> _GuardianClient:
    global _guard
    with _lock:
        if _guard is None:
            _guard = _GuardianClient()
        return _guard


def _forget_guard() -> None:
    """Close the pipe in a forked child: an open copy would hide the parent's end from the guardian."""
    global _guard
    if _guard is not None:
        os.close(_guard.pipe)
        _guard = None


os.register_at_fork(after_in_child=_forget_guard)


def spawn_process(
    command: Sequence[str | Path],
    *,
    output: IO[bytes] | int,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    unprivileged: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process that cannot outlive this one; `unprivileged`: as the user nobody (needs root)."""
    identity = NOBODY_UID if unprivileged else None
    return subprocess.Popen(
        ["/bin/sh", "-c", _WRAPPER, "sh", *map(str, command)],
        stdin=_get_guard().pipe,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=None if env is None else {**os.environ, **env},
        cwd=cwd,
        start_new_session=True,
        user=identity,
        group=identity,
        extra_groups=[] if unprivileged else None,
    )


def release_process(process: subprocess.Popen[bytes]) -> None:
    """Report that the process has ended and been waited for."""
    _get_guard().send_line(f"-p {process.pid}")


def make_temporary_folder(prefix: str, parent: Path | None = None) -> Path:
    """Create a folder that is removed when this process ends; other users may enter it, but not list it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    _get_guard().send_line(f"+d {folder}")
    folder.chmod(0o711)
    return folder


def unregister_folder(folder: Path) -> None:
    """Report that the folder was deleted, or is no longer temporary."""
    _get_guard().send_line(f"-d {folder}")
