"""Findings of `check` and of capture's preflights: they are printed, and an error among them refuses
the start.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from schemas.problems import Problem
from schemas.table.patterns import format_table_pattern
from schemas.wire.debezium_snapshot import encode_snapshot_signal

#: The remedy if it is impossible to continue.
START_OVER = "start over (see `rowlock docs start-over`)"
#: In a remedy for several tables; a display for one of them replaces it by `format_copy_remedy`.
COPY_EACH = "rowlock copy (each of the tables)"
#: In a remedy for a table of a source; where the table is known, `add_exclusion` adds how.
EXCLUDE_TABLE = "exclude the table"
#: The remedy for a prepared XA transaction that the server has lost. Its XID is free, and the new PREPARE
#: replaces the lost one.
END_LOST_XA = (
    "at the source, end it under its XID: XA START xid; a change of any one row; XA END xid; XA PREPARE xid; "
    "XA ROLLBACK xid"
)


def add_exclusion(remedy: str, db: str, table: str) -> str:
    """Return a remedy for a table of a source with the entry that excludes it, if that is a remedy."""
    if f"{EXCLUDE_TABLE} (append" in remedy:
        return remedy
    entry = f'"!{format_table_pattern((db, table))}"'
    how = f"append {entry} to the source's `tables`; while rowlock runs, also rowlock reload"
    return remedy.replace(EXCLUDE_TABLE, f"{EXCLUDE_TABLE} ({how})")


def format_copy_remedy(db: str, table: str) -> str:
    """Return the remedy for one table that cannot be followed, while all others continue: the command
    that copies it again.
    """
    return f"rowlock copy {shlex.quote(format_table_pattern((db, table)))}"


def format_debezium_remedy(db: str, table: str) -> str:
    """Return the remedy for a table captured by Debezium: Debezium itself must copy it, because rowlock
    does not.
    """
    return (
        f"put {encode_snapshot_signal(db, table)} into the signal topic of Debezium's "
        "connector (see `rowlock docs debezium`)"
    )


def merge_findings(findings: Sequence[Finding]) -> Problem:
    """Return findings of one place as one problem."""
    places = dict.fromkeys(each.place for each in findings)
    seen = "; ".join(each.message for each in findings)
    remedies = dict.fromkeys(each.remedy for each in findings if each.remedy)
    return Problem(f"{', '.join(places)}: {seen}", "; and ".join(remedies))


#: Prefix of the message of a unit that recovers by itself, without a person.
TRIES_AGAIN = "tries again: "
#: Prefix of the message of a unit that runs, and waits for a lock of another session in the target.
WAITS_FOR_LOCK = "waits for a lock: "


class Finding(msgspec.Struct, frozen=True):
    """One finding."""

    level: Literal["error", "warning"]
    place: str
    """What it is about ("source branch1", "source branch1, table bank.acct")."""
    message: str
    remedy: str
    """What to do: a statement, if one fixes it."""

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.message}. {self.remedy}" if self.remedy else f"{self.place}: {self.message}"
        )


def build_error_finding(place: str, problem: Problem) -> Finding:
    """Return the finding of a problem that refuses the start."""
    return Finding("error", place, problem.what, problem.action)


NO_TABLE = "no table matches"


def build_no_table_finding(place: str, patterns: Iterable[str]) -> Finding:
    """Return the finding about patterns that match no table: none exists, or none that the user may see."""
    return Finding(
        "warning",
        place,
        f"{NO_TABLE} {', '.join(patterns)} yet",
        "nothing, if they are still to be created: they are captured from then on; else correct `tables:`, "
        "or grant SELECT on them (a user sees only tables that it may read)",
    )
