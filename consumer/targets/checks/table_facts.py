"""Facts about a target table, beside its definition, that `check` must know and only a dialect can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Remarks = Mapping[str, Callable[[str, tuple[str, ...]], "Remark"]]
"""Name of a query → function of the table's place and the names it found, which returns the remark.

The order is that of the report.
"""


@dataclass(frozen=True, slots=True)
class Remark:
    """A dialect's own finding about a table or a session, which the rest of the package only passes on."""

    message: str
    """What was found; "{columns}" is replaced by `columns`."""
    remedy: str
    """A statement of the dialect, if one fixes it; "{column}" is replaced by the first of `columns`."""
    level: Literal["error", "warning"] = "error"
    columns: tuple[str, ...] = ()
    """If not empty, the finding matters only where rowlock updates one of these."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts about a target table. All tuples contain names for people."""

    triggers: tuple[str, ...] = ()
    foreign_keys: tuple[str, ...] = ()  # outgoing and incoming
    required: tuple[str, ...] = ()
    """NOT NULL columns without a default."""
    unordered: tuple[str, ...] = ()
    """Unique indexes or constraints for which conflicting writes cannot be ordered (deferrable,
    exclusion, …).
    """
    unseen: tuple[tuple[str, str], ...] = ()
    """(what this user cannot see, the statement that shows it); its absence proves nothing."""
    remarks: tuple[Remark, ...] = ()
    """Findings that only this dialect has."""
    finer: str = "give the column the collation {names}"
    """How to make a column compare as exactly as at the source; "{names}" is replaced by the source's
    collations.
    """


def build_table_facts(
    found: Mapping[str, tuple[str, ...]], remarks: Remarks, place: str, finer: str
) -> TableFacts:
    """Return the facts of a table from the names that a dialect's queries found.

    `found`: name of a query → names; `place`: the table in a statement.
    """
    return TableFacts(
        triggers=found["triggers"],
        foreign_keys=found["foreign_keys"],
        required=found["required"],
        unordered=found["unordered"],
        remarks=tuple(make(place, names) for fact, make in remarks.items() if (names := found[fact])),
        finer=finer,
    )
