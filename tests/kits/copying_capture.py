"""`python -m tests.kits.copying_capture WHEN …`: capture in chunks of three rows, that dies by SIGKILL in the
middle of a copy.

WHEN is `never`, `event` (the topic has the begin, memory and record have the stop), `memory` (the record
alone has it), `record` (the copy runs, nothing of it was read); in a chunk that is not the first: `low` (the
SELECT is still to come), `select` (HIGH is not read), `high` (it is read, and not emitted), `rows` (its rows
are in the topic, its marker is not); `chunk` (a marker is in the topic), or `last` (the last one is, and no
record shows it). `labels`: it does not die, and defines ENUM and SET with an empty label as versions before
0.1.0 did, by labels. What follows are the arguments of producer.main.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from types import SimpleNamespace
from typing import Any

from producer import capture, main
from producer.copies.book import CopyBook
from producer.loop.copy_begins import CopyStarter
from producer.snapshot.chunk_sender import ChunkSender
from producer.snapshot.chunks import SnapshotMachine
from producer.snapshot.reader import ChunkReader
from producer.snapshot.scheduler import SnapshotScheduler
from schemas.io import mysql_columns

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
    when_stored = ChunkSender._make_stored_callback

    def dying(self: ChunkSender, job: Any, *, last: bool) -> Any:
        return _die if job.table.begun is not None else when_stored(self, job, last=last)

    ChunkSender._make_stored_callback = dying  # type: ignore[method-assign]


class _DyingVisibility:
    """What a reader asks of the source, up to LOW (`low`), or up to the SELECT."""

    def __init__(self, inner: Any, when: str) -> None:
        self._inner, self._when = inner, when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def begin_snapshot(self, cursor: Any) -> Any:
        low = self._inner.begin_snapshot(cursor)
        return _die() if self._when == "low" else low

    log_end = _die


def _die_at_a_read(when: str) -> None:
    select = ChunkReader._select_chunk

    def dying(self: ChunkReader, connection: Any, request: Any) -> Any:
        if request.after is not None:
            self._visibility = _DyingVisibility(self._visibility, when)  # type: ignore[assignment]
        return select(self, connection, request)

    ChunkReader._select_chunk = dying  # type: ignore[method-assign]


def _die_before_emitting() -> None:
    answered = SnapshotMachine._handle_chunk_read

    def dying(self: SnapshotMachine, state: Any, read: Any, now: float) -> Any:
        step = answered(self, state, read, now)
        return _die() if step[0].chunk is not None and state.after is not None else step

    SnapshotMachine._handle_chunk_read = dying  # type: ignore[method-assign]


def _die_before_a_marker() -> None:
    send = ChunkSender.send_chunk

    def dying(self: ChunkSender, job: Any, chunk: Any, file: str) -> None:
        if chunk.after is not None:
            writer: Any = self._writer

            def drain_and_die(*_: object) -> None:
                writer.drain()
                _die()

            self._writer = SimpleNamespace(send_all=writer.send_all, send=drain_and_die)  # type: ignore[assignment]
        send(self, job, chunk, file)

    ChunkSender.send_chunk = dying  # type: ignore[method-assign]


def prepare(when: str) -> None:
    """Read in small chunks, and have this process die there."""
    capture.Ports = functools.partial(capture.Ports, chunk_rows=CHUNK)  # type: ignore[misc, assignment]
    match when:
        case "event":
            _die_behind(CopyStarter, "_send_begin")
        case "memory":
            SnapshotScheduler.add_copy = _die  # type: ignore[method-assign]
        case "record":
            _die_behind(CopyStarter, "begin_copy")
        case "low" | "select":
            _die_at_a_read(when)
        case "high":
            _die_before_emitting()
        case "rows":
            _die_before_a_marker()
        case "chunk":
            _die_at_a_marker()
        case "labels":
            mysql_columns.convert_labels_to_numbers = lambda type_: type_
        case "last":
            CopyBook.mark_copy_ended = _die  # type: ignore[method-assign]


if __name__ == "__main__":
    prepare(sys.argv.pop(1))
    sys.exit(main.main())
