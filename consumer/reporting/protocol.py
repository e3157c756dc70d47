"""The JSON lines between an agent and the apply process: what is asked on stdin, what is answered on stdout.

In: `{"do":"open|start|stop","unit":"apply/<pipeline>/<topic>","epoch":E,"mark":M|null}`.
Out: `{"kind":"unit","unit":U,"epoch":E,"event":"ready|progressed|ended","mark":M|null,"rows_per_s":n,"error":null|"…"}`,
where M is `{"checkpoint_ts":ms,"resolved_ts":ms,"position":[…]|null}`; 0 is an unknown time. `error` of "progressed": why the unit waits
for a person; it is here all the same, and goes on by itself once that is done.
"""

from __future__ import annotations

import threading
from typing import Literal

import msgspec

from consumer.reporting.status_lines import Out
from schemas.wire.position import Position


class UnitMark(msgspec.Struct, frozen=True):
    """How far a unit is: applied up to, captured up to (source commit time in ms), and the source position."""

    checkpoint_ts: int
    resolved_ts: int
    position: Position | None = None


class Asked(msgspec.Struct, frozen=True):
    do: Literal["open", "start", "stop"]
    unit: str
    epoch: int
    mark: UnitMark | None = None


class Said(msgspec.Struct, frozen=True):
    unit: str
    epoch: int
    event: Literal["ready", "progressed", "ended"]
    mark: UnitMark | None = None
    rows_per_s: int = 0
    error: str | None = None
    kind: str = "unit"


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Asked).decode


def decode_asked(line: bytes) -> Asked:
    """Raises msgspec.DecodeError."""
    return _DECODE(line)


def encode_said(said: Said) -> str:
    return _ENCODE(said).decode()


def unit_name(pipeline: str, topic: str) -> str:
    return f"apply/{pipeline}/{topic}"


def split_name(unit: str) -> tuple[str, str] | None:
    """Return (pipeline, topic) of an apply unit's name; None: it is none."""
    kind, _, rest = unit.partition("/")
    pipeline, _, topic = rest.partition("/")
    return (pipeline, topic) if kind == "apply" and pipeline and topic else None


class Lines:
    """A text stream that several threads write whole lines to. A reader that is gone is no error."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._mutex = threading.Lock()
        self._gone = False

    def write(self, text: str, /) -> None:
        with self._mutex:
            if self._gone:
                return
            try:
                self._out.write(text)
                self._out.flush()
            except (BrokenPipeError, ValueError):
                self._gone = True

    def flush(self) -> None:
        """Every line is flushed when it is written."""

    def say(self, said: Said) -> None:
        self.write(encode_said(said) + "\n")
