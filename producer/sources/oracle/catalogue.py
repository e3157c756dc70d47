"""The facts of Oracle's catalogue on tables and their logs: whether a table can be captured, and whether it is the same by its columns. Pure.

A table is captured when it has a primary key and a log WITH PRIMARY KEY, SEQUENCE, all its other columns, INCLUDING NEW VALUES: so every
image in the log is whole, but for columns that no log can hold (LOBs), which are read from the table. A log that has keys only does, too, where
the table has no other unique index: the whole row is read from the table then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from producer.sources.oracle.sql import TableName, quote_names
from producer.sources.oracle.types import OracleColumn, build_column_form, can_be_logged
from producer.sources.survey import MISSING, ExaminedTable
from schemas.errors import UnsupportedTypeError
from schemas.table.model import Column, IndexPart, Table, UniqueIndex

TableColumns = Mapping[TableName, Sequence[OracleColumn]]
XID, COMMIT_SCN = "XID$$", "COMMIT_SCN"
_OWN = {"SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$"}
"""Columns of a log without which nothing can be told."""


class MlogOptions(NamedTuple):
    """A row of ALL_MVIEW_LOGS. `table`: the log's own name, of the table's owner."""

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
    """A table that can be captured. `extra`: which of XID$$ and COMMIT_SCN its log has. `columns`: of the table's definition.

    `unlogged`: the columns that its log does not have, whose values are read from the row as it is when the log has been read; `keys_only`:
    these are all columns but the key, and the log's rows say no more than which row was changed.
    """

    table: Table
    log: TableName
    extra: frozenset[str]
    columns: tuple[OracleColumn, ...]
    unlogged: frozenset[str] = frozenset()
    keys_only: bool = False

    @property
    def by_commit(self) -> bool:
        """Tell whether its log puts transactions in the order of their commits, whoever wrote them."""
        return COMMIT_SCN in self.extra

    @property
    def wanted_by_commit(self) -> str:
        """Return the statement that makes a log which does."""
        wanted = _list_required_columns(self.columns, self.table.key.columns)
        return build_log_statement((self.table.db, self.table.name), wanted, ", COMMIT SCN")

    @property
    def remark(self) -> tuple[str, str] | None:
        """Return what a person should know of how the table is read, and what to do where that is not wanted."""
        if not self.unlogged:
            return None
        if self.keys_only:
            rest = [each.name for each in self.columns if each.name in self.unlogged and can_be_logged(each)]
            seen = (
                f"its log {self.log[1]} has keys only: rows are read as they are by then, so several changes between two polls are one event, "
                "without the row before"
            )
            wanted = build_log_statement((self.table.db, self.table.name), rest)
            return seen, f"nothing, where that will do; else {wanted} in its place"
        lobs = ", ".join(each.name for each in self.columns if each.name in self.unlogged)
        seen = (
            f"no log holds {lobs}: they are read as they are by then, so an event may have a later value of them, and has none of before; a change "
            "through a locator (DBMS_LOB.WRITE) may leave no row in the log, and is not seen then"
        )
        return seen, "nothing, where that will do; else exclude the table"


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
    """Say whether a table can be captured, and as what.

    `columns`: also those of its log. `views`: that are refreshed from the log. `policies`: that hide rows from the user. `several`: instances
    have the database open.
    """
    place, own = f"table {name[0]}.{name[1]}", columns.get(name, ())
    if not own:
        return MISSING, None
    if policies:
        seen = f"row level policies ({', '.join(sorted(policies))}) may hide rows of it, which would be missing or taken for deleted"
        return ExaminedTable(
            None, f"{place}: {seen}: GRANT EXEMPT ACCESS POLICY to rowlock's user, or exclude the table"
        ), None
    kept = [column for column in own if not column.virtual]
    try:
        built = _build_columns(kept)
        key, unique = _build_keys(name, constraints, kept)
    except UnsupportedTypeError as error:
        return ExaminedTable(None, f"{place}: {error}: exclude the table, or change it"), None
    why = log_refusal(name, kept, key.columns, log=log, all_columns=columns, views=views, unique=unique)
    if why is not None or log is None:
        return ExaminedTable(None, f"{place}: {why}"), None
    table = Table(db=name[0], name=name[1], columns=built, key=key, unique=unique)
    extra, unlogged = _find_extra_columns(log, columns), _find_unlogged_columns(log, kept, columns)
    keys_only = bool(unlogged) and _has_keys_only(log, kept, key.columns, columns)
    if several and COMMIT_SCN not in extra:
        return ExaminedTable(
            None,
            f"{place}: {explain_unordered_log(log.table)}: {build_log_statement(name, _list_required_columns(kept, key.columns), ', COMMIT SCN')} in its place",
        ), None
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
    """Tell whether a log was made without any column: one that lacks some was forgotten when the table was altered."""
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
    """Return the primary key, and all other unique indexes over plain columns (those over expressions are the source's own business)."""
    by_name = {column.name: column for column in columns}
    primary = next((each for each in constraints if each.kind == "P"), None)
    if primary is None:
        raise UnsupportedTypeError("it has no primary key, by which its log is read")
    for part in primary.columns:
        if build_column_form(by_name[part]).bind is None:
            raise UnsupportedTypeError(
                f"column {part} of its primary key has type {by_name[part].declared}, by which it cannot be read in chunks"
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
) -> str | None:
    """Return why the log does not do ("…seen…: what to do"); None: it does."""
    wanted = build_log_statement(name, _list_required_columns(columns, key))
    if log is None:
        return f"it has no materialized view log, or the user may not see it: {wanted}"
    if log.staging:
        return (
            f"its log {log.table} is a staging log (FOR SYNCHRONOUS REFRESH), which is not read, and a table has one log only: "
            "exclude the table, or drop that log"
        )
    names = {column.name for column in all_columns.get(log.log, ())}
    keys_only = _has_keys_only(log, columns, key, all_columns)
    if keys_only and unique:
        return (
            f"its log {log.table} has keys only, which do not tell the values of its unique index {unique[0].name} that a change gives up: "
            f"{wanted} in its place"
        )
    missing = [each for each in _list_required_columns(columns, key) if each not in names and not keys_only]
    missing += [each for each in key if each not in names]
    lacks = [
        text for there, text in (
            (log.primary_key, "PRIMARY KEY"), (log.sequence and names >= _OWN, "SEQUENCE"),
            (log.new_values or keys_only, "INCLUDING NEW VALUES"), (not missing, f"column {', '.join(missing)}"),
        ) if not there
    ]  # fmt: skip
    if lacks:
        return f"its log {log.table} lacks {', '.join(lacks)}: {wanted} in its place"
    if log.commit_scn and XID not in names:
        return f"its log {log.table} is WITH COMMIT SCN and has no {XID}: {wanted} in its place"
    if views:
        return f"{explain_shared_log(views)}: drop them, or exclude the table (a log that is shared is not supported yet)"
    return None


def explain_shared_log(views: Sequence[str]) -> str:
    """Return what is wrong with a log from which materialized views are refreshed."""
    listed = ", ".join(sorted(views))
    return (
        f"materialized views are refreshed from its log too ({listed}), whose refresh purges what capture has not read, and which would miss what "
        "capture deletes"
    )


def explain_unordered_log(log: str) -> str:
    """Return what is wrong with a log without commit SCNs where several instances have the database open."""
    return f"several instances (RAC) write its log {log}, and only commit SCNs put their rows in order"


def build_log_statement(name: TableName, columns: Sequence[str], more: str = "") -> str:
    """Return the statement that makes the log which capture wants."""
    listed = f" ({', '.join(quote_names(each) for each in columns)})" if columns else ""
    return f"CREATE MATERIALIZED VIEW LOG ON {quote_names(*name)} WITH PRIMARY KEY, SEQUENCE{more}{listed} INCLUDING NEW VALUES"


def is_followable(before: LoggedTable, now: LoggedTable) -> bool:
    """Tell whether rows of the log mean the same under both definitions, of which no statement on columns stands between.

    Behind such a statement nothing is proven, whatever the columns look like: of a column that came, rows of the log lack values that it has
    by then; one that got longer, and one that has not changed, may have been dropped and added again, or have been given another's name.
    Another unique index is followed, and another nullability.
    """
    same = before.table.key == now.table.key and before.log == now.log and before.unlogged == now.unlogged
    return (
        same and before.keys_only == now.keys_only and _list_value_columns(before) == _list_value_columns(now)
    )


def _list_value_columns(logged: LoggedTable) -> list[OracleColumn]:
    """Return the columns by what matters to their values."""
    return [each._replace(nullable=True, has_default=False) for each in logged.columns]
