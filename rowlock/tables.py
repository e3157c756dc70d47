"""How results look on stdout: tables for people, JSON for programs. `NO_COLOR` is obeyed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rowlock.findings import by_weight
from rowlock.status import SourceStatus, Status, UnitStatus
from rowlock.verify import Result
from schemas.findings import Finding

_LEVEL_STYLE = {"error": "red", "warning": "yellow"}
_WIDE = 200
SHOWN = 20
"""Differing keys printed per table unless all are asked for."""


def console() -> Console:
    """Return a console for stdout. Not on a terminal: wide, so that lines are not broken for a program that reads them."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(file=sys.stdout, width=width, no_color=bool(os.environ.get("NO_COLOR")), highlight=False)


def findings_table(findings: Sequence[Finding]) -> Table:
    table = Table("", "place", "what was found", "what to do", show_lines=True)
    for finding in by_weight(findings):
        level = f"[{_LEVEL_STYLE.get(finding.level, '')}]{finding.level}[/]"
        table.add_row(level, *(plain(text) for text in (finding.place, finding.message, finding.remedy)))
    return table


def plain(text: str) -> str:
    """Return text whose brackets rich does not take for markup."""
    return text.replace("[", r"\[")


def sources_table(status: Status) -> Table:
    table = Table("source", "state", "captured to", "lag", "events", "snapshot pending", "error")
    for source in status.sources:
        table.add_row(*(plain(cell) for cell in _source_cells(source)))
    return table


def _source_cells(source: SourceStatus) -> tuple[str, ...]:
    pending = ", ".join(source.snapshot_pending)
    cells = (
        source.name,
        source.state,
        source.position or "–",
        seconds(source.lag_seconds),
        f"{source.events:,}",
    )
    return (*cells, pending, source.error or "")


def units_table(status: Status) -> Table:
    """Return the units; a column for displaced rows only where there are any: mostly there never are."""
    drifted = any(unit.displaced for unit in status.units)
    more = ("displaced",) if drifted else ()
    table = Table(
        "pipeline", "topic", "state", "position", "offset", "behind", "lag", "held", *more, "message"
    )
    for unit in status.units:
        *cells, message = _unit_cells(unit)
        extra = (str(unit.displaced or ""),) if drifted else ()
        table.add_row(*(plain(cell) for cell in (*cells, *extra, message)))
    return table


def _unit_cells(unit: UnitStatus) -> tuple[str, ...]:
    position = "–" if unit.position is None or (unit.offset or 0) < 0 else ",".join(map(str, unit.position))
    offset = "–" if unit.offset is None else f"{unit.offset}/{unit.end_offset}"
    behind = "–" if unit.lag_events is None else f"{unit.lag_events:,}"
    held = str(unit.quarantined or "")
    return (
        unit.pipeline, unit.topic, unit.state, position, offset, behind, seconds(unit.lag_seconds), held, unit.stopped or "",
    )  # fmt: skip


def seconds(value: float | None) -> str:
    """Return a duration as people read it."""
    if value is None:
        return "–"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def verify_lines(result: Result, shown: int = SHOWN) -> list[str]:
    """Return what there is to say of one table: the verdict, then the differing keys."""
    label = result.pair.label
    if result.problem:
        return [f"CANNOT COMPARE {label}: {result.problem}"]
    if result.equal:
        return [f"equal     {label}: {result.rows:,} rows"]
    more = " at least" if result.more else ""
    lines = [f"DIFFERENT {label}:{more} {len(result.findings):,} of {result.rows:,} rows"]
    for finding in result.findings[:shown]:
        key = ", ".join(map(repr, finding.key))
        columns = f" in {', '.join(finding.columns)}" if finding.columns else ""
        moving = " (the source row keeps changing)" if finding.moving else ""
        lines.append(f"  {finding.kind}: key ({key}){columns}{moving}")
    if len(result.findings) > shown:
        lines.append(f"  … and {len(result.findings) - shown:,} more")
    return lines
