"""Runs one capture or apply process under `rowlock run`: `python -m rowlock.processes.child producer.main --config F …`.

The parent holds the other end of this process's stdin. When the parent is gone, by whatever way, the pipe ends: this
process is then asked to stop as with SIGTERM, and a reaper outside its group ends what is left of the group once it has
stopped, or has not in time. So a killed `run` leaves nothing behind, without having to do anything.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading

import structlog

from rowlock.processes import log

GRACE_S = 10.0
"""How long a process may take to stop cleanly after its parent has gone."""


def main(arguments: list[str]) -> None:
    module, sys.argv = arguments[0], arguments
    log.configure()
    structlog.contextvars.bind_contextvars(process=module.partition(".")[0], pid=os.getpid())
    parent, pipe = _own_stdin()
    threading.Thread(target=_follow, args=(parent, pipe), name="follow-parent", daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


#: Waits for the leader of the group to end, at most so long; then ends the group. Arguments: group, seconds.
_REAPER = """
import os, signal, sys, time
group, last = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
try:
    while time.monotonic() < last:
        os.kill(group, 0)
        time.sleep(0.1)
except ProcessLookupError:
    pass
try:
    os.killpg(group, signal.SIGKILL)
except ProcessLookupError:
    pass
"""


def _own_stdin() -> tuple[int, int]:
    """Put a pipe of ours in the place of stdin, for the module to read. Returns (the parent's pipe, where to write)."""
    parent = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    return parent, writing


def _follow(parent: int, pipe: int) -> None:
    """Hand on what the parent says, until the last writer, the parent, is gone."""
    while said := os.read(parent, 1 << 16):
        while said:
            said = said[os.write(pipe, said) :]
    os.close(pipe)
    group = os.getpgid(0)
    if group == os.getpid():  # else somebody started this by hand in a group of theirs
        command = [sys.executable, "-S", "-c", _REAPER, str(group), str(GRACE_S)]
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
