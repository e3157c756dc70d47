"""Runs a process of rowlock under another one: `python -m rowlock.processes.child producer.main --config
F …`.

The parent holds the other end of this process's stdin. When the parent ends in any way, the pipe ends.
This process is then asked to stop as with SIGTERM, and a reaper outside its group ends the rest of the
group once it has stopped, or if it has not stopped in time. So a killed `run` leaves no process, without
any action of its own.

A child has its parent's version, which the parent reports for both. If rowlock's files are replaced
while the parent runs, a new child would have another version; it then refuses to run.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading

import structlog

from rowlock import __version__
from rowlock.processes import log

PARENT_VERSION = "ROWLOCK_PARENT_VERSION"
"""The environment variable in which a parent passes on its version."""
CHILD_REFUSED_CODE = 2
"""The exit code of a process that needs a person."""
CHILD_GRACE_S = 10.0
"""Seconds that a process may take to stop cleanly after its parent has ended."""


def main(arguments: list[str]) -> None:
    module, sys.argv = arguments[0], arguments
    log.configure_logging()
    structlog.contextvars.bind_contextvars(process=module.partition(".")[0], pid=os.getpid())
    if refusal := explain_other_version(os.environ.get(PARENT_VERSION), __version__):
        structlog.get_logger().error(refusal)
        print(json.dumps({"kind": "failed", "error": refusal}), flush=True)
        sys.exit(CHILD_REFUSED_CODE)
    parent, pipe = _own_stdin()
    threading.Thread(target=_follow_parent, args=(parent, pipe), name="follow-parent", daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def explain_other_version(parent: str | None, mine: str) -> str | None:
    """Return why a process does not run under a parent of this version; None: it does. `parent` None: it
    reports none.
    """
    if parent in (None, mine):
        return None
    return (
        f"the process that starts this one is rowlock {parent}, and the installed files are rowlock {mine}: "
        "they were replaced while it ran: restart it"
    )


#: Waits until the leader of the group has ended, for a limited time, then ends the group. Arguments:
#: group, seconds.
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
    """Replace stdin by a new pipe for the module to read. Returns (the parent's pipe, the write end)."""
    parent = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    return parent, writing


def _follow_parent(parent: int, pipe: int) -> None:
    """Pass on the parent's input until its last writer, the parent, has ended."""
    while data := os.read(parent, 1 << 16):
        while data:
            data = data[os.write(pipe, data) :]
    os.close(pipe)
    group = os.getpgid(0)
    if group == os.getpid():  # otherwise a person has started this by hand in a group of their own
        command = [sys.executable, "-S", "-c", _REAPER, str(group), str(CHILD_GRACE_S)]
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
