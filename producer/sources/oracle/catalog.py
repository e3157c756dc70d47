"""Queries Oracle's catalog; producer/sources/oracle/table_checks.py interprets the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from producer.sources.oracle import sql
from producer.sources.oracle.segments import TableSegments
from producer.sources.oracle.session import OracleSession, ResultRows
from producer.sources.oracle.table_checks import Constraint, LoggedTable, MlogOptions, judge_oracle_table
from producer.sources.oracle.types import OracleColumn
from producer.sources.survey import MISSING, ExaminedTable
from schemas.io.mysql_catalog import is_selected
from schemas.wire.records import Identity

TableName = tuple[str, str]
_AT_ONCE = 100
"""Tables in one query; each takes two binds."""


class OracleCatalog:
    """Oracle's catalog through one session. All methods raise TransientSourceError, SourceRefusedError."""

    def __init__(self, session: OracleSession) -> None:
        self._session = session

    def read_identity(self) -> Identity:
        """Return the identity of the database.

        A copy, or a database that was opened with RESETLOGS, has another one.
        """
        ((number, resetlogs, container),) = self._session.fetch_rows(sql.IDENTITY)
        return Identity(
            server_uuid=f"{number}/{resetlogs}/{container}",
            server_id=int(number),
            version=self.read_version(),
            gtid_set=None,
        )

    def read_version(self) -> str:
        rows = self._session.fetch_rows(sql.SELECT_VERSION)
        return str(rows[0][0]) if rows else ""

    def count_instances(self) -> int:
        """Return how many instances (RAC) have the database open."""
        ((count,),) = self._session.fetch_rows(sql.INSTANCES)
        return int(count)

    def read_server_time(self) -> tuple[int, str]:
        """Return the server's time in ms since 1970, and a time two seconds before in the form of
        `TableSegments.ddl`.
        """
        ((text, fresh),) = self._session.fetch_rows(sql.SELECT_TIME_PAIR)
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000), fresh

    def list_table_names(self, patterns: Sequence[str]) -> list[TableName]:
        """Return the tables that patterns select, without logs and other internal tables."""
        logs = {log.log for log in self.list_logs().values()}
        found = {(owner, table) for owner, table in self._session.fetch_rows(sql.SELECT_TABLES)} - logs
        return sorted(
            name for name in found if is_selected(patterns, *name) and not _is_internal_table(name[1])
        )

    def list_logs(self) -> dict[TableName, MlogOptions]:
        """Return every log that the user may see, by its table."""
        found = {}
        for owner, table, log, key, sequence, new, scn, staging in self._session.fetch_rows(sql.LOGS):
            yes = (each == "YES" for each in (key, sequence, new, scn, staging))
            found[owner, table] = MlogOptions((owner, table), log, *yes)
        return found

    def examine_tables(
        self, names: Collection[TableName]
    ) -> dict[TableName, tuple[ExaminedTable, LoggedTable | None]]:
        """Return the definition of each table, and whether it can be captured."""
        logs, found = self.list_logs(), dict[TableName, tuple[ExaminedTable, LoggedTable | None]]()
        several = bool(names) and self.count_instances() > 1
        for group in _split_into_groups(names):
            own = [logs[name].log for name in group if name in logs]
            columns = self._read_columns([*group, *own])
            constraints, views, policies = (
                self._read_constraints(group),
                self.list_refreshed_views(group),
                self._read_policies(group),
            )
            for name in group:
                log, others = logs.get(name), views.get(name, ())
                found[name] = judge_oracle_table(
                    name, columns, constraints[name], log, others, policies=policies.get(name, ()),
                    several=several
                )  # fmt: skip
        return {name: found.get(name, (MISSING, None)) for name in names}

    def read_segments(
        self, names: Collection[TableName], logs: dict[TableName, MlogOptions]
    ) -> dict[TableName, TableSegments]:
        """Return the segments of tables and their logs.

        A table that is missing, or has no log any more, is left out.
        """
        found: dict[TableName, TableSegments] = {}
        for group in _split_into_groups([name for name in names if name in logs]):
            of_logs = {logs[name].log: name for name in group}
            objects = self._session.fetch_rows(*sql.select_objects([*group, *of_logs]))
            whole = {(row[0], row[1]): row for row in objects if row[2] == "TABLE"}
            ids = {name: int(row[3]) for name, row in whole.items()}
            loads = self._read_direct_loads([ids[name] for name in group if name in ids])
            for name in group:
                if name in ids and (log := logs[name].log) in ids:
                    own = [row for row in objects if (row[0], row[1]) == name]
                    found[name] = _build_segments(own, whole[name], whole[log], loads.get(ids[name], ""))
        return found

    def estimate_rows(self, name: TableName) -> int | None:
        rows = self._session.fetch_rows(*sql.select_row_estimate(name))
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    def list_refreshed_views(self, names: Collection[TableName]) -> dict[TableName, list[str]]:
        """Return the materialized views that are refreshed from the logs of tables, registered or not,
        by table.
        """
        found: dict[TableName, list[str]] = defaultdict(list)
        for group in _split_into_groups(names):
            for owner, table, view, number in self._session.fetch_rows(*sql.select_refreshed_views(group)):
                found[owner, table].append(view or f"MVIEW_ID {number}, which is not registered")
        return dict(found)

    # --- internals

    def _read_columns(self, names: Sequence[TableName]) -> dict[TableName, list[OracleColumn]]:
        found: dict[TableName, list[OracleColumn]] = defaultdict(list)
        for (
            owner,
            table,
            name,
            type_,
            size,
            chars,
            precision,
            scale,
            null,
            virtual,
            default,
        ) in self._session.fetch_rows(*sql.select_columns(names)):
            found[owner, table].append(
                OracleColumn(
                    name, type_, int(size or 0), int(chars or 0), _parse_int(precision), _parse_int(scale),
                    null == "Y", virtual == "YES", bool(default),
                )
            )  # fmt: skip
        return found

    def _read_constraints(self, names: Sequence[TableName]) -> dict[TableName, list[Constraint]]:
        parts: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
        rows: ResultRows = [
            *self._session.fetch_rows(*sql.select_constraints(names)),
            *self._session.fetch_rows(*sql.select_indexes(names)),
        ]
        for owner, table, name, kind, column in rows:
            parts[owner, table, name, kind] += [column]
        found: dict[TableName, list[Constraint]] = defaultdict(list)
        for (owner, table, name, kind), columns in parts.items():
            found[owner, table].append(Constraint(name, kind, tuple(dict.fromkeys(columns))))
        return found

    def _read_policies(self, names: Sequence[TableName]) -> dict[TableName, list[str]]:
        found: dict[TableName, list[str]] = defaultdict(list)
        for owner, table, policy in self._session.fetch_rows(*sql.select_policies(names)):
            found[owner, table].append(policy)
        return dict(found)

    def _read_direct_loads(self, ids: Sequence[int]) -> dict[int, str]:
        return (
            {int(id_): scn for id_, scn in self._session.fetch_rows(*sql.select_direct_loads(ids))}
            if ids
            else {}
        )


def _build_segments(
    own: ResultRows, table: tuple[Any, ...], log: tuple[Any, ...], load: str
) -> TableSegments:
    """Build a table's segments from rows of `sql.select_objects`. `own`: the table and its partitions.

    `table`, `log`: the two themselves.
    """
    kept = [row for row in own if row[4] is not None]
    times = frozenset(row[5] for row in [*own, log])
    return TableSegments(
        int(table[3]), frozenset(int(row[4]) for row in kept), max(times), int(log[3]), load,
        f"{table[6]}/{log[6]}", came=frozenset(int(row[4]) for row in kept if int(row[4]) != int(row[3])),
        parts=frozenset((int(row[4]), row[5]) for row in kept if row[2] != "TABLE"), times=times,
    )  # fmt: skip


def _split_into_groups(names: Collection[TableName]) -> Iterator[list[TableName]]:
    listed = sorted(names)
    for at in range(0, len(listed), _AT_ONCE):
        yield listed[at : at + _AT_ONCE]


def _parse_int(value: object) -> int | None:
    return None if value is None else int(str(value))


def _is_internal_table(table: str) -> bool:
    return table.startswith(("MLOG$_", "RUPD$_", "ST$_", "BIN$"))
