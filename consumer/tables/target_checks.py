"""Checks whether a target table fits the unit that is to write it. `check` runs the same checks.

They are repeated at every takeover and first definition. So a start need not fail as a whole because of
one table, and a table that was altered while units waited, or that `check` never saw, is checked too.
"""

from __future__ import annotations

from consumer.tables.router import (
    ResolvedRoute,
    TableRoute,
    build_stored_table,
    find_duplicate_columns,
    name_columns,
    resolve_route,
)
from consumer.tables.stored import StoredDefinition
from consumer.targets.base import UnitTarget
from consumer.targets.checks.table_findings import check_table
from schemas.findings import Finding, format_copy_remedy, format_debezium_remedy
from schemas.problems import Problem
from schemas.table.model import Table


def judge_target_table(
    session: UnitTarget,
    stored: StoredDefinition,
    routed: ResolvedRoute,
    sources: int = 1,
) -> list[Finding]:
    """Return the findings about the target table of a definition, as in `check` and in each takeover.

    `sources`: the number of topics that write the table. Raises the
    session's errors.
    """
    twice = find_duplicate_columns(stored, routed, session.column_names)
    if twice:
        return twice
    expected = build_stored_table(stored, routed)
    found = check_table(
        session,
        expected,
        added=routed.added_names,
        leaves_out=routed.policy == "ignore",
        sources=sources,
    )
    return [*found, *_find_foreign_key_columns(session, expected, routed)]


def _find_foreign_key_columns(session: UnitTarget, expected: Table, routed: ResolvedRoute) -> list[Finding]:
    """Return a finding if the route keeps removed rows, but a key of the source does not give the target's:
    no key sweep can find these rows.
    """
    real = session.read_table(expected.db, expected.name) if routed.keeps_removed_rows else None
    more = set() if real is None else {*real.key.columns} - {*expected.key.columns}
    if not more:
        return []
    return [
        Finding(
            "error",
            f"target table {expected.db}.{expected.name}",
            f"its key has the further columns {sorted(more)}, so rowlock cannot find the rows that "
            "`partitions: keep` is to keep",
            f"make its key {list(expected.key.columns)}, or set `partitions: follow` for its route",
        )
    ]


def find_table_misfit(
    session: UnitTarget,
    stored: StoredDefinition,
    source_name: str,
    routes: tuple[TableRoute, ...],
) -> Problem | None:
    """Return why the target table of a definition must not be written; None if it fits or is missing.

    A problem that may only quarantine single rows does not count. Raises the session's errors.
    """
    routed = resolve_route(routes, source_name, stored.table.db, stored.table.name)
    if routed is None or routed.topic is not None:
        return None  # the caller reports a missing route; a topic is checked when it is opened
    errors = [each for each in judge_target_table(session, stored, routed) if each.level == "error"]
    if not errors:
        return None
    first, more = errors[0], len(errors) - 1
    further = f" (and {more} more, see `rowlock check`)" if more else ""
    return Problem(f"{first.place}: {first.message}{further}", first.remedy)


def explain_missing_target(routed: ResolvedRoute, source: Table, *, debezium: bool = False) -> Problem:
    """Return the problem of the target table of `source` that has existed and is missing.

    An empty table in its place would look complete. `debezium`: rowlock does not copy such a table. If
    several sources write the table, each of them lacks its rows.
    """
    copy_remedy = (format_debezium_remedy if debezium else format_copy_remedy)(source.db, source.name)
    if routed.added and not debezium:
        copy_remedy += " and likewise for every other table that is routed to it"
    return Problem(
        f"{routed.schema}.{routed.table}: the target table no longer exists, nor the "
        "rows that were applied to it",
        f"restore it, or {copy_remedy}; if it exists, the target's user lacks a right on it, and "
        "`rowlock check` prints the GRANT",
    )


def describe_lost_rows(place: str) -> str:
    """Return the message for a target table `place` that was missing and that another unit has created
    again.
    """
    return (
        f"{place}: the target table was dropped, and the copy of another source's table created it again: "
        "the rows of this source are not in it"
    )


def is_target_changed(stored: StoredDefinition, routed: ResolvedRoute | None) -> bool:
    """Return whether the route leads to another target table than the one that has the unit's rows."""
    return (
        routed is not None
        and routed.topic is None
        and stored.target_place not in (None, (routed.schema, routed.table))
    )


def explain_changed_route(stored: StoredDefinition, routed: ResolvedRoute | None) -> str:
    """Return why the unit needs a copy of its table: the route leads to another target table than before, or
    its `rename` gives the columns other names than the target has; "": it does not.
    """
    if routed is None:
        return ""
    if stored.target_place is not None and is_target_changed(stored, routed):
        return (
            f"{routed.schema}.{routed.table}: the route wrote to {'.'.join(stored.target_place)} before, and "
            "only a copy of the table brings the rows that were applied there"
        )
    if (now := name_columns(stored, routed)).names == stored.names:
        return ""
    changed = [
        f"{name} from {stored.get_target_name(name)} to {now.get_target_name(name)}"
        for name in stored.table.column_names
        if stored.get_target_name(name) != now.get_target_name(name)
    ]
    return (
        f"{routed.schema}.{routed.table}: the route's `rename` changed the target's name of column "
        f"{', '.join(changed)}, and only a copy of the table brings the values under the new name"
    )


def explain_changed_table(
    session: UnitTarget,
    stored: StoredDefinition,
    source_name: str,
    routes: tuple[TableRoute, ...],
    *,
    debezium: bool = False,
) -> Problem | None:
    """Return why a target table that took rows before no longer fits, in the words of `check`; None if
    it seems to fit.

    `debezium`: see `explain_missing_target`.
    """
    routed = resolve_route(routes, source_name, stored.table.db, stored.table.name)
    if routed is None or routed.topic is not None:
        return None
    misfit = find_table_misfit(session, stored, source_name, routes)
    if misfit is None and session.read_table(routed.schema, routed.table) is None:
        return explain_missing_target(routed, stored.table, debezium=debezium)
    return misfit
