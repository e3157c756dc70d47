"""Keeps the events of one large transaction in a file without a name, with mode 0600, which ends with
the process.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from producer.binlog_format.log_event import BinlogEvent

_HEAD = struct.Struct("<BIIIQQI")
_BUFFER = 1 << 20


class SpillFile:
    """The events of one log file, in order. `append` and iterating raise OSError (no room left)."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER)  # noqa: SIM115 - it lives as long as this does
        self._log = ""

    def append(self, event: BinlogEvent) -> None:
        self._log = event.file
        self._file.write(
            _HEAD.pack(
                event.type,
                event.timestamp,
                event.server_id,
                event.flags,
                event.start,
                event.end,
                len(event.body),
            )
        )
        self._file.write(event.body)

    def __iter__(self) -> Iterator[BinlogEvent]:
        """Yield the events, once; the disk space is freed afterwards."""
        self._file.seek(0)
        while head := self._file.read(_HEAD.size):
            kind, timestamp, server_id, flags, start, end, size = _HEAD.unpack(head)
            body = self._file.read(size)
            yield BinlogEvent(kind, timestamp, server_id, flags, self._log, start, end, body)
        self.close()

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()


def make_spill_factory(folder: Path) -> Callable[[], SpillFile]:
    """Return a function that creates a SpillFile in `folder`, and the folder if it is missing."""

    def make() -> SpillFile:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return SpillFile(folder)

    return make
