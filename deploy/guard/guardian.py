"""The guardian: a small process that outlives its parent and then cleans up for it.

It reads lines from a pipe; only the parent holds the write end. When the parent ends, however it ends,
the pipe reports end of file; the guardian kills the processes that are still registered and removes the
temporary folders. It runs as a script with the standard library only (`python -I -S guardian.py`), so
that it starts in milliseconds and stays small.

Lines: `+p PID` and `-p PID` (a service process), `+d PATH` and `-d PATH` (a temporary folder).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
from pathlib import Path


def _read_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on: [1] is the parent, [19] the start time."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def read_start_time(pid: int) -> str | None:
    """Return the start time, which distinguishes a process from a later one with the same number."""
    try:
        return _read_stat(pid)[19]
    except OSError:
        return None


def _list_children() -> dict[int, list[int]]:
    tree: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            with contextlib.suppress(OSError):
                tree.setdefault(int(_read_stat(pid)[1]), []).append(pid)
    return tree


def kill_tree(pid: int) -> None:
    """Kill a process with all descendants (PostgreSQL's have their own process groups) and wait until
    they ended.
    """
    tree, doomed = _list_children(), [pid]
    for each in doomed:
        doomed.extend(tree.get(each, []))
    handles = [handle for each in doomed if (handle := _open_pidfd(each)) is not None]
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    for handle in handles:
        poller = select.poll()
        poller.register(handle, select.POLLIN)  # readable when the process has ended
        poller.poll(10_000)
        os.close(handle)


def _open_pidfd(pid: int) -> int | None:
    """Return a pidfd, which refers to this process even if its number is reused."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _track_parent() -> tuple[dict[int, str], set[str]]:
    """Read registrations until the parent has ended; return processes (number → start time) and folders."""
    processes: dict[int, str] = {}
    folders: set[str] = set()
    for raw in sys.stdin.buffer:
        line = os.fsdecode(raw.rstrip(b"\n"))
        verb, _, what = line.partition(" ")
        if verb in ("+p", "-p") and what.isdecimal():
            processes.pop(int(what), None)
            if verb == "+p" and (since := read_start_time(int(what))):
                processes[int(what)] = since
        elif verb == "+d" and what:
            folders.add(what)
        elif verb == "-d" and what:
            folders.discard(what)
        else:  # what is registered must be cleaned up all the same
            _print_ignored(line)
    return processes, folders


def _print_ignored(line: str) -> None:
    """Write a line that is no registration to stderr, if that takes anything."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"guardian: ignored a line that is no registration: {line!r}\n")


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    processes, folders = _track_parent()
    for pid, since in processes.items():
        if read_start_time(pid) == since:
            kill_tree(pid)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
