"""The text below a table of `status`, `units list` and `copy`: why something does not run, and what to do.

Reasons and remedies are sentences and statements. In a column they would leave no room for the names, and a
remedy that is broken into the lines of a cell cannot be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rowlock.commands.tables import format_since, list_shown_stops

if TYPE_CHECKING:
    from rich.console import Console

    from rowlock.inspect.status import Status

SHOWN_NAMES = 5
"""Names printed per reason; of more, the number is printed."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A thing that does not run, and why."""

    name: str
    """The topic, table, source or unit, as its table shows it."""
    text: str
    remedy: str
    """What to do; "": nothing, or nothing is known."""
    note: str = ""
    """What differs between things of one reason: since when, how often."""


def format_reason_lines(reasons: Iterable[Reason]) -> list[str]:
    """Return the lines for people: each reason and each remedy once, with the names that they concern."""
    groups: dict[str, dict[str, list[Reason]]] = {}
    for reason in reasons:
        if reason.text:
            groups.setdefault(reason.remedy, {}).setdefault(reason.text, []).append(reason)
    lines: list[str] = []
    for remedy, texts in groups.items():
        lines += ["", *(f"{_join_names(group)}: {text}" for text, group in texts.items())]
        if remedy:
            lines.append(f"  what to do: {remedy}")
    return lines


def print_reasons(out: Console, reasons: Iterable[Reason]) -> None:
    """Print the lines unbroken: the terminal breaks them, and what is copied from it is whole."""
    for line in format_reason_lines(reasons):
        out.print(line, markup=False, soft_wrap=True)


def _join_names(group: Sequence[Reason]) -> str:
    names = list(dict.fromkeys(f"{each.name} ({each.note})" if each.note else each.name for each in group))
    more = f" and {len(names) - SHOWN_NAMES:,} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def list_status_reasons(status: Status) -> list[Reason]:
    """Return the reasons of all that `status` shows: sources, units, tables without events, copies."""
    return [
        *(Reason(f"source {each.name}", each.reason or "", each.remedy or "") for each in status.sources),
        *_yield_unit_reasons(status),
        *_yield_table_reasons(status),
        *(
            Reason(f"copy of {copy.table} of source {copy.source}", copy.reason, "")
            for source in status.sources
            for copy in source.copies
        ),
    ]


def _yield_unit_reasons(status: Status) -> Iterator[Reason]:
    names_pipeline = len({unit.pipeline for unit in status.units}) > 1
    for unit in status.units:
        name = f"{unit.topic} of pipeline {unit.pipeline}" if names_pipeline else unit.topic
        since = format_since(unit.since_ms, status.time_ms)
        yield Reason(name, unit.reason or "", unit.remedy or "", since)


def _yield_table_reasons(status: Status) -> Iterator[Reason]:
    for source, table in list_shown_stops(status):
        since = format_since(table.since_ms, status.time_ms)
        yield Reason(f"{table.table} of source {source}", table.reason, table.remedy, since)
