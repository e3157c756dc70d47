"""The live view on the terminal of stderr: lines of the log go on above it.

The view is an aid: whatever goes wrong with it ends the view, never the run.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator
from typing import TextIO, cast

import structlog
from rich.console import Console
from rich.live import Live
from rich.text import Text

from rowlock.live.figures import compute_figures
from rowlock.live.layout import build_screen
from rowlock.live.reader import REFRESH_S, LiveReader
from schemas.clock import read_clock_ms
from schemas.config.model import Config

_LOG = structlog.get_logger()
SCREEN_END_S = 2.0
"""Seconds to wait at the end for a screen that is being drawn."""


class LiveScreen:
    """The screen, drawn anew each second by a thread of its own until it is closed."""

    def __init__(self, reader: LiveReader, terminal: TextIO) -> None:
        self._reader = reader
        no_color = bool(os.environ.get("NO_COLOR"))
        self._console = Console(file=terminal, no_color=no_color, highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._lock, self._done = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._repeat_drawing, name="live screen", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Remove the view from the terminal."""
        self._done.set()
        self._thread.join(SCREEN_END_S)
        self._stop_drawing()

    def print_lines(self, text: str) -> None:
        """Print whole lines above the view, as they are."""
        with self._lock:
            self._console.print(Text.from_ansi(text), soft_wrap=True)

    def _repeat_drawing(self) -> None:
        try:
            with self._lock:
                self._live.start()
            while not self._done.is_set():
                self._draw_figures()
                self._done.wait(REFRESH_S)
        except Exception as error:  # noqa: BLE001 - without the view, the run goes on
            self._stop_drawing()
            _LOG.warning("live view ended", error=f"{type(error).__name__}: {error}")

    def _draw_figures(self) -> None:
        figures = compute_figures(self._reader.get_snapshot(), read_clock_ms())
        size = self._console.size
        with self._lock:
            self._live.update(build_screen(figures, size.width, size.height), refresh=True)

    def _stop_drawing(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # a terminal that is closed takes nothing
            self._live.stop()


class LinesAbove(io.TextIOBase):
    """A stand-in for stderr: it prints whole lines above the screen.

    It has no `buffer`, so that nothing is written past the screen.
    """

    def __init__(self, screen: LiveScreen, terminal: TextIO) -> None:
        self._screen, self._terminal = screen, terminal
        self._parts = threading.local()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def fileno(self) -> int:
        return self._terminal.fileno()

    def isatty(self) -> bool:
        return self._terminal.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Print the lines that are complete. The rest waits for its end, for each thread alone."""
        whole, newline, rest = (getattr(self._parts, "text", "") + text).rpartition("\n")
        self._parts.text = rest
        if newline:
            self._screen.print_lines(whole)
        return len(text)


@contextlib.contextmanager
def show_live_view(config: Config) -> Iterator[LiveReader]:
    """Show the view of the system of `config` during the block. Logs and stderr go above it."""
    reader = LiveReader(config)
    screen = LiveScreen(reader, sys.stderr)
    above = cast(TextIO, LinesAbove(screen, sys.stderr))
    logger_factory = structlog.get_config()["logger_factory"]
    try:
        reader.start()
        screen.start()
        structlog.configure(logger_factory=structlog.WriteLoggerFactory(above))
        with contextlib.redirect_stderr(above):
            yield reader
    finally:
        structlog.configure(logger_factory=logger_factory)
        screen.close()
        reader.close()
