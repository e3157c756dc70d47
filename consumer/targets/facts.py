"""Facts about a target table beside its definition: what `check` must refuse, and only a dialect can ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableFacts:
    """All tuples hold names for people. `required`: NOT NULL columns without a default.

    `unordered`: unique indexes or constraints whose conflicts cannot be put in order (deferrable, exclusion, …).
    `transactional`: False when the table's engine has no transactions. `rules`: that rewrite statements; `always`: identity columns
    GENERATED ALWAYS; `unlogged`: it, or partitions of it, that a crash of the server empties; `row_security`: policies hide
    rows from this user; `kinds`: what is no ordinary table (views, foreign tables), it or partitions of it; `children`: tables that
    inherit from it; `uncovered`: partitionings that do not take every row. `unseen`: (what this user cannot see, the statement
    that shows it): nothing may be concluded from its absence.
    """

    triggers: tuple[str, ...] = ()
    foreign_keys: tuple[str, ...] = ()  # outgoing and incoming
    required: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    unlogged: tuple[str, ...] = ()
    row_security: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()
    engine: str | None = None
    transactional: bool = True
