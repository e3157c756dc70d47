"""The progress of `rowlock verify` on stderr: one line that is replaced on a terminal, a line now and then
elsewhere.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from rowlock.commands.tables import format_duration
from rowlock.errors import CommandError
from rowlock.inspect.pairs import TablePair
from rowlock.views.source import estimate_tables
from schemas.config.model import Config
from schemas.table.names import format_table_text

LINE_EVERY_S, REPLACED_EVERY_S = 10.0, 0.5
_CLEAR = "\r\x1b[K"


@dataclass(slots=True)
class VerifyProgress:
    """The progress of the pair that is being compared. `replaced`: whether a line replaces the one before.

    `now`: monotonic seconds.
    """

    config: Config
    replaced: bool
    now: Callable[[], float] = time.monotonic
    _pair: TablePair | None = None
    _began: float = 0.0
    _shown: float = 0.0
    _estimate: int | None = None

    def show_page(self, pair: TablePair, source: int, target: int) -> None:
        """Print a line about the compared rows of the pair's source and target, if one is due."""
        now = self.now()
        if pair is not self._pair:
            self._pair, self._began, self._shown, self._estimate = pair, now, now, None
        if now - self._shown < (REPLACED_EVERY_S if self.replaced else LINE_EVERY_S):
            return
        if self._shown == self._began:
            self._estimate = _estimate_rows(self.config, pair)
        self._shown = now
        rate = (source + target) / (now - self._began)
        line = format_verify_progress(pair, source, target, rate, self._estimate)
        self._print(f"{_CLEAR}{line}" if self.replaced else f"{line}\n")

    def show_settling(self, pair: TablePair, rows: int, settle_s: float) -> None:
        """On a terminal, print why the comparison of the pair takes up to `settle_s` longer."""
        if not self.replaced:
            return
        table = format_table_text(pair.table.db, pair.table.name)
        differing = "1 row differs" if rows == 1 else f"{rows:,} rows differ"
        self._print(f"{_CLEAR}{table}: {differing}; read again for up to {settle_s:g} s")

    def clear_line(self) -> None:
        """Remove the line from the terminal."""
        if self.replaced:
            self._print(_CLEAR)

    def _print(self, text: str) -> None:
        """Print to stderr, if it takes anything: the comparison goes on without it."""
        with contextlib.suppress(OSError):
            click.echo(text, err=True, nl=False)


def _estimate_rows(config: Config, pair: TablePair) -> int | None:
    """Return the server's estimate of the source table's rows; None: it has none."""
    table = (pair.table.db, pair.table.name)
    try:
        sizes = estimate_tables(config.sources[pair.source], pair.source, [table])
    except CommandError:  # the comparison reports a source that does not answer
        return None
    return next((rows for rows, _ in sizes.values()), None)


def format_verify_progress(
    pair: TablePair, source: int, target: int, rate: float, estimate: int | None
) -> str:
    """Return one line. `rate`: rows of both sides a second. `estimate`: rows of the source; None: unknown."""
    table = format_table_text(pair.table.db, pair.table.name)
    whole = source if target else max(source, estimate or 0)
    # Both sides are read, the source first.
    left = (
        f", about {format_duration((2 * whole - source - target) / rate)} left" if estimate and rate else ""
    )
    about = f" of about {whole:,}" if estimate and not target else ""
    of_target = f", {target:,} of the target" if target else ""
    return f"{pair.pipeline}: {table}: {source:,}{about} rows compared{of_target}, {rate:,.0f} rows/s{left}"


@contextlib.contextmanager
def follow_verify(config: Config) -> Iterator[VerifyProgress]:
    """Yield the progress to show; its line is removed at the end."""
    progress = VerifyProgress(config, replaced=sys.stderr is not None and sys.stderr.isatty())
    try:
        yield progress
    finally:
        progress.clear_line()
