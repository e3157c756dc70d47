"""The units that a running query applies now, and their epochs, as the driver tells them to its workers.

One small file, replaced whole; workers look at it before each topic and after each slice (a stat, and a read when it
has changed). It is a courtesy, not a fence: a worker that has not looked yet is stopped by the epoch in the target.

`AttemptLocks` tells whether an attempt still runs anywhere on this machine when the target cannot be asked: each holds
a lock on its topic's byte of one file, which the kernel takes back when the process ends, whatever it ended of. A process does not see
its own locks: it counts its attempts.
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
"""`struct flock` of Linux on 64 bits: type, whence, start, length, pid."""


def write_active_units(path: Path, epochs: Mapping[str, int]) -> None:
    """Say that exactly these units (topic → epoch) are applied by the query whose board `path` is."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(msgspec.json.encode(epochs))
    # The kernel stamps files in ticks of milliseconds, and numbers of files are used again: two boards must differ.
    now = time.time_ns()
    os.utime(fresh, ns=(now, now))
    fresh.replace(path)


class ActiveUnitsReader:
    """A worker's view of a board. No board means no units."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._epochs: dict[str, int] = {}

    def get_epoch(self, topic: str) -> int | None:
        """Return the epoch under which `topic` is to be applied now; None: it is not."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - in the hot path
            seen = (found.st_ino, found.st_mtime_ns)
            if seen != self._seen:
                self._epochs = _EPOCHS.decode(Path(self._path).read_bytes())
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._epochs = None, {}
        return self._epochs.get(topic)


class AttemptLocks:
    """The lock file of a pipeline's attempts: one instance a process."""

    def __init__(self, path: str) -> None:
        """Raises TargetConfigError: the agent's folder is not here, so this is not the agent's machine."""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:
            raise TargetConfigError(
                f"a Spark executor on {socket.gethostname()} does not find {Path(path).parent} of the rowlock agent that it works "
                "for: executors must run on the agent's own machine; to use several machines, run an agent on each "
                "(docs/how-to/run-a-cluster.md)"
            ) from error
        self._here: Counter[str] = Counter()
        self._mutex = threading.Lock()

    @contextmanager
    def lock_attempt(self, topic: str) -> Iterator[None]:
        """Hold the lock during an attempt. Never waits: attempts may overlap, the target tells them apart."""
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
        """Return the number of a process in which an attempt of `topic` runs, this one's last; None: there is none."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _compute_lock_byte(topic), 1, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            return int(pid)
        return os.getpid() if self._here[topic] else None

    def close(self) -> None:
        os.close(self._file)


def _compute_lock_byte(topic: str) -> int:
    """Two topics of one byte would only be waited for together."""
    return xxhash.xxh64_intdigest(topic.encode()) >> 2
