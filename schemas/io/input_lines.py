"""The lines that a process reads from the one that started it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from schemas.config.changes.handed import is_handed
from schemas.config.errors import ConfigErrors

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, ConfigErrors)
"""The errors of a line that cannot be read."""
SHOWN_BYTES = 80
"""Of a line that cannot be read, its beginning is shown up to this length."""


def read_lines(descriptor: int) -> Iterator[bytes]:
    """Yield complete lines as they arrive, but for empty ones. An incomplete last line is dropped."""
    rest = b""
    while chunk := os.read(descriptor, 1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())


def describe_line(line: bytes) -> str:
    """Return the beginning of a line for a message; of a configuration, which holds secrets, its length."""
    if is_handed(line):
        return f"a configuration of {len(line)} bytes"
    shown = line[:SHOWN_BYTES].decode(errors="replace")
    return shown if len(line) <= SHOWN_BYTES else f"{shown}… ({len(line)} bytes)"
