"""A wall clock that a test moves under the processes of rowlock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOVED_CLOCK = """
import os, sys, time

def make_moved(read, unit):
    seen = [0.0, 0]  # when the file was read last, and what it had

    def read_moved():
        if sys._getframe(1).f_globals.get("__name__", "").startswith("grpc"):
            return read()  # its core compares the time with the machine's clock
        now = time.monotonic()
        if now > seen[0]:
            with open(os.environ["TEST_CLOCK"]) as file:
                seen[:] = now + 0.2, int(file.read() or "0")
        return read() + seen[1] * unit

    return read_moved

time.time, time.time_ns = make_moved(time.time, 1.0), make_moved(time.time_ns, 1_000_000_000)
"""
"""Moves the wall clock of a Python process by the seconds that a file has. The clocks of Java and librdkafka
are not moved. (libfaketime 0.9.10 breaks the sleep of Python 3.11.)"""


@dataclass(frozen=True)
class MovedClock:
    """The clock of all processes that are started with `environment`."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "sitecustomize.py").write_text(MOVED_CLOCK)
        self.move(0)

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": f"{self.folder}:{ROOT}", "TEST_CLOCK": str(self.folder / "clock")}

    def move(self, seconds: int) -> None:
        """Let the clock be this far ahead of the machine's, at the latest after 0.2 s."""
        (self.folder / "clock").write_text(str(seconds))
