"""Facts about a target table beside its definition: what `check` must refuse, and only a dialect can ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableFacts:
    """All tuples hold names for people. `required`: NOT NULL columns without a default.

    `unordered`: unique indexes or constraints whose conflicts cannot be put in order (deferrable, exclusion, …).
    `transactional`: False when the table's engine has no transactions.
    """

    triggers: tuple[str, ...] = ()
    foreign_keys: tuple[str, ...] = ()  # outgoing and incoming
    required: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    engine: str | None = None
    transactional: bool = True
