"""The result of a look at the catalogue for a followed table: nothing, a statement that it is followed through, or a stop. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from producer.errors import TableStoppedError
from producer.sources.oracle.catalogue import Logged, Segments, followable, rows_replaced
from producer.sources.oracle.following import FollowedTable
from producer.sources.survey import MISSING, Surveyed
from producer.statements.judgement import StatementVerdict
from producer.stops import gone_remedy
from producer.tables import TableName, dotted
from schemas.findings import copy_again, seen_and_remedy
from schemas.table.model import Table, same_definition


class Look(NamedTuple):
    """`new`: tables to take up; `segments`: of tables that are there, with their logs; `surveyed`: those that may have changed.

    `fresh`: a time shortly before the look, as `Segments.ddl` has it.
    """

    fresh: str
    new: Sequence[TableName]
    segments: Mapping[TableName, Segments]
    surveyed: Mapping[TableName, tuple[Surveyed, Logged | None]]


class Altered(NamedTuple):
    """The definition is another one, and no row is."""

    sql: str
    verdict: StatementVerdict


def looked_at_closely(table: FollowedTable, now: Segments | None) -> bool:
    """Tell whether the table may have changed: by its segments, or because it was not looked at yet.

    The time of its last DDL is in whole seconds, so that a second one may hide behind the first: as long as that may be, it is looked at
    closely (`FollowedTable.again`).
    """
    return now is None or table.logged is None or table.again or now != table.segments


def judged(
    name: TableName, table: FollowedTable, look: Look, defined: Table | None
) -> TableStoppedError | Altered | None:
    """Return what follows for a table; `table` is brought up to date unless it stops. `defined`: as the topic had it at the start."""
    now = look.segments.get(name)
    survey, logged = look.surveyed.get(name, (None, table.logged))
    one, again = frozenset([name]), copy_again(*name)
    if survey == MISSING:
        reason = f"{dotted(name)} was captured and is gone (dropped or renamed, or the user may not see it any more)"
        return TableStoppedError(one, "dropped", reason, gone_remedy(name))
    if now is not None and (what := rows_replaced(table.segments, now)) is not None:
        return TableStoppedError(
            one, "rows-replaced", f"{dotted(name)} {what}, which its log does not show", again
        )
    if logged is None or now is None:
        seen, remedy = seen_and_remedy(survey.reason or "" if survey is not None else "")
        return TableStoppedError(
            one,
            "unfit",
            seen or f"the log of {dotted(name)} is gone",
            f"{remedy}, then {again}".removeprefix(", then "),
        )
    before = table.logged
    table.again = now.ddl >= look.fresh
    table.segments, table.logged = now, logged
    if before is None:
        if defined is None or not same_definition(defined, logged.table):
            return TableStoppedError(
                one, "definition", f"{dotted(name)} was altered while it was not captured", again
            )
        return None
    if same_definition(before.table, logged.table) and before.log == logged.log:
        return None
    if not followable(before, logged):
        return TableStoppedError(
            one,
            "definition",
            f"{dotted(name)} was altered, and which rows of its log are of before cannot be told",
            again,
        )
    return Altered(
        f"ALTER TABLE {dotted(name)}, seen in the catalogue", StatementVerdict(name, "kept", "changed")
    )
