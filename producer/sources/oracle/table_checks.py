"""The findings of Oracle's catalog about tables and their logs: whether a table can be captured, and whether
its columns are unchanged. Pure.

A table can be captured if it has a primary key and a log WITH PRIMARY KEY, SEQUENCE, all its other
columns, INCLUDING NEW VALUES. Then every image in the log is complete, except for columns that no log
can hold (LOBs), which are read from the table. A log with keys only is enough if the table has no other
unique index; the whole row is then read from the table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from producer.sources.oracle.sql import TableName, quote_names
from producer.sources.oracle.types import OracleColumn, build_column_form, can_be_logged
from producer.sources.survey import MISSING, ExaminedTable, refuse_table
from schemas.errors import UnsupportedTypeError
from schemas.findings import add_exclusion
from schemas.problems import Problem
from schemas.table.model import Column, IndexPart, Table, UniqueIndex

TableColumns = Mapping[TableName, Sequence[OracleColumn]]
XID, COMMIT_SCN = "XID$$", "COMMIT_SCN"
_OWN = {"SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$"}
"""Columns without which a log cannot be interpreted."""


class MlogOptions(NamedTuple):
    """A row of ALL_MVIEW_LOGS. `table`: the log's own name; its owner is the table's owner."""

    name: TableName
    table: str
    primary_key: bool
    sequence: bool
    new_values: bool
    commit_scn: bool
    staging: bool

    @property
    def log(self) -> TableName:
        return self.name[0], self.table


class Constraint(NamedTuple):
    """A primary key ("P"), or a unique constraint or index ("U")."""

    name: str
    kind: str
    columns: tuple[str, ...]


class LoggedTable(NamedTuple):
    """A table that can be captured, with its log.

    `extra`: which of XID$$ and COMMIT_SCN the log has. `columns`: those of the table's definition.
    `unlogged`: the columns that the log does not have; their values are read from the present row after
    the log. `keys_only`: the unlogged columns are all but the key, and the log's rows identify the
    changed row only.
    """

    table: Table
    log: TableName
    extra: frozenset[str]
    columns: tuple[OracleColumn, ...]
    unlogged: frozenset[str] = frozenset()
    keys_only: bool = False

    @property
    def by_commit(self) -> bool:
        """True if the log puts transactions in the order of their commits, from any instance."""
        return COMMIT_SCN in self.extra

    @property
    def statement_by_commit(self) -> str:
        """The statement that creates a log with commit SCNs."""
        required = _list_required_columns(self.columns, self.table.key.columns)
        return build_log_statement((self.table.db, self.table.name), required, ", COMMIT SCN")

    @property
    def remark(self) -> tuple[str, str] | None:
        """Advice for users about how the table is read, and the remedy if that does not suit them.

        None: nothing.
        """
        if not self.unlogged:
            return None
        if self.keys_only:
            rest = [each.name for each in self.columns if each.name in self.unlogged and can_be_logged(each)]
            seen = (
                f"its log {self.log[1]} has keys only, so capture reads the current row at each poll: "
                "several changes between two polls become one event, without the row before the change"
            )
            statement = build_log_statement((self.table.db, self.table.name), rest)
            return seen, f"no action if that is acceptable; otherwise {statement} in its place"
        lobs = ", ".join(each.name for each in self.columns if each.name in self.unlogged)
        seen = (
            f"materialized view logs do not contain {lobs}, so capture reads their current values at the "
            "poll: an event may have a later value, and has no earlier one; a change through a locator "
            "(DBMS_LOB.WRITE) may leave no row in the log, and is then not captured"
        )
        remedy = "no action if that is acceptable; otherwise exclude the table"
        return seen, add_exclusion(remedy, self.table.db, self.table.name)


def judge_oracle_table(
    name: TableName,
    columns: TableColumns,
    constraints: Sequence[Constraint],
    log: MlogOptions | None,
    views: Sequence[str] = (),
    *,
    policies: Sequence[str] = (),
    several: bool = False,
) -> tuple[ExaminedTable, LoggedTable | None]:
    """Return whether a table can be captured, and its columns and log if it can.

    `columns`: by table, also those of the log. `views`: materialized views that are refreshed from the
    log. `policies`: row level policies that hide rows from the user. `several`: several instances have
    the database open.
    """
    place, own = f"table {name[0]}.{name[1]}", columns.get(name, ())
    if not own:
        return MISSING, None
    if policies:
        seen = (
            f"row level policies ({', '.join(sorted(policies))}) may hide rows of it, which would be "
            "missing or taken for deleted"
        )
        remedy = "GRANT EXEMPT ACCESS POLICY to rowlock's user, or exclude the table"
        return refuse_table(name, Problem(f"{place}: {seen}", remedy)), None
    kept = [column for column in own if not column.virtual]
    try:
        built = _build_columns(kept)
        key, unique = _build_keys(name, constraints, kept)
    except UnsupportedTypeError as error:
        return refuse_table(name, Problem(f"{place}: {error}", "exclude the table, or change it")), None
    refused = log_refusal(name, kept, key.columns, log=log, all_columns=columns, views=views, unique=unique)
    if log is None or refused is not None:
        return refuse_table(name, refused.add_place(place)) if refused else MISSING, None
    table = Table(db=name[0], name=name[1], columns=built, key=key, unique=unique)
    extra, unlogged = _find_extra_columns(log, columns), _find_unlogged_columns(log, kept, columns)
    keys_only = bool(unlogged) and _has_keys_only(log, kept, key.columns, columns)
    if several and COMMIT_SCN not in extra:
        statement = build_log_statement(name, _list_required_columns(kept, key.columns), ", COMMIT SCN")
        what = f"{place}: {explain_unordered_log(log.table)}"
        return refuse_table(name, Problem(what, f"{statement} in its place")), None
    return ExaminedTable(table, None), LoggedTable(table, log.log, extra, tuple(kept), unlogged, keys_only)


def _list_required_columns(columns: Sequence[OracleColumn], key: Collection[str]) -> list[str]:
    return [column.name for column in columns if column.name not in key and can_be_logged(column)]


def _find_unlogged_columns(
    log: MlogOptions, columns: Sequence[OracleColumn], all_columns: TableColumns
) -> frozenset[str]:
    names = {column.name for column in all_columns.get(log.log, ())}
    return frozenset(column.name for column in columns if column.name not in names)


def _has_keys_only(
    log: MlogOptions, columns: Sequence[OracleColumn], key: Collection[str], all_columns: TableColumns
) -> bool:
    """Return whether a log was created without any column.

    A log without only some columns was not extended when the table was altered.
    """
    unlogged = _find_unlogged_columns(log, columns, all_columns)
    others = {column.name for column in columns} - set(key)
    return unlogged == others and (bool(_list_required_columns(columns, key)) or not log.new_values)


def _build_columns(columns: Sequence[OracleColumn]) -> tuple[Column, ...]:
    return tuple(
        Column(name=column.name, type=build_column_form(column).type, nullable=column.nullable)
        for column in columns
    )


def _build_keys(
    name: TableName, constraints: Sequence[Constraint], columns: Sequence[OracleColumn]
) -> tuple[UniqueIndex, tuple[UniqueIndex, ...]]:
    """Return the primary key and all other unique indexes over plain columns.

    Indexes over expressions are enforced by the source alone.
    """
    by_name = {column.name: column for column in columns}
    primary = next((each for each in constraints if each.kind == "P"), None)
    if primary is None:
        raise UnsupportedTypeError("it has no primary key, by which its log is read")
    for part in primary.columns:
        if build_column_form(by_name[part]).bind is None:
            raise UnsupportedTypeError(
                f"column {part} of its primary key has type {by_name[part].declared}, by "
                "which it cannot be read in chunks"
            )
    found: dict[tuple[str, ...], UniqueIndex] = {}
    for each in sorted(constraints):
        if each.columns != primary.columns and by_name.keys() >= set(each.columns):
            found.setdefault(each.columns, _build_index(each))
    return _build_index(primary), tuple(found.values())


def _build_index(constraint: Constraint) -> UniqueIndex:
    return UniqueIndex(
        name=constraint.name, parts=tuple(IndexPart(column=name) for name in constraint.columns)
    )


def _find_extra_columns(log: MlogOptions, columns: TableColumns) -> frozenset[str]:
    has_xid = any(column.name == XID for column in columns.get(log.log, ()))
    return frozenset([*([XID] if has_xid else []), *([COMMIT_SCN] if has_xid and log.commit_scn else [])])


def log_refusal(
    name: TableName,
    columns: Sequence[OracleColumn],
    key: Collection[str],
    *,
    log: MlogOptions | None,
    all_columns: TableColumns,
    views: Sequence[str],
    unique: Sequence[UniqueIndex] = (),
) -> Problem | None:
    """Return why the log is not suitable; None: it is."""
    statement = build_log_statement(name, _list_required_columns(columns, key))
    if log is None:
        return Problem("it has no materialized view log, or the user may not see it", statement)
    if log.staging:
        return Problem(
            f"its log {log.table} is a staging log (FOR SYNCHRONOUS REFRESH), which is not read, "
            "and a table has one log only",
            "exclude the table, or drop that log",
        )
    names = {column.name for column in all_columns.get(log.log, ())}
    keys_only = _has_keys_only(log, columns, key, all_columns)
    if keys_only and unique:
        return Problem(
            f"its log {log.table} has keys only, without the values of its unique index "
            f"{unique[0].name} before a change",
            f"{statement} in its place",
        )
    missing = [each for each in _list_required_columns(columns, key) if each not in names and not keys_only]
    missing += [each for each in key if each not in names]
    lacks = [
        text for there, text in (
            (log.primary_key, "PRIMARY KEY"), (log.sequence and names >= _OWN, "SEQUENCE"),
            (log.new_values or keys_only, "INCLUDING NEW VALUES"),
            (not missing, f"column {', '.join(missing)}"),
        ) if not there
    ]  # fmt: skip
    if lacks:
        return Problem(f"its log {log.table} lacks {', '.join(lacks)}", f"{statement} in its place")
    if log.commit_scn and XID not in names:
        return Problem(
            f"its log {log.table} is WITH COMMIT SCN and has no {XID}", f"{statement} in its place"
        )
    if views:
        return Problem(
            explain_shared_log(views),
            "drop them, or exclude the table (a log that is shared is not supported yet)",
        )
    return None


def explain_shared_log(views: Sequence[str]) -> str:
    """Return the problem of a log from which materialized views are refreshed."""
    listed = ", ".join(sorted(views))
    return (
        f"other materialized views use its log too ({listed}): their refresh purges rows that capture has "
        "not read, and misses rows that capture deletes"
    )


def explain_unordered_log(log: str) -> str:
    """Return the problem of a log without commit SCNs when several instances have the database open."""
    return f"several instances (RAC) write its log {log}, and only commit SCNs put their rows in order"


def build_log_statement(name: TableName, columns: Sequence[str], more: str = "") -> str:
    """Return the statement that creates the log that capture needs."""
    listed = f" ({', '.join(quote_names(each) for each in columns)})" if columns else ""
    return (
        f"CREATE MATERIALIZED VIEW LOG ON {quote_names(*name)} WITH PRIMARY KEY, "
        f"SEQUENCE{more}{listed} INCLUDING NEW VALUES"
    )


def is_followable(before: LoggedTable, now: LoggedTable) -> bool:
    """Return whether rows of the log have the same meaning under both definitions, if no statement on
    columns came between them.

    After a statement on columns nothing is proven, even if the columns look the same: rows of the log
    lack the values of an added column, and a column that became longer or looks unchanged may have been
    dropped and added again, or renamed from another. Changes of unique indexes and of nullability are
    followed.
    """
    same = before.table.key == now.table.key and before.log == now.log and before.unlogged == now.unlogged
    return (
        same and before.keys_only == now.keys_only and _list_value_columns(before) == _list_value_columns(now)
    )


def _list_value_columns(logged: LoggedTable) -> list[OracleColumn]:
    """Return the columns reduced to what affects their values."""
    return [each._replace(nullable=True, has_default=False) for each in logged.columns]
