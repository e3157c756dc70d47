"""Runs one capture or apply process under `rowlock run`: `python -m rowlock.child producer.main --config F …`.

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

from rowlock import log

GRACE_S = 10.0
"""How long a process may take to stop cleanly after its parent has gone."""


def main(arguments: list[str]) -> None:
    module, sys.argv = arguments[0], arguments
    log.configure()
    structlog.contextvars.bind_contextvars(process=module.partition(".")[0], pid=os.getpid())
    threading.Thread(target=_follow, name="follow-parent", daemon=True).start()
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


def _follow() -> None:
    while os.read(0, 4096):  # nothing is ever written: this returns when the last writer, the parent, is gone
        pass
    group = os.getpgid(0)
    if group == os.getpid():  # else somebody started this by hand in a group of theirs
        command = [sys.executable, "-S", "-c", _REAPER, str(group), str(GRACE_S)]
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
