"""The demo's view: figures per table while it runs, and the summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from rowlock.commands.tables import seconds
from rowlock.inspect.status import Status

PLAIN_EVERY_S = 5.0

CountRows = Callable[[str, int], int]
"""Topic and offset → the rows of the topic up to there."""


@dataclass(slots=True)
class Figures:
    """Rows per table at one moment. `captured` and `applied`: table → rows, over all branches; `behind`: events."""

    at: float
    captured: dict[str, int] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    behind: int = 0
    lag: float | None = None
    stopped: tuple[str, ...] = ()

    @classmethod
    def of(cls, status: Status, now: float, rows: CountRows) -> Figures:
        figures = cls(now)
        for unit in status.units:
            table = (unit.table or "").rpartition(".")[2]
            for counts, offset in ((figures.captured, unit.end_offset), (figures.applied, unit.offset)):
                counts[table] = counts.get(table, 0) + (0 if offset is None else rows(unit.topic, offset))
            figures.behind += unit.lag_events or 0
        lags = [unit.lag_seconds for unit in status.units if unit.lag_seconds is not None]
        figures.lag = max(lags, default=None)
        figures.stopped = tuple(f"{unit.topic}: {unit.stopped}" for unit in status.units if unit.stopped)
        return figures

    def rate(self, earlier: Figures | None, table: str | None = None) -> float:
        """Return the rows applied per second since `earlier`, of all tables or of one."""
        if earlier is None or self.at <= earlier.at:
            return 0.0
        return (self.count(table) - earlier.count(table)) / (self.at - earlier.at)

    def count(self, table: str | None = None) -> int:
        """Return the rows applied, of all tables or of one."""
        return sum(self.applied.values()) if table is None else self.applied.get(table, 0)


def rows_table(snapshot: Figures, end: Figures) -> list[tuple[str, ...]]:
    """Return the lines of the summary: table, rows of the snapshot, captured, applied, and applied per second after it."""
    lines: list[tuple[str, ...]] = [
        _line(name, snapshot.count(name), end.captured[name], end.count(name), end.rate(snapshot, name))
        for name in sorted(end.captured)
    ]
    total = _line("all", snapshot.count(), sum(end.captured.values()), end.count(), end.rate(snapshot))
    return [*lines, total]


def _line(name: str, *figures: float) -> tuple[str, ...]:
    return (name, *(f"{figure:,.0f}" for figure in figures))


class DemoView:
    """A live table on a terminal, a line every five seconds elsewhere."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else 160  # elsewhere lines are not to be broken
        self._console = Console(highlight=False, no_color=bool(os.environ.get("NO_COLOR")), width=width)
        self._live: Live | None = None
        self._phase = ""
        self._next_line = 0.0
        self._last: Figures | None = None

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def phase(self, text: str) -> None:
        """Begin a part of the demo."""
        self._phase = text
        if not sys.stdout.isatty() or self._live is None:
            self.say(f"▸ {text}")

    def open(self) -> None:
        if sys.stdout.isatty():
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, figures: Figures, latency: float | None, waits: str = "") -> None:
        """`waits`: for what."""
        if self._live is not None:
            self._live.update(
                Group(
                    Text(f"▸ {self._phase}"),
                    self._table(figures),
                    Text(self._line(figures, latency)),
                    Text(f"waits for {waits}" if waits else ""),
                )
            )
            self._last = figures
        elif figures.at >= self._next_line:
            self._next_line = figures.at + PLAIN_EVERY_S
            captured, applied = sum(figures.captured.values()), sum(figures.applied.values())
            what = f" · waits for {waits}" if waits else ""
            self.say(f"  captured {captured:,} · applied {applied:,} · {self._line(figures, latency)}{what}")
            self._last = figures

    def _line(self, figures: Figures, latency: float | None) -> str:
        shown = "–" if latency is None else f"{latency * 1000:.0f} ms"
        rate = figures.rate(self._last)
        return f"{rate:,.0f} rows/s · behind {figures.behind:,} events · lag {seconds(figures.lag)} · latency p50 {shown}"

    @staticmethod
    def _table(figures: Figures) -> Table:
        table = Table("table", "captured", "applied")
        for name in sorted(figures.captured):
            table.add_row(name, f"{figures.captured[name]:,}", f"{figures.applied.get(name, 0):,}")
        return table

    def summary(self, title: str, header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Print a table whose figures stand below each other; a text for people stands on the left."""
        name, *others = header
        right = len(others) > 1
        columns = [Column(each, justify="right" if right else "left") for each in others]
        table = Table(name, *columns, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
