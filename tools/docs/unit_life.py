"""Generates the states of a unit in the apply process, and its transitions, for docs/explanation/apply.md
from the code.

`python -m tools.docs.unit_life docs/explanation/apply.md` writes both between the page's markers; a test
fails while the page is not up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from consumer.units import transitions
from consumer.units.unit import LocalState
from tools.docs.markers import fill_markers

ENDED = "(ended)"


class TransitionRow(NamedTuple):
    """A row of the table of `consumer.units.transitions`."""

    state: str
    events: tuple[str, ...]
    condition: str
    after: str
    effects: tuple[str, ...]


def read_rows() -> list[TransitionRow]:
    """Return the rows of the module's table."""
    text = (transitions.__doc__ or "").split("```\n")[1]
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()[1:]]
    return [
        TransitionRow(state, tuple(events.split(", ")), condition, after, tuple(effects.split()))
        for state, events, condition, after, effects in cells
    ]


def format_states() -> str:
    """Return the states as a Markdown table."""
    lines = ["| state | meaning | its own fields |", "|---|---|---|"]
    for state in get_args(LocalState):
        fields = ", ".join(f"`{each.name}`" for each in msgspec.structs.fields(state))
        meaning = " ".join((state.__doc__ or "").split())
        lines.append(f"| `{state.__name__}` | {meaning} | {fields} |")
    return "\n".join(lines)


def format_transitions() -> str:
    """Return the transitions as a Markdown table."""
    lines = ["| state | event | state afterwards | effects |", "|---|---|---|---|"]
    for row in read_rows():
        event = _join(row.events) + (f": {row.condition}" if row.condition else "")
        after = row.after if row.after == ENDED else f"`{row.after}`"
        lines.append(f"| `{row.state}` | {event} | {after} | {_join(row.effects)} |")
    return "\n".join(lines)


def _join(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def fill_page(page: str) -> str:
    """Return the page with the text between its markers generated again."""
    return fill_markers(page, {"states": format_states(), "transitions": format_transitions()})


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(fill_page(path.read_text(encoding="utf-8")), encoding="utf-8")
