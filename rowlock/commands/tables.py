"""Results on stdout: tables for people, JSON for programs. `NO_COLOR` is respected."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from rowlock.inspect.observed.source_status import SourceStatus, TableStatus
    from rowlock.inspect.status import ApplyUnitStatus, Status
    from rowlock.inspect.verify import PairResult
    from rowlock.views.retention import Backlog
    from schemas.findings import Finding


def has_errors(findings: Sequence[Finding]) -> bool:
    return any(finding.level == "error" for finding in findings)


def _sort_by_weight(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with errors first, otherwise in their order."""
    return sorted(findings, key=lambda finding: finding.level != "error")


def as_dict(finding: Finding) -> dict[str, str]:
    """Return the documented JSON object."""
    return {"level": finding.level, "place": finding.place, "what": finding.message, "remedy": finding.remedy}


_LEVEL_STYLE = {"error": "red", "warning": "yellow"}
_WIDE = 200
SHOWN = 20
"""Differing keys printed per table unless all are requested; also lines of `check` about retention."""


def make_console() -> Console:
    """Return a console for stdout. If that is no terminal, it is wide, so that lines are not broken for
    a program that reads them.
    """
    width = None if sys.stdout.isatty() else _WIDE
    return Console(file=sys.stdout, width=width, no_color=bool(os.environ.get("NO_COLOR")), highlight=False)


def make_table(*headers: str, show_lines: bool = False) -> Table:
    """Return a table without rows. Where the terminal is too narrow, a cell is broken into lines: names are
    distinguished by their ends, which must not be cut off.
    """
    return Table(*(Column(name, overflow="fold") for name in headers), show_lines=show_lines)


def build_findings_table(findings: Sequence[Finding]) -> Table:
    table = make_table("", "place", "what was found", "what to do", show_lines=True)
    for finding in _sort_by_weight(findings):
        level = f"[{_LEVEL_STYLE.get(finding.level, '')}]{finding.level}[/]"
        table.add_row(
            level, *(escape_markup(text) for text in (finding.place, finding.message, finding.remedy))
        )
    return table


def format_headroom_lines(kept: Sequence[Backlog]) -> list[str]:
    """Return one line per backlog, the one that is deleted first at the top; with many topics, only the
    first ones.
    """
    ordered = sorted(kept, key=lambda each: math.inf if each.headroom_s is None else each.headroom_s)
    more = (
        [f"… and {len(ordered) - SHOWN:,} more that are kept at least as long"]
        if len(ordered) > SHOWN
        else []
    )
    return [str(each) for each in ordered[:SHOWN]] + more


def escape_markup(text: str) -> str:
    """Return the text with brackets escaped, so that rich does not read them as markup."""
    return text.replace("[", r"\[")


def build_sources_table(status: Status) -> Table:
    """Return the table of sources."""
    table = make_table("source", "state", "captured to", "lag", "events", "snapshot pending")
    for source in status.sources:
        table.add_row(*(escape_markup(cell) for cell in _format_source_cells(source)))
    return table


def _format_source_cells(source: SourceStatus) -> tuple[str, ...]:
    pending = ", ".join(source.snapshot_pending)
    return (
        source.name, source.state, source.position or "–", format_duration(source.lag_seconds),
        f"{source.events:,}", pending,
    )  # fmt: skip


def build_unit_status_table(status: Status) -> Table:
    """Return the table of units, with a column for displaced rows only if there are any."""
    drifted = any(unit.displaced for unit in status.units)
    more = ("displaced",) if drifted else ()
    table = make_table(
        "pipeline", "topic", "state", "last event at", "offset", "behind", "lag", "quarantine", *more
    )
    for unit in status.units:
        extra: tuple[str, ...] = (str(unit.displaced or ""),) if drifted else ()
        table.add_row(*(escape_markup(cell) for cell in (*_format_unit_cells(unit), *extra)))
    return table


def _format_unit_cells(unit: ApplyUnitStatus) -> tuple[str, ...]:
    offset = "–" if unit.offset is None else f"{unit.offset}/{unit.end_offset}"
    backlog = "–" if unit.lag_events is None else f"{unit.lag_events:,}"
    held = format_row_count(unit.quarantined_rows) if unit.quarantined_rows else ""
    return (
        unit.pipeline, unit.topic, unit.state, unit.at or "–", offset, backlog,
        format_duration(unit.lag_seconds), held,
    )  # fmt: skip


def build_stops_table(status: Status) -> Table | None:
    """Return the tables that capture has stopped or left out and that no unit shows; None: there are none."""
    table = make_table("source", "table", "state", "cause", "since")
    for source, each in list_shown_stops(status):
        cause = " at ".join(filter(None, (each.cause, each.at)))
        cells = (source, each.table, each.state, cause, format_since(each.since_ms, status.time_ms))
        table.add_row(*(escape_markup(cell) for cell in cells))
    return table if table.row_count else None


def list_shown_stops(status: Status) -> list[tuple[str, TableStatus]]:
    """Return the tables that capture has stopped or left out, with their sources, as far as no unit shows the
    same reason.
    """
    shown = {unit.reason for unit in status.units}
    return [
        (source.name, table)
        for source in status.sources
        for table in source.tables
        if table.reason not in shown
    ]


def build_running_copies_table(status: Status) -> Table | None:
    """Return the tables that are being copied, or with a copy that waits or was refused; None: there are
    none.
    """
    table = make_table("source", "copied again", "phase", "rows", "left", "asked by", "asked")
    for row in (row for source in status.sources for row in source.copies):
        cells = (
            row.source, row.table, row.phase, format_copied_rows(row.rows, row.estimate),
            "" if row.eta_s is None else format_duration(row.eta_s),
            f"{row.by} ({row.cause})" if row.cause else row.by,
            format_since(row.requested_ms, status.time_ms),
        )  # fmt: skip
        table.add_row(*(escape_markup(cell) for cell in cells))
    return table if table.row_count else None


def format_copied_rows(rows: int, estimate: int | None) -> str:
    """Return the progress of a copy."""
    return f"{rows:,}" + (f" of about {estimate:,}" if estimate else "") + " rows"


def format_row_count(rows: int) -> str:
    """Return "1 row", "2 rows"."""
    return "1 row" if rows == 1 else f"{rows:,} rows"


def format_since(since_ms: int | None, now_ms: int) -> str:
    """Return how long ago something began."""
    return "" if since_ms is None else f"{format_duration(max(0, now_ms - since_ms) / 1000)} ago"


def format_duration(value: float | None) -> str:
    """Return a duration for people."""
    if value is None:
        return "–"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def verify_lines(result: PairResult, shown: int = SHOWN) -> list[str]:
    """Return the lines about one table: the verdict, then the differing keys, then what to do."""
    label = result.pair.label
    if result.problem:
        return [f"CANNOT COMPARE {label}: {result.problem}"]
    kept = f", kept: {result.kept:,}" if result.kept else ""
    if result.equal:
        return [f"equal     {label}: {result.rows:,} rows{kept}"]
    if not result.findings:
        return [f"NOT COMPARED TO THE END {label}: {result.rows:,} rows of the source were compared"]
    more = " at least" if result.more else ""
    rest = "; the rows after them were not compared" if not result.complete else ""
    lines = [f"DIFFERENT {label}:{more} {len(result.findings):,} of {result.rows:,} rows{kept}{rest}"]
    for finding in result.findings[:shown]:
        key = ", ".join(map(repr, finding.key))
        columns = f" in {', '.join(finding.columns)}" if finding.columns else ""
        moving = " (the source row keeps changing)" if finding.moving else ""
        lines.append(f"  {finding.kind}: key ({key}){columns}{moving}")
    if len(result.findings) > shown:
        lines.append(f"  … and {len(result.findings) - shown:,} more")
    return [*lines, f"  {result.note or _propose_repair(result)}"]


def _propose_repair(result: PairResult) -> str:
    from schemas.findings import format_copy_remedy

    table = result.pair.table
    return (
        "next: rowlock quarantine list, which shows the rows that the target refused; after any other cause, "
        f"{format_copy_remedy(table.db, table.name)}"
    )
