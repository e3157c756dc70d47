"""`python -m tests.copying_capture WHEN …`: capture in chunks of three rows, that dies by SIGKILL in the middle of a copy.

WHEN is `never`, `event` (the topic has the begin, memory and record have the stop), `memory` (the record alone has it), `record` (the
copy runs, nothing of it was read), `chunk` (its first marker is in the topic), or `last` (its last one is, and no record says so). What
follows are the arguments of producer.main.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from typing import Any

from producer import capture, main
from producer.copies.book import CopyBook
from producer.loop.copy_begins import CopyBegins
from producer.snapshot.chunk_sender import ChunkSender
from producer.snapshot.scheduler import Snapshots

CHUNK = 3


def _die(*_: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_behind(place: type, name: str) -> None:
    done = getattr(place, name)

    def done_and_die(*arguments: Any) -> None:
        done(*arguments)
        _die()

    setattr(place, name, done_and_die)


def _die_at_a_marker() -> None:
    when_stored = ChunkSender._when_stored

    def dying(self: ChunkSender, job: Any, *, last: bool) -> Any:
        return _die if job.table.begun is not None else when_stored(self, job, last=last)

    ChunkSender._when_stored = dying  # type: ignore[method-assign]


def prepare(when: str) -> None:
    """Read in small chunks, and have this process die there."""
    capture.Ports = functools.partial(capture.Ports, chunk_rows=CHUNK)  # type: ignore[misc, assignment]
    match when:
        case "event":
            _die_behind(CopyBegins, "_send")
        case "memory":
            Snapshots.copy = _die  # type: ignore[method-assign]
        case "record":
            _die_behind(CopyBegins, "begin")
        case "chunk":
            _die_at_a_marker()
        case "last":
            CopyBook.ended = _die  # type: ignore[method-assign]


if __name__ == "__main__":
    prepare(sys.argv.pop(1))
    sys.exit(main.main())
