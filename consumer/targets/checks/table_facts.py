"""Facts about a target table beside its definition: what `check` must refuse, and only a dialect can ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Remarks = Mapping[str, Callable[[str, tuple[str, ...]], "Remark"]]
"""What a query finds → what is said of it, of the table's place and the names that were found, in the order in which it is said."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A dialect's own finding about a table or a session, in its own words: the rest of the package knows no more of it.

    `message`: what is there; `remedy`: a statement of the dialect if one fixes it. `columns`: it matters only where rowlock updates
    one of these; those are then put in for "{columns}" in the message, the first of them for "{column}" in the remedy.
    """

    message: str
    remedy: str
    level: Literal["error", "warning"] = "error"
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableFacts:
    """All tuples hold names for people. `required`: NOT NULL columns without a default.

    `unordered`: unique indexes or constraints whose conflicts cannot be put in order (deferrable, exclusion, …).
    `unseen`: (what this user cannot see, the statement that shows it): nothing may be concluded from its absence.
    `remarks`: what only this dialect has. `finer`: how a column comes to compare as exactly as at the source; "{names}" stands for
    the source's collations.
    """

    triggers: tuple[str, ...] = ()
    foreign_keys: tuple[str, ...] = ()  # outgoing and incoming
    required: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()
    remarks: tuple[Remark, ...] = ()
    finer: str = "give the column the collation {names}"


def build_table_facts(
    found: Mapping[str, tuple[str, ...]], remarks: Remarks, place: str, finer: str
) -> TableFacts:
    """Return the facts of a table from the names that a dialect's queries found, by query; `place`: the table in a statement."""
    return TableFacts(
        triggers=found["triggers"],
        foreign_keys=found["foreign_keys"],
        required=found["required"],
        unordered=found["unordered"],
        remarks=tuple(make(place, names) for fact, make in remarks.items() if (names := found[fact])),
        finer=finer,
    )
