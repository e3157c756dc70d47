"""The display of a download: a bar on a terminal, a plain line now and then elsewhere. Both show what has
arrived, how fast, and how long the rest takes.
"""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

BAR_EVERY_S = 0.2
LINE_EVERY_S = 10.0
"""Seconds between two lines about a download that goes on."""
PACE_S = 20.0
"""The rate is that of the last so many seconds."""
FORECAST_SHARE = 0.05
"""The remaining time is shown once this share has arrived: a download begins with many small files, and is
slower then.
"""
WAIT_LINE_EVERY_S = 60.0
"""Seconds between two lines about a download of another process."""


class DownloadPace:
    """The speed of a download of `total` bytes that began at `now`. Pure; times are monotonic seconds."""

    def __init__(self, total: int, now: float) -> None:
        self._total = total
        self._seen: deque[tuple[float, int]] = deque([(now, 0)])
        """(time, arrived bytes), the last `PACE_S` seconds."""
        self._grew_at = now

    def record_arrived(self, arrived: int, now: float) -> None:
        """Record how many bytes have arrived."""
        if arrived > self._seen[-1][1]:
            self._grew_at = now
        self._seen.append((now, arrived))
        while now - self._seen[1][0] >= PACE_S:
            self._seen.popleft()

    def describe(self) -> str:
        """Return for example "12 of 44 MB, 0.4 MB/s, about 80 s left"."""
        now, arrived = self._seen[-1]
        text = f"{arrived / 1e6:.0f} of {self._total / 1e6:.0f} MB"
        rate = self._measure_rate()
        if now - self._grew_at >= LINE_EVERY_S or not rate:
            return f"{text}, nothing has arrived for {now - self._grew_at:.0f} s"
        return ", ".join(filter(None, (text, _format_rate(rate), self.describe_remaining())))

    def describe_remaining(self) -> str:
        """Return for example "about 80 s left"; "": nothing can be known yet."""
        arrived, rate = self._seen[-1][1], self._measure_rate()
        if not rate or arrived < FORECAST_SHARE * self._total:
            return ""
        left_s = max(0, self._total - arrived) / rate
        left = f"{left_s:.0f} s" if left_s < 90 else f"{left_s / 60:.0f} min"
        return f"about {left} left"

    def _measure_rate(self) -> float:
        (began, first), (now, arrived) = self._seen[0], self._seen[-1]
        return max(0, arrived - first) / max(now - began, 0.001)


def _format_rate(rate: float) -> str:
    return f"{rate / 1e6:.1f} MB/s" if rate >= 1e5 else f"{rate / 1e3:.1f} kB/s"


def print_wait(what: str, waited_s: float) -> None:
    """Print that another process does `what`, for which this one waits."""
    Console(stderr=True).print(
        f"waiting for another process, which is {what} ({waited_s:.0f} s)", highlight=False, soft_wrap=True
    )


def print_step(text: str) -> None:
    """Print that a step has begun or has ended: one line, on a terminal as elsewhere."""
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def measure_folder_size(folder: Path) -> int:
    """Return the bytes in the files below a folder that another process is filling."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # a partial download that has just been renamed
            continue
    return total


def watch_process(what: str, process: subprocess.Popen[bytes], total: int, done: Callable[[], int]) -> None:
    """Wait for the process to end and show its progress. `what`: for example "downloading kafka"."""
    console = Console(stderr=True)
    if console.is_terminal:
        _show_bar(console, what, process, total, done)
    else:
        _print_lines(console, what, process, total, done)


def _show_bar(
    console: Console, what: str, process: subprocess.Popen[bytes], total: int, done: Callable[[], int]
) -> None:
    # Only a download needs it: `status` imports this module as well.
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn(),
        bars.TransferSpeedColumn(), bars.TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    pace = DownloadPace(total, time.monotonic())
    with bars.Progress(*columns, console=console, speed_estimate_period=PACE_S) as progress:
        task = progress.add_task(what, total=total, left="")
        while not _wait_for_end(process, BAR_EVERY_S):
            arrived = min(done(), total)
            pace.record_arrived(arrived, time.monotonic())
            progress.update(task, completed=arrived, left=pace.describe_remaining())
        progress.update(task, completed=total, left="")


def _print_lines(
    console: Console, what: str, process: subprocess.Popen[bytes], total: int, done: Callable[[], int]
) -> None:
    begun = time.monotonic()
    pace = DownloadPace(total, begun)
    console.print(f"{what} ({total / 1e6:.0f} MB)", highlight=False, soft_wrap=True)
    while not _wait_for_end(process, LINE_EVERY_S):
        pace.record_arrived(min(done(), total), time.monotonic())
        console.print(f"{what}: {pace.describe()}", highlight=False, soft_wrap=True)
    console.print(f"{what}: ended after {time.monotonic() - begun:.0f} s", highlight=False, soft_wrap=True)


def _wait_for_end(process: subprocess.Popen[bytes], within: float) -> bool:
    try:
        process.wait(timeout=within)
    except subprocess.TimeoutExpired:
        return False
    return True
