"""The readings of the live view, taken in threads of their own, so that a server that does not answer delays
neither the run nor the screen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from rowlock.errors import CommandError
from rowlock.inspect.observed.first_copy_reader import FirstCopyList
from rowlock.inspect.observed.source_status import SourceStatus
from rowlock.inspect.placement import START_AGAIN, Placement
from rowlock.inspect.status import Status, StatusReader
from rowlock.live.figures import LiveReading, LiveSnapshot, QuarantinedRows
from schemas.clock import read_clock_ms
from schemas.config.model import Config

REFRESH_S = 1.0
"""Seconds between two readings of the coordinator and of the sources' watermarks."""
STATUS_EVERY_S = 15.0
"""Least seconds between two whole readings, which ask the targets, too."""
CPU_SHARE, STATUS_TIME_SHARE = 0.05, 0.05
"""The part of one processor that the readings may take, and the part of the time that whole readings may."""
COORDINATOR_START_S = 15.0
"""Seconds after its start for which a run without a leading coordinator counts as one that starts."""
READING_END_S = 2.0
"""Seconds to wait at the end for a reading; one that hangs ends with the process."""


class SystemReader(Protocol):
    """The methods of StatusReader that the live view needs."""

    def read_captures(self) -> tuple[Placement, tuple[SourceStatus, ...]]: ...

    def list_first_copies(self) -> FirstCopyList: ...

    def read_status(self) -> Status: ...

    def close(self) -> None: ...


class LiveReader:
    """Reads what the live view shows, until it is closed. `get_snapshot` never waits."""

    def __init__(self, config: Config, open_reader: Callable[[Config], SystemReader] = StatusReader) -> None:
        self._config, self._open_reader = config, open_reader
        self._lock, self._done = threading.Lock(), threading.Event()
        self._snapshot = LiveSnapshot()
        self._created = time.monotonic()
        self._threads = [
            threading.Thread(target=self._repeat_reading, args=each, name="live view", daemon=True)
            for each in ((self._read_captures, pause_after_reading), (self._read_held, pause_after_status))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the readings."""
        self._done.set()
        for thread in self._threads:
            thread.join(READING_END_S)

    def use_config(self, config: Config) -> None:
        """Read the system of this configuration from the next reading on."""
        self._config = config

    def get_snapshot(self) -> LiveSnapshot:
        with self._lock:
            return self._snapshot

    def _repeat_reading(
        self, read: Callable[[SystemReader], None], compute_pause_s: Callable[[float, float], float]
    ) -> None:
        """Call `read` again and again, over one reader for each configuration."""
        while not self._done.is_set():
            config = self._config
            try:
                reader = self._open_reader(config)
            except Exception as error:  # noqa: BLE001 - the view shows it, and the run goes on
                self._record_failure(error)
                self._done.wait(REFRESH_S)
                continue
            try:
                while config is self._config and not self._done.is_set():
                    began_s, began_cpu_s = time.monotonic(), time.thread_time()
                    self._try_reading(read, reader)
                    took_s, cpu_s = time.monotonic() - began_s, time.thread_time() - began_cpu_s
                    self._done.wait(compute_pause_s(took_s, cpu_s))
            finally:
                reader.close()

    def _try_reading(self, read: Callable[[SystemReader], None], reader: SystemReader) -> None:
        try:
            read(reader)
        except Exception as error:  # noqa: BLE001 - the view shows it, and the run goes on
            self._record_failure(error)

    def _read_captures(self, reader: SystemReader) -> None:
        placement, sources = reader.read_captures()
        if placement.problem:
            if placement.known and self._is_starting():
                return
            raise CommandError(placement.problem.removesuffix(f": {START_AGAIN}"))
        reading = LiveReading(read_clock_ms(), placement, sources, reader.list_first_copies())
        with self._lock:
            self._snapshot = replace(
                self._snapshot, latest=reading, earlier=self._snapshot.latest, failure=""
            )

    def _is_starting(self) -> bool:
        """Return whether nothing has run yet and the run's own coordinator may need that time to lead."""
        return self._snapshot.latest is None and time.monotonic() - self._created < COORDINATOR_START_S

    def _read_held(self, reader: SystemReader) -> None:
        if self.get_snapshot().latest is None:
            return  # nothing runs yet, so no target has to be read
        held = QuarantinedRows.from_status(reader.read_status())
        with self._lock:
            self._snapshot = replace(self._snapshot, held=held)

    def _record_failure(self, error: Exception) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, failure=str(error).partition("\n")[0])


def pause_after_reading(took_s: float, cpu_s: float) -> float:
    """Return the seconds to the next reading, so that readings are a second apart and cost little."""
    return max(REFRESH_S - took_s, cpu_s / CPU_SHARE, REFRESH_S / 5)


def pause_after_status(took_s: float, cpu_s: float) -> float:
    """Return the seconds to the next whole reading. One that had nothing to read is repeated soon."""
    if took_s < REFRESH_S / 100:
        return REFRESH_S
    return max(STATUS_EVERY_S, took_s / STATUS_TIME_SHARE, cpu_s / CPU_SHARE)
