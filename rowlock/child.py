"""Runs one capture or apply process under `rowlock run`: `python -m rowlock.child producer.main --config F …`.

The parent holds the other end of this process's stdin. When the parent is gone, by whatever way, the pipe ends: this
process is then asked to stop as with SIGTERM, and ended with its whole group when it does not. So a killed `run` leaves
nothing behind, without the parent having to do anything.
"""

from __future__ import annotations

import os
import runpy
import signal
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


def _follow() -> None:
    while os.read(0, 4096):  # nothing is ever written: this returns when the last writer, the parent, is gone
        pass
    structlog.get_logger().warning("parent is gone, stopping")
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_S)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
