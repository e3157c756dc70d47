"""The active units of a running query with their fencing tokens, as the driver passes them to its
workers.

They are in one small file that is replaced as a whole. Workers check it before each topic and after each
slice (a stat, and a read if it has changed). The file does not fence: a worker that has not checked yet
is stopped by the fencing token in the target.

`AttemptLocks` shows whether an attempt still runs anywhere on this machine if the target does not
answer. Each attempt holds a lock on its topic's byte of one file. The kernel releases the lock when the
process ends, for whatever reason. A process does not see its own locks, so it counts its attempts.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import xxhash

from consumer.errors import TargetConfigError

_EPOCHS = msgspec.json.Decoder(dict[str, int])
_FLOCK = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""


def write_active_units(path: Path, epochs: Mapping[str, int]) -> None:
    """Replace the active units (topic → fencing token) in a query's file `path`."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(msgspec.json.encode(epochs))
    # The kernel stamps files in ticks of milliseconds and reuses inode numbers: two versions must differ.
    now = time.time_ns()
    os.utime(fresh, ns=(now, now))
    fresh.replace(path)


class ActiveUnitsReader:
    """A worker's view of a query's active units. A missing file means that no unit is active."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._epochs: dict[str, int] = {}

    def get_epoch(self, topic: str) -> int | None:
        """Return the fencing token under which `topic` is applied now; None if it is not active."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - in the hot path  # the hot path
            seen = (found.st_ino, found.st_mtime_ns)
            if seen != self._seen:
                self._epochs = _EPOCHS.decode(Path(self._path).read_bytes())
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._epochs = None, {}
        return self._epochs.get(topic)


class AttemptLocks:
    """The lock file of a pipeline's attempts; one instance in each process."""

    def __init__(self, path: str) -> None:
        """Open the lock file.

        Raises TargetConfigError if its folder is missing: this is then not the agent's machine.
        """
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:
            raise TargetConfigError(
                f"a Spark executor on {socket.gethostname()} does not find {Path(path).parent} of the "
                "rowlock agent that it works for",
                "executors must run on the agent's own machine; to use several machines, run an agent on "
                "each (see 'Run it on several machines' in rowlock's documentation)",
            ) from error
        self._here: Counter[str] = Counter()
        self._mutex = threading.Lock()

    @contextmanager
    def lock_attempt(self, topic: str) -> Iterator[None]:
        """Hold the lock during an attempt.

        Never waits: attempts may overlap, and the target tells them apart.
        """
        at = _compute_lock_byte(topic)
        with self._mutex:
            self._here[topic] += 1
        fcntl.lockf(self._file, fcntl.LOCK_SH, 1, at)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, at)
            with self._mutex:
                self._here[topic] -= 1

    def find_holder(self, topic: str) -> int | None:
        """Return the id of a process that runs an attempt at `topic`, preferably another one; None if
        there is none.
        """
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _compute_lock_byte(topic), 1, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            return int(pid)
        return os.getpid() if self._here[topic] else None

    def close(self) -> None:
        os.close(self._file)


def _compute_lock_byte(topic: str) -> int:
    """Return the topic's byte in the lock file. A shared byte only makes a fence wait for both topics."""
    return xxhash.xxh64_intdigest(topic.encode()) >> 2
