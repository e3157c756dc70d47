"""The live view as lines for a terminal of a certain size. Pure.

Each list is cut to the size of the terminal: the worst lines are shown, and the rest as a number with
sums. No line is wider than the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rowlock.commands.tables import format_copied_rows, format_duration, format_row_count
from rowlock.inspect.observed.first_copies import FirstCopyProgress
from rowlock.inspect.observed.first_copy_reader import FirstCopyList
from rowlock.live.figures import (
    CopyFigures,
    LiveFigures,
    PipelineFigures,
    SlowTable,
    SourceFigures,
    StoppedPart,
)

NARROW = 60
"""On a terminal with fewer columns, some columns are left out."""
_LOG_LINES = 4
"""Lines of the terminal that stay free for the log above the view."""
_NUMBERS = frozenset({"rows/s", "lag", "left", "quarantine"})
"""Columns that are right-aligned and never cut."""

Line = tuple[str, ...]


def build_screen(figures: LiveFigures, width: int, height: int) -> RenderableType:
    """Return all lines of the view, for a terminal of `width` columns and `height` rows."""
    most, is_narrow = _count_lines_per_list(figures, height), width < NARROW
    parts: list[RenderableType] = [Text("─" * min(width, NARROW), style="dim")]
    if figures.silence:
        parts.append(_build_note(figures.silence, "bold yellow"))
    for header, lines in (
        _format_sources(figures.sources, most),
        _format_pipelines(figures.pipelines, most),
        _format_slow_tables(figures.slow, most),
        _format_first_copies(figures.first_copies, most),
        _format_copies(figures.copies, most),
        _format_troubles(figures.troubles, most),
    ):
        parts += _build_list(header, lines, width, is_narrow=is_narrow)
    parts += [_build_note(each, "yellow") for each in _cut_problems(figures.problems, most)]
    parts.append(_build_note(format_foot(figures), "dim"))
    return Group(*parts)


def _count_lines_per_list(figures: LiveFigures, height: int) -> int:
    """Return how many lines each list may have, apart from its title and the line about the others."""
    lists = (
        figures.sources, figures.pipelines, figures.slow, figures.first_copies.copies, figures.copies,
        figures.troubles, figures.problems,
    )  # fmt: skip
    count = sum(map(bool, lists)) or 1
    free = height - _LOG_LINES - 3  # the rule, the note about silence and the last line
    return max(1, (free - 2 * count) // count)


def format_foot(figures: LiveFigures) -> str:
    """Return the last line: what is held and stopped in all, and where to ask for more."""
    held = [each.held for each in figures.pipelines if each.held is not None]
    stopped = sum(each.state == "stopped" for each in figures.troubles)
    words = [
        f"{stopped:,} stopped",
        f"{format_row_count(sum(held))} in quarantine" if held else "quarantine not read yet",
        f"http://{figures.rest}" if figures.rest else "",
        "Ctrl-C stops the run",
    ]
    return " · ".join(filter(None, words))


def _build_note(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def shorten_middle(text: str, most: int) -> str:
    """Return a name with at most `most` characters. More of its end stays: names differ there."""
    if len(text) <= most:
        return text
    tail = (most - 1) * 2 // 3
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def _build_list(header: Line, lines: Sequence[Line], width: int, *, is_narrow: bool) -> list[RenderableType]:
    """Return a table without borders; nothing if it has no lines. The names in its first column take at most
    half of the terminal's `width`.
    """
    if not lines:
        return []
    shown = min(3, len(header)) if is_narrow else len(header)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for at, name in enumerate(header[:shown]):
        # Only the columns that may be wrapped lose width on a narrow terminal; their cells are cut instead.
        is_number = name in _NUMBERS
        table.add_column(
            Text(name, no_wrap=True),
            justify="right" if is_number else "left",
            no_wrap=is_number or at == 0,
        )
    for first, *rest in lines:
        cells = (shorten_middle(first, width // 2), *rest)
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells[:shown]))
    return [table]


def _cut_lines(lines: Sequence[Line], most: int) -> list[Line]:
    """Return the first lines, and the number of the others."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[:most], (f"… and {len(lines) - most:,} more", *("" for _ in lines[0][1:]))]


def _cut_problems(problems: Sequence[str], most: int) -> list[str]:
    more = len(problems) - most
    return [*problems[:most], *([f"… and {more:,} more problems: `rowlock status`"] if more > 0 else [])]


def _format_sources(sources: Sequence[SourceFigures], most: int) -> tuple[Line, list[Line]]:
    lines = [_format_source(each, _describe_source(each)) for each in sources[:most]]
    if rest := sources[most:]:
        rate, lag = sum(each.rows_per_s for each in rest), _find_worst_lag(rest)
        summed = SourceFigures(f"{len(rest):,} more", "", rate, lag, 0)
        lines.append(_format_source(summed, _count_states(rest)))
    return ("source", "rows/s", "lag", "state"), lines


def _format_source(source: SourceFigures, state: str) -> Line:
    return (source.name, f"{source.rows_per_s:,}", format_duration(source.lag_s), state)


def _describe_source(source: SourceFigures) -> str:
    pending = source.snapshot_pending
    return f"{source.state}, first copies left: {pending:,}" if pending else source.state


def _count_states(sources: Sequence[SourceFigures]) -> str:
    states = [each.state for each in sources]
    return ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))


def _find_worst_lag(parts: Iterable[SourceFigures | PipelineFigures]) -> float | None:
    return max((each.lag_s for each in parts if each.lag_s is not None), default=None)


def _format_pipelines(pipelines: Sequence[PipelineFigures], most: int) -> tuple[Line, list[Line]]:
    lines = [_format_pipeline(each) for each in pipelines[:most]]
    if rest := pipelines[most:]:
        summed = PipelineFigures(
            name=f"{len(rest):,} more",
            running=sum(each.running for each in rest),
            units=sum(each.units for each in rest),
            rows_per_s=sum(each.rows_per_s for each in rest),
            lag_s=_find_worst_lag(rest),
            held=sum(each.held for each in rest if each.held is not None),
        )
        lines.append(_format_pipeline(summed))
    return ("pipeline", "rows/s", "lag", "tables", "quarantine"), lines


def _format_pipeline(each: PipelineFigures) -> Line:
    tables = (
        f"{each.units:,} run" if each.running == each.units else f"{each.running:,} of {each.units:,} run"
    )
    held = "–" if each.held is None else f"{each.held:,}"
    return (each.name, f"{each.rows_per_s:,}", format_duration(each.lag_s), tables, held)


def _format_slow_tables(slow: Sequence[SlowTable], most: int) -> tuple[Line, list[Line]]:
    lines = [(each.unit, format_duration(each.lag_s)) for each in slow]
    return ("slowest", "lag"), _cut_lines(lines, most)


def _format_first_copies(first: FirstCopyList, most: int) -> tuple[Line, list[Line]]:
    """Return the sum, if there are several, and the copies that run and the largest of those that wait."""
    header = ("first copy", "rows/s", "left", "progress")
    lines = [
        _format_progress(f"{each.source}: {each.table}", each.progress, has_begun=each.has_begun)
        for each in first.copies
    ]
    if first.total is None or len(lines) < 2:
        return header, lines
    total = _format_progress(f"all {len(lines):,} tables", first.total, has_begun=True)
    return header, [total, *(_cut_lines(lines, most - 1) if most > 1 else ())]


def _format_progress(name: str, progress: FirstCopyProgress, *, has_begun: bool) -> Line:
    about = f": about {progress.estimate:,} rows" if progress.estimate else ""
    return (
        name,
        "–" if progress.rows_per_s is None else f"{progress.rows_per_s:,.0f}",
        format_duration(progress.eta_s),
        format_copied_rows(progress.rows, progress.estimate) if has_begun else f"waits{about}",
    )


def _format_copies(copies: Sequence[CopyFigures], most: int) -> tuple[Line, list[Line]]:
    lines = [
        (
            each.table,
            "–" if each.rows_per_s is None else f"{each.rows_per_s:,.0f}",
            format_duration(each.eta_s),
            "waits" if each.phase == "waiting" else format_copied_rows(each.rows, each.estimate),
        )
        for each in copies
    ]
    return ("copy", "rows/s", "left", "progress"), _cut_lines(lines, most)


def _format_troubles(troubles: Sequence[StoppedPart], most: int) -> tuple[Line, list[Line]]:
    lines = [(each.what, each.state, each.why) for each in troubles]
    return ("does not run", "state", "why (what to do: `rowlock status`)"), _cut_lines(lines, most)
