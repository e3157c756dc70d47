"""`python -m tests.kits.dying_capture WHEN …`: capture that dies by SIGKILL at its first stop of a table.

WHEN is `cause` (known in memory only), or `event` (the topic has it, the position record does not). What
follows are the arguments of producer.main.
"""

from __future__ import annotations

import os
import signal
import sys

from producer import main
from producer.loop.position import CapturePosition
from producer.tables import CapturedTables


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def prepare(when: str) -> None:
    """Have this process die there."""
    if when == "cause":
        CapturedTables.stop_table = _die  # type: ignore[method-assign]
        return
    store = CapturePosition.store_position

    def store_or_die(position: CapturePosition) -> None:
        if position._started.captured.stopped:
            _die()
        store(position)

    CapturePosition.store_position = store_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    prepare(sys.argv.pop(1))
    sys.exit(main.main())
