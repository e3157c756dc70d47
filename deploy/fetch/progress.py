"""The display of a download: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

LINE_EVERY_S = 10.0
"""Seconds between two lines about a download that goes on."""


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
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total)
        while not _wait_for_end(process, 0.2):
            progress.update(task, completed=min(done(), total))
        progress.update(task, completed=total)


def _print_lines(
    console: Console, what: str, process: subprocess.Popen[bytes], total: int, done: Callable[[], int]
) -> None:
    begun = time.monotonic()
    console.print(f"{what} ({total / 1e6:.0f} MB)", highlight=False)
    while not _wait_for_end(process, LINE_EVERY_S):
        arrived = min(done(), total)
        console.print(f"{what}: {arrived / 1e6:.0f} of {total / 1e6:.0f} MB", highlight=False)
    console.print(f"{what}: ended after {time.monotonic() - begun:.0f} s", highlight=False)


def _wait_for_end(process: subprocess.Popen[bytes], within: float) -> bool:
    try:
        process.wait(timeout=within)
    except subprocess.TimeoutExpired:
        return False
    return True
