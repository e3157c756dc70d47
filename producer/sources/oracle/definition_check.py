"""The result of a look at the catalog for a followed table: nothing, a statement that can be followed,
or a stop. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from producer.errors import TableStoppedError
from producer.sources.oracle.following import FollowedTable
from producer.sources.oracle.segments import TableSegments, explain_replaced_rows, may_have_other_columns
from producer.sources.oracle.table_checks import (
    LoggedTable,
    explain_shared_log,
    explain_unordered_log,
    is_followable,
)
from producer.sources.survey import MISSING, ExaminedTable
from producer.statements.judgement import StatementVerdict
from producer.stops import build_unseen_stop
from producer.tables import TableName, format_table_name
from schemas.findings import format_copy_remedy
from schemas.problems import Problem
from schemas.table.model import Table, is_same_definition


class CatalogLook(NamedTuple):
    """The result of a look at the catalog.

    `fresh`: a time shortly before the look, in the form of `TableSegments.ddl`. `new`: tables to follow.
    `segments`: of existing tables with logs. `surveyed`: tables that may have changed. `views`:
    refreshed from the logs of followed tables, by table. `several`: several instances have the database
    open.
    """

    fresh: str
    new: Sequence[TableName]
    segments: Mapping[TableName, TableSegments]
    surveyed: Mapping[TableName, tuple[ExaminedTable, LoggedTable | None]]
    views: Mapping[TableName, Sequence[str]]
    several: bool


class Altered(NamedTuple):
    """The definition has changed, and no row has."""

    sql: str
    verdict: StatementVerdict


def needs_close_look(table: FollowedTable, now: TableSegments | None) -> bool:
    """Return whether the table may have changed: by its segments, or because it was not examined yet.

    The time of its last DDL is in whole seconds, so a second statement may have the same time as the
    first. While that is possible, the table is examined closely (`FollowedTable.must_examine`).
    """
    return now is None or table.logged is None or table.must_examine or now != table.segments


def judge_followed_table(
    name: TableName, table: FollowedTable, look: CatalogLook, defined: Table | None
) -> TableStoppedError | Altered | None:
    """Return the consequence for a table; `table` is updated unless it stops.

    `defined`: its definition in the topic at the start.
    """
    now = look.segments.get(name)
    survey, logged = look.surveyed.get(name, (None, table.logged))
    if survey == MISSING:
        return build_unseen_stop(name)
    if now is not None and (what := explain_replaced_rows(table.segments, now)) is not None:
        return _build_stop(
            name, "rows-replaced", f"{format_table_name(name)} {what}, which its log does not show"
        )
    if (unfit := _find_sharing_stop(name, table, look, logged or table.logged)) is not None:
        return unfit
    if logged is None or now is None:
        missing = Problem(f"the log of {format_table_name(name)} no longer exists")
        unfit_now = survey.problem or missing if survey is not None else missing
        return _build_stop(name, "unfit", unfit_now.what, unfit_now.action)
    before, altered = table.logged, may_have_other_columns(table.segments, now)
    table.accept_look(now, logged, look.fresh)
    if before is None:
        if altered or defined is None or not is_same_definition(defined, logged.table):
            return _build_stop(
                name, "definition", f"{format_table_name(name)} was altered while it was not captured"
            )
        return None
    if altered or not is_followable(before, logged):
        reason = (
            f"{format_table_name(name)} was altered, and it is unknown which rows of its materialized "
            "view log are older than the change"
        )
        return _build_stop(name, "definition", reason)
    if is_same_definition(before.table, logged.table):
        return None
    return Altered(
        f"ALTER TABLE {format_table_name(name)}, seen in the catalog",
        StatementVerdict(name, "kept", "changed"),
    )


def _find_sharing_stop(
    name: TableName, table: FollowedTable, look: CatalogLook, logged: LoggedTable | None
) -> TableStoppedError | None:
    """Return the stop of a table with a log that others use, or with rows that cannot be ordered or may
    be published already; None: none.
    """
    if views := look.views.get(name):
        return _build_stop(
            name, "log", f"{format_table_name(name)}: {explain_shared_log(views)}", "drop them"
        )
    if look.several and logged is not None and not logged.by_commit:
        reason = f"{format_table_name(name)}: {explain_unordered_log(logged.log[1])}"
        return _build_stop(name, "log", reason, f"{logged.statement_by_commit} in its place")
    if table.unsure:
        reason = (
            f"events of {format_table_name(name)} that capture wrote earlier were deleted from its "
            "topic (retention), so capture cannot tell which rows of the materialized view log it "
            "has published already"
        )
        return _build_stop(name, "log", reason)
    return None


def _build_stop(name: TableName, cause: str, reason: str, remedy: str = "") -> TableStoppedError:
    """Return the stop of a table. `remedy`: what to do before the table is copied."""
    copy_remedy = format_copy_remedy(*name)
    return TableStoppedError(
        frozenset([name]), cause, reason, f"{remedy}, then {copy_remedy}" if remedy else copy_remedy
    )
