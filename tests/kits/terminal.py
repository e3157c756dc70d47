"""A command on a pseudo-terminal, and what its user sees: the lines of the log, and the screen below them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kits.waiting import until

ROOT = Path(__file__).resolve().parents[2]
_PIECES = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")
_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class SeenText:
    """The lines that a terminal shows, without a limit of width; only the sequences that rich writes."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self.has_cursor = True
        self.styles: set[str] = set()

    def take(self, text: str) -> None:
        for arguments, command, control, plain in _PIECES.findall(text):
            if plain:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + plain + line[self.column + len(plain) :]
                self.column += len(plain)
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self._move_down()
            else:
                self._obey(arguments, command)

    def _move_down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def _obey(self, arguments: str, command: str) -> None:
        if command == "A":
            self.row = max(0, self.row - int(arguments or 1))
        elif command == "K":
            self.lines[self.row] = ""
        elif arguments == "?25":
            self.has_cursor = command == "h"
        elif command == "m":
            self.styles |= set(arguments.split(";"))
        else:
            raise AssertionError(f"unknown sequence {arguments}{command}")


class Terminal:
    """A process whose controlling terminal is a pseudo-terminal; it is killed at the end of the block."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, width: int = 100, height: int = 30
    ) -> None:
        self.seen = SeenText()
        self._master, slave = pty.openpty()
        self.resize(width, height)
        unwanted = {"COLUMNS", "LINES", "NO_COLOR", "ROWLOCK_LOG", "FORCE_COLOR"}
        usual = {name: value for name, value in os.environ.items() if name not in unwanted}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *command], stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, cwd=ROOT, env={**usual, "TERM": "xterm", **env},
        )  # fmt: skip
        os.close(slave)
        self._ending = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        self._ending.set()
        self._reader.join(10)
        os.close(self._master)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def until(self, condition: Callable[[str], object], what: str, seconds: float = 20) -> None:
        """Await a condition of all text that is shown."""
        try:
            until(lambda: condition(self.text), what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; instead of:\n{self.text}") from error

    @property
    def text(self) -> str:
        return "\n".join(self.seen.lines)

    def end(self, seconds: float = 60) -> int:
        """Await the end of the process, and of what it writes, and return the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    def _read(self) -> None:
        while not self._ending.is_set():
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # the last process has closed the terminal
                return
            self.seen.take(data.decode(errors="replace"))
