"""Oracle for the command line: `SourceView` of producer/sources/source_view.py, which documents the
methods."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from producer.errors import SourceRefusedError
from producer.sources.oracle import sql
from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.forms import (
    bind_key,
    list_column_expressions,
    list_key_binds,
    make_row_converter,
)
from producer.sources.oracle.mlog import has_whole_poll_between
from producer.sources.oracle.session import OracleDriver, OracleSession, load_oracle_driver
from producer.sources.oracle.table_checks import LoggedTable, MlogOptions
from producer.sources.survey import ExaminedTable
from producer.tables import TableName, format_table_name
from schemas.config.model import SourceConfig
from schemas.io.oracle_connection import read_oracle_expiry
from schemas.problems import Problem
from schemas.table.model import Key, Row, Table

COUNTED = 1_000_000
"""Rows of a log up to which they are counted, as it has no index."""
_KEYS = 200
"""Keys of one statement."""


class OracleSourceView:
    """Oracle for the command line. Definitions are read once, for one command."""

    def __init__(self, source: SourceConfig, driver: OracleDriver) -> None:
        self._source = source
        self._session = OracleSession(driver)
        self._catalog = OracleCatalog(self._session)
        self._logged: dict[TableName, LoggedTable] = {}

    def close(self) -> None:
        self._session.close()

    def list_tables(self) -> dict[TableName, ExaminedTable]:
        surveyed = self._catalog.examine_tables(self._catalog.list_table_names(self._source.tables))
        return {name: found for name, (found, _) in surveyed.items()}

    def fetch_rows(self, table: Table, after: Key | None, limit: int) -> list[Row]:
        logged = self._get_logged_table(table)
        binds = sql.build_chunk_binds(bind_key(logged, after)) if after is not None else []
        statement = sql.build_chunk_select(
            (table.db, table.name), list_column_expressions(logged), list_key_binds(logged), limit, None,
            has_lower_bound=after is not None
        )  # fmt: skip
        return list(map(make_row_converter(logged), self._session.fetch_rows(statement, binds)))

    def fetch_keys(self, table: Table, keys: Sequence[Key]) -> list[Row]:
        logged, found = self._get_logged_table(table), list[Row]()
        for at in range(0, len(keys), _KEYS):
            some = keys[at : at + _KEYS]
            statement = sql.select_rows_by_keys(
                (table.db, table.name), list_column_expressions(logged), list_key_binds(logged), len(some)
            )
            binds = [value for key in some for value in bind_key(logged, key)]
            found += map(make_row_converter(logged), self._session.fetch_rows(statement, binds))
        return found

    def estimate_sizes(self, names: Sequence[TableName]) -> dict[TableName, tuple[int, int]]:
        found = {}
        for name in names:
            for rows, bytes_ in self._session.fetch_rows(*sql.select_size_estimate(name)):
                found[name] = int(rows or 0), int(rows or 0) * int(bytes_ or 0)
        return found

    def read_certificate_expiry(self) -> datetime | None:
        return read_oracle_expiry(self._source)

    def log_rows(self) -> int:
        return sum(
            int(self._session.fetch_rows(*sql.select_log_count(log.log, COUNTED))[0][0])
            for log in self._read_selected_logs().values()
        )

    def log_ends(self) -> Mapping[TableName, int]:
        found = {}
        for name, log in self._read_selected_logs().items():
            ((end,),) = self._session.fetch_rows(*sql.select_log_end(log.log))
            if end is not None:
                found[name] = int(end)
        return found

    def list_unread_tables(
        self, ends: Mapping[TableName, int], left_out: Collection[TableName]
    ) -> list[TableName]:
        logs = self._read_selected_logs()
        unread = [name for name in ends if name in logs and name not in left_out]
        return [
            name
            for name in unread
            if self._session.fetch_rows(*sql.select_log_until(logs[name].log, ends[name]))
        ]

    def ends_by(self, before: int, now: int) -> bool:
        return has_whole_poll_between(before, now)

    # --- internals

    def _read_selected_logs(self) -> dict[TableName, MlogOptions]:
        """Return the logs of the selected tables that can be captured; capture reads no others."""
        logs = self._catalog.list_logs()
        return {
            name: logs[name]
            for name, survey in self.list_tables().items()
            if survey.table is not None and name in logs
        }

    def _get_logged_table(self, table: Table) -> LoggedTable:
        """Return how the columns of `table` are read, which may be only some of the table's."""
        name = (table.db, table.name)
        if name not in self._logged:
            survey, logged = self._catalog.examine_tables([name])[name]
            if logged is None:
                missing = Problem(f"table {format_table_name(name)} does not exist", "verify again")
                raise SourceRefusedError.from_problem(survey.problem or missing)
            self._logged[name] = logged
        logged = self._logged[name]
        by_name = {column.name: column for column in logged.columns}
        if lacking := [each for each in table.column_names if each not in by_name]:
            raise SourceRefusedError(
                f"table {format_table_name(name)} has no column {', '.join(lacking)} now", "verify again"
            )
        return logged._replace(table=table, columns=tuple(by_name[each] for each in table.column_names))


def make_oracle_view(source: SourceConfig, _name: str) -> OracleSourceView:
    """Return a view that connects when it is used. Raises SourceRefusedError if the driver is missing."""
    return OracleSourceView(source, load_oracle_driver(source))
