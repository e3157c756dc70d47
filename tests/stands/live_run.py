"""`rowlock run` without servers: `python -m tests.stands.live_run MODE WORD …` runs `rowlock WORD …`.

Its two processes only log. The live view reads a system of three tables. MODE `silent`: the system answers
once and then no more; `failing`: the view fails after a while; `well`: neither.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

from rowlock import cli
from rowlock.errors import CommandError
from rowlock.inspect.observed.first_copy_reader import FirstCopyList
from rowlock.inspect.observed.source_status import SourceStatus
from rowlock.inspect.placement import Placement
from rowlock.inspect.status import ApplyUnitStatus, Status
from rowlock.live import reader, screen
from rowlock.processes import run
from schemas.clock import read_clock_ms

CHILD = """
import json, signal, sys, time
sys.stderr.write("a line of Java\\n")
sys.stderr.write("WARNING: Using incubator modules: jdk.incubator.vector\\n")
sys.stderr.write("WARNING: Using incubator modules: another\\n")
def log(event, **fields):
    sys.stderr.write(json.dumps({"event": event, **fields}) + "\\n")
log("unit stopped", level="warning", cause="x" * 150)
for number in range(1000):
    time.sleep(0.2)
    log(f"step {number}", level="info")
"""


class FakeSystem:
    """A system that answers at once."""

    def __init__(self, mode: str, _: object) -> None:
        self._mode, self._answers = mode, 0

    def read_captures(self) -> tuple[Placement, tuple[SourceStatus, ...]]:
        self._answers += 1
        if self._mode == "silent" and self._answers > 1:
            raise CommandError("coordinator c1 does not answer")
        now = read_clock_ms()
        units: list[dict[str, Any]] = [
            {"unit": "capture/b1", "kind": "capture", "rows_per_s": 500},
            {"unit": "apply/to-hq/t1", "kind": "apply", "pipeline": "to-hq", "rows_per_s": 480},
            {"unit": "apply/to-hq/t2", "kind": "apply", "pipeline": "to-hq", "rows_per_s": 4},
        ]
        usual = {"health": "running", "reason": None, "checkpoint_ts": now - 800}
        source = SourceStatus("b1", "running", lag_seconds=0.3)
        return Placement({each["unit"]: usual | each for each in units}, rest="127.0.0.1:7780"), (source,)

    def list_first_copies(self) -> FirstCopyList:
        return FirstCopyList()

    def read_status(self) -> Status:
        return Status(
            1, 0, units=(ApplyUnitStatus("to-hq", "b1", "t1", "hq", "current", quarantined_rows=3),)
        )

    def close(self) -> None:
        pass


def fail_to_draw(*_: object) -> None:
    raise ValueError("no room")


def main(mode: str, *words: str) -> None:
    screen.LiveReader = partial(reader.LiveReader, open_reader=partial(FakeSystem, mode))  # type: ignore[misc, assignment]
    if mode == "failing":
        threading.Timer(2.0, lambda: setattr(screen, "build_screen", fail_to_draw)).start()
    command = [sys.executable, "-c", CHILD]
    run.build_run_commands = lambda *_, **__: {"coordinator": command, "agent": command}
    cli._check_before_start = lambda *_, **__: []
    cli.main([*words])


if __name__ == "__main__":
    main(*sys.argv[1:])
