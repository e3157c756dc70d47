"""The demo's output: figures per table while it runs, and the summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from rowlock.commands.tables import format_duration
from rowlock.inspect.status import Status

PLAIN_EVERY_S = 5.0

CountRows = Callable[[str, int], int]
"""Topic and offset → the number of rows of the topic up to there."""


@dataclass(slots=True)
class DemoFigures:
    """Rows per table at one moment."""

    at: float
    captured: dict[str, int] = field(default_factory=dict)
    """Table → rows, over all branches."""
    applied: dict[str, int] = field(default_factory=dict)
    """Table → rows, over all branches."""
    backlog: int = 0
    """Events that are not applied yet."""
    lag: float | None = None
    stopped: tuple[str, ...] = ()

    @classmethod
    def from_status(cls, status: Status, now: float, rows: CountRows) -> DemoFigures:
        figures = cls(now)
        for unit in status.units:
            table = (unit.table or "").rpartition(".")[2]
            for counts, offset in ((figures.captured, unit.end_offset), (figures.applied, unit.offset)):
                counts[table] = counts.get(table, 0) + (0 if offset is None else rows(unit.topic, offset))
            figures.backlog += unit.lag_events or 0
        lags = [unit.lag_seconds for unit in status.units if unit.lag_seconds is not None]
        figures.lag = max(lags, default=None)
        figures.stopped = tuple(f"{unit.topic}: {unit.stopped}" for unit in status.units if unit.stopped)
        return figures

    def compute_rate(self, earlier: DemoFigures | None, table: str | None = None) -> float:
        """Return the rows applied per second since `earlier`, for all tables or one."""
        if earlier is None or self.at <= earlier.at:
            return 0.0
        return (self.count_applied(table) - earlier.count_applied(table)) / (self.at - earlier.at)

    def count_applied(self, table: str | None = None) -> int:
        """Return the rows applied, for all tables or one."""
        return sum(self.applied.values()) if table is None else self.applied.get(table, 0)


def build_summary_rows(snapshot: DemoFigures, end: DemoFigures) -> list[tuple[str, ...]]:
    """Return the lines of the summary: table, rows of the snapshot, captured, applied, and applied per
    second after it.
    """
    lines: list[tuple[str, ...]] = [
        _build_summary_row(
            name,
            snapshot.count_applied(name),
            end.captured[name],
            end.count_applied(name),
            end.compute_rate(snapshot, name),
        )
        for name in sorted(end.captured)
    ]
    total = _build_summary_row(
        "all",
        snapshot.count_applied(),
        sum(end.captured.values()),
        end.count_applied(),
        end.compute_rate(snapshot),
    )
    return [*lines, total]


def _build_summary_row(name: str, *figures: float) -> tuple[str, ...]:
    return (name, *(f"{figure:,.0f}" for figure in figures))


class DemoView:
    """A live table on a terminal, otherwise a line every five seconds."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else 160  # without a terminal lines must not be broken
        self._console = Console(highlight=False, no_color=bool(os.environ.get("NO_COLOR")), width=width)
        self._live: Live | None = None
        self._phase = ""
        self._next_line = 0.0
        self._last: DemoFigures | None = None

    def print_text(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def begin_phase(self, text: str) -> None:
        """Begin a part of the demo."""
        self._phase = text
        if not sys.stdout.isatty() or self._live is None:
            self.print_text(f"▸ {text}")

    def open(self) -> None:
        if sys.stdout.isatty():
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show_figures(self, figures: DemoFigures, latency: float | None, waits: str = "") -> None:
        """Show the figures. `waits`: what the demo waits for."""
        if self._live is not None:
            self._live.update(
                Group(
                    Text(f"▸ {self._phase}"),
                    self._build_table(figures),
                    Text(self._format_line(figures, latency)),
                    Text(f"waits for {waits}" if waits else ""),
                )
            )
            self._last = figures
        elif figures.at >= self._next_line:
            self._next_line = figures.at + PLAIN_EVERY_S
            captured, applied = sum(figures.captured.values()), sum(figures.applied.values())
            what = f" · waits for {waits}" if waits else ""
            self.print_text(
                f"  captured {captured:,} · applied {applied:,} · {self._format_line(figures, latency)}{what}"
            )
            self._last = figures

    def _format_line(self, figures: DemoFigures, latency: float | None) -> str:
        shown = "–" if latency is None else f"{latency * 1000:.0f} ms"
        rate = figures.compute_rate(self._last)
        return (
            f"{rate:,.0f} rows/s · backlog {figures.backlog:,} events · lag "
            f"{format_duration(figures.lag)} · latency p50 {shown}"
        )

    @staticmethod
    def _build_table(figures: DemoFigures) -> Table:
        table = Table("table", "captured", "applied")
        for name in sorted(figures.captured):
            table.add_row(name, f"{figures.captured[name]:,}", f"{figures.applied.get(name, 0):,}")
        return table

    def print_summary(self, title: str, header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Print a table with right-aligned figures; a single column of text is left-aligned."""
        name, *others = header
        right = len(others) > 1
        columns = [Column(each, justify="right" if right else "left") for each in others]
        table = Table(name, *columns, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
