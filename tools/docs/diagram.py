"""Generates the replication set's tables for docs/explanation/coordination.md from the running code.

`python -m tools.docs.diagram docs/explanation/coordination.md` writes both into the page, between its
markers; a test fails while the page is not up to date.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.core.replication_table import CELLS, RULES, ReplicaAction, ReplicaPhase, Role, Rule, SetState
from tools.docs.markers import fill_markers

#: The commands and the recovery, which are not among the rules: (from, to, label).
COMMANDS = (
    (SetState.ABSENT, SetState.PREPARE, "add"),
    (SetState.REPLICATING, SetState.PREPARE, "move"),
    (SetState.PREPARE, SetState.REMOVING, "remove"),
    (SetState.COMMIT, SetState.REMOVING, "remove"),
    (SetState.REPLICATING, SetState.REMOVING, "remove"),
    (SetState.PREPARE, SetState.REPLICATING, "cancel a move"),
    (SetState.RECOVERING, SetState.PREPARE, "all heard: one prepares"),
    (SetState.RECOVERING, SetState.REPLICATING, "all heard: one writes"),
    (SetState.RECOVERING, SetState.REMOVING, "all heard: only stopping ones"),
    (SetState.RECOVERING, SetState.ABSENT, "all heard: none"),
)


def _label(rule: Rule) -> str:
    words = []
    if rule.secondary is not None:
        words.append(f"secondary {rule.secondary.value}")
    if rule.primary is not None:
        words.append(f"primary {rule.primary.value}")
    if rule.leaving is not None:
        words.append("some leaving" if rule.leaving else "none leaving")
    text = ", ".join(words) or "nothing else left"
    return text if rule.act is ReplicaAction.KEEP else f"{text} / {rule.act.value}"


def _edges() -> Iterator[str]:
    for state, after, label in COMMANDS:
        yield f"    {state.value} --> {after.value}: {label}"
    for rule in RULES:
        if rule.act is ReplicaAction.CLASSIFY or (rule.state is rule.next and rule.act is ReplicaAction.KEEP):
            continue
        yield f"    {rule.state.value} --> {rule.next.value}: {_label(rule)}"


def mermaid() -> str:
    """Return the state diagram of a set, in Mermaid."""
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> absent", *_edges(), "```"])


def cells() -> str:
    """Return what each report does to its replica, as a Markdown table with a row per (state, role)."""
    rows = sorted(
        {(s, r) for s, r, _ in CELLS},
        key=lambda row: (list(SetState).index(row[0]), list(Role).index(row[1])),
    )
    lines = [
        "| state | reported by | " + " | ".join(seen.value for seen in ReplicaPhase) + " |",
        "|---" * (2 + len(ReplicaPhase)) + "|",
    ]
    for state, role in rows:
        acts = [", ".join(act.value for act in CELLS[state, role, seen]) for seen in ReplicaPhase]
        lines.append(f"| {state.value} | {role.value} | " + " | ".join(acts) + " |")
    return "\n".join(lines)


def fill_page(page: str) -> str:
    """Return the page with the text between its markers generated again."""
    return fill_markers(page, {"diagram": mermaid(), "cells": cells()})


if __name__ == "__main__":
    import sys
    from pathlib import Path

    path = Path(sys.argv[1])
    path.write_text(fill_page(path.read_text(encoding="utf-8")), encoding="utf-8")
