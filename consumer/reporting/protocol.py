"""The lines between the agent and the apply process (schemas/units.py), and the names of apply units."""

from __future__ import annotations

import threading
from typing import TextIO

import msgspec

from schemas.units import UnitCommand, UnitLine, WorkerEvent

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(UnitCommand).decode


def decode_command(line: bytes) -> UnitCommand:
    """Return the command in `line`. Raises msgspec.DecodeError."""
    return _DECODE(line)


def encode_unit_event(unit: str, event: WorkerEvent) -> str:
    return _ENCODE(UnitLine(unit, event)).decode()


class LineWriter:
    """A text stream to which several threads write whole lines.

    A reader that has closed it is no error: the process ends when its stdin does.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._mutex = threading.Lock()
        self._reader_closed = False

    def write(self, text: str, /) -> None:
        with self._mutex:
            if self._reader_closed:
                return
            try:
                self._out.write(text)
                self._out.flush()
            except (BrokenPipeError, ValueError):
                self._reader_closed = True

    def report_event(self, unit: str, event: WorkerEvent) -> None:
        self.write(encode_unit_event(unit, event) + "\n")
