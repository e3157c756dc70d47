"""Reads the logs of followed tables, and examines the tables in the catalog: the two halves of a poll."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from producer.errors import SourceRefusedError, TableStoppedError
from producer.sources.changes import Barrier, TransactionHeader
from producer.sources.oracle import sql
from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.definition_check import CatalogLook, judge_followed_table, needs_close_look
from producer.sources.oracle.following import FollowedTables
from producer.sources.oracle.forms import (
    bind_key,
    list_column_expressions,
    list_key_binds,
    list_log_expressions,
    make_key_extractor,
    make_log_row_converter,
    make_row_converter,
)
from producer.sources.oracle.mlog import (
    LogBrokenError,
    LoggedChange,
    LogPlace,
    LogRow,
    find_published_row,
    list_finally_deleted_keys,
    merge_log_rows,
    parse_log_rows,
    with_current,
    with_kept,
)
from producer.sources.oracle.rows import OracleRows
from producer.sources.oracle.session import OracleSession
from producer.sources.oracle.table_checks import LoggedTable
from producer.sources.protocols import LogChange, PublishedRows
from producer.statements.judgement import StatementVerdict
from producer.tables import TableName, format_table_name
from schemas.findings import format_copy_remedy
from schemas.table.model import Key, Row

MOST_HELD = 50
"""Consecutive polls in which rows of a log may lack their commit SCN."""
MAX_KEYS_PER_SELECT = 200
"""Rows of a table that are read by their keys in one SELECT, and rows of a log that a poll reads if its
table has LOBs.
"""


class LogPart(NamedTuple):
    """The rows of a log that a poll has read.

    `current`: rows of the table with their keys, read after them, where they are needed. `whole`: the
    log had no more rows. `kept`: rows of the table with keys that the log deletes last.
    """

    rows: list[LogRow]
    current: Mapping[Key, Row]
    whole: bool
    kept: Mapping[Key, Row] = MappingProxyType({})


PolledLogs = dict[TableName, LogPart | TableStoppedError]


class ReadLogs(NamedTuple):
    """The changes that one reading of all tables' logs has brought.

    `more`: one of them may have more rows. `waits`: one was not read, because its table is not known well
    enough yet, or the order of its rows.
    """

    found: PolledLogs
    more: bool
    waits: bool


class LogReader:
    """Reads the logs. `most`: rows of a table's log that are read at once."""

    def __init__(self, session: OracleSession, following: FollowedTables, most: int) -> None:
        self._session, self._following, self._most = session, following, most

    def read_logs(self) -> ReadLogs:
        """Return the rows of the logs. A log that cannot be read stops its table."""
        found: PolledLogs = {}
        more = any_waits = False
        for name, table in self._following.tables.items():
            logged = table.logged
            if not self._following.captured(*name):
                continue
            if logged is None or not table.recorded:
                any_waits = True
                continue
            most = min(self._most, MAX_KEYS_PER_SELECT) if logged.unlogged else self._most
            statement = sql.select_log_rows(logged.log, list_log_expressions(logged), logged.extra, most)
            try:
                raw = self._session.fetch_rows(*statement)
                rows = list(map(make_log_row_converter(logged), raw))
                if self._must_wait(name, logged, rows):
                    any_waits = True
                    continue
                found[name] = self._build_part(logged, rows, whole=len(rows) < most)
            except SourceRefusedError as error:
                what = f"{format_table_name(name)}: {error.problem.what}"
                found[name] = TableStoppedError(frozenset([name]), "log", what, error.problem.action)
            except (ValueError, ArithmeticError) as error:
                reason = (
                    f"a value in {format_table_name(logged.log)}, the log of "
                    f"{format_table_name(name)}, cannot be read ({error})"
                )
                found[name] = TableStoppedError(frozenset([name]), "value", reason, format_copy_remedy(*name))
            else:
                more = more or len(raw) >= most
        return ReadLogs(found, more, any_waits)

    def _must_wait(self, name: TableName, logged: LoggedTable, rows: list[LogRow]) -> bool:
        """Return whether a log has rows without a known order, so that none of it is read.

        Raises SourceRefusedError.
        """
        table = self._following.tables[name]
        waits = logged.by_commit and any(not row.scn for row in rows)
        if table.count_waiting_poll(waits=waits) > MOST_HELD:
            raise SourceRefusedError(
                f"ALL_SUMMAP has no commit SCN for rows of {format_table_name(logged.log)}, and "
                "nothing else defines their order",
                f"let the user read it, stop what purges it, and {format_copy_remedy(*name)}",
            )
        return waits

    def _build_part(self, logged: LoggedTable, rows: list[LogRow], *, whole: bool) -> LogPart:
        """Return rows of a log with the rows of the table that they need.

        These are all rows if the log does not have all columns, and otherwise the rows that may exist
        although the log deletes them last. (A log with keys only never shows that a row is deleted.)
        They are read after the log, so each is as the log describes it, or newer. The log has the cause
        of a newer one by now.
        """
        key = make_key_extractor(logged)
        deleted = [] if logged.keys_only else list_finally_deleted_keys(rows, key)
        asked = dict.fromkeys(key(row.image) for row in rows) if logged.unlogged else deleted
        current = self._read_current_rows(logged, list(asked))
        kept = self._keep_unchanged_rows(
            logged, rows, {here: current[here] for here in deleted if here in current}
        )
        return LogPart(rows, current, whole, kept)

    def _read_current_rows(self, logged: LoggedTable, keys: list[Key]) -> dict[Key, Row]:
        """Return the rows of the table that have these keys, as they are now."""
        key, found = make_key_extractor(logged), dict[Key, Row]()
        name = (logged.table.db, logged.table.name)
        for at in range(0, len(keys), MAX_KEYS_PER_SELECT):
            some = keys[at : at + MAX_KEYS_PER_SELECT]
            statement = sql.select_rows_by_keys(
                name, list_column_expressions(logged), list_key_binds(logged), len(some)
            )
            raw = self._session.fetch_rows(
                statement, [value for each in some for value in bind_key(logged, each)]
            )
            found |= {key(row): row for row in map(make_row_converter(logged), raw)}
        return found

    def _keep_unchanged_rows(
        self, logged: LoggedTable, rows: list[LogRow], there: dict[Key, Row]
    ) -> dict[Key, Row]:
        """Return those of the rows for which the log has nothing after `rows`.

        The log is read after the table here. For any other row the rest of the log will follow, and may
        be newer than the row.
        """
        key, read_ = make_key_extractor(logged), {LogPlace(row.rowid, row.sequence) for row in rows}
        found = dict(there)
        for at in range(0, len(there), MAX_KEYS_PER_SELECT):
            some = list(there)[at : at + MAX_KEYS_PER_SELECT]
            statement = sql.select_log_rows_by_keys(
                logged.log, list_log_expressions(logged), list_key_binds(logged), len(some)
            )
            raw = self._session.fetch_rows(
                statement, [value for each in some for value in bind_key(logged, each)]
            )
            for row in map(make_log_row_converter(logged), raw):
                if LogPlace(row.rowid, row.sequence) not in read_:
                    found.pop(key(row.image), None)
        return found

    def build_changes(
        self, name: TableName, part: LogPart, *, whole: bool
    ) -> OracleRows | TableStoppedError | None:
        """Return the changes in the rows of a log; None: there are none.

        `whole`: they are all that it has.
        """
        followed = self._following.tables.get(name)
        if followed is None or followed.logged is None:
            return None
        moved = find_published_row(part.rows, self._following.published.get(name, frozenset()))
        try:
            if moved is not None:
                raise LogBrokenError(
                    f"the published row with SEQUENCE$$ {moved.sequence} now has another ROWID: the "
                    "materialized view log was moved"
                )
            changes = _build_logged_changes(followed.logged, part, whole=whole)
        except LogBrokenError as error:
            log = format_table_name(followed.logged.log)
            reason = f"{log}, the log of {format_table_name(name)}, cannot be read further: {error}"
            return TableStoppedError(frozenset([name]), "log", reason, format_copy_remedy(*name))
        return OracleRows(followed.logged.table, changes) if changes else None


def _build_logged_changes(logged: LoggedTable, part: LogPart, *, whole: bool) -> list[LoggedChange]:
    """Return the changes, completed with rows of the table where the log lacks values.

    Raises LogBrokenError.
    """
    if logged.keys_only:
        return merge_log_rows(part.rows, part.current, make_key_extractor(logged))
    changes = parse_log_rows(part.rows, make_key_extractor(logged), whole=whole).changes
    if logged.unlogged:
        unlogged = {i for i, column in enumerate(logged.columns) if column.name in logged.unlogged}
        changes = with_current(changes, part.current, make_key_extractor(logged), unlogged)
    return with_kept(changes, part.kept, make_key_extractor(logged))


class CatalogWatcher:
    """Examines tables in the catalog. `published`: the content of the topics when capture began."""

    def __init__(self, catalog: OracleCatalog, following: FollowedTables, published: PublishedRows) -> None:
        self._catalog, self._following, self._published = catalog, following, published

    def examine_catalog(self, fresh: str) -> CatalogLook:
        """Look at the followed tables, and for tables to follow.

        The rows that were read before are judged by it.
        """
        logs, followed = self._catalog.list_logs(), self._following.tables
        new = [name for name in logs if name not in followed and self._following.captured(*name)]
        segments = self._catalog.read_segments([*followed, *new], logs)
        views = self._catalog.list_refreshed_views(followed)
        by_number = [
            each.logged for each in followed.values() if each.logged is None or not each.logged.by_commit
        ]
        several = bool(by_number) and self._catalog.count_instances() > 1
        close = [name for name, table in followed.items() if needs_close_look(table, segments.get(name))]
        surveyed = self._catalog.examine_tables(close) if close else {}
        return CatalogLook(fresh, new, segments, surveyed, views, several)

    def yield_statements(
        self, look: CatalogLook, header: TransactionHeader
    ) -> Generator[LogChange, None, set[TableName]]:
        """Yield what has happened to tables other than DML.

        Return the tables for which this poll publishes nothing.
        """
        changed: set[TableName] = set()
        for name, table in list(self._following.tables.items()):
            if not self._following.captured(*name):
                self._following.drop_table(name)
                continue
            found = judge_followed_table(name, table, look, self._published.tables.get(name))
            if found is None:
                continue
            changed.add(name)
            if isinstance(found, TableStoppedError):
                self._following.drop_table(name)
                yield found
            else:
                yield Barrier.build_from_verdict(header, found.sql, "alter", found.verdict)
        for name in sorted(look.new):
            changed.add(name)
            yield _build_first_barrier(name, header)
        return changed


def _build_first_barrier(name: TableName, header: TransactionHeader) -> Barrier:
    """Return the barrier for a table.

    If it is captured already, its changes in the meantime are unknown.
    """
    text = f"{format_table_name(name)} is seen for the first time by this process"
    return Barrier.build_from_verdict(header, text, "create", StatementVerdict(name, "unknown", "changed"))
