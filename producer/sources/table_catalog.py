"""The tables of a source as its catalog shows them now, and which of them can be captured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from producer.sources.server_state import ServerState
from producer.sources.source_session import SourceSession
from producer.sources.survey import ExaminedTable, judge_catalog_table, refuse_table
from schemas.errors import SchemaError
from schemas.io.mysql_catalog import list_tables, read_name_rules, read_tables
from schemas.io.mysql_foreign_keys import list_cascading_foreign_keys
from schemas.problems import Problem
from schemas.table.left_out import NOTHING_LEFT_OUT, ColumnsOption, LeftOutColumns
from schemas.table.names import NameRules

TableName = tuple[str, str]


class TableCatalog:
    """The catalog of tables through one connection. `columns`: the source's option. Raises pymysql errors."""

    def __init__(
        self, session: SourceSession, server: ServerState, columns: ColumnsOption | None = None
    ) -> None:
        self._session = session
        self._server = server
        self._columns = columns or {}
        self.cascades = ForeignKeyActions(session, server)

    @cached_property
    def names(self) -> NameRules:
        """The server's rule for comparing names of databases and tables; it does not change while the
        server runs.
        """
        return read_name_rules(self._session.connection)

    @cached_property
    def left_out(self) -> LeftOutColumns:
        """The columns that are not published."""
        return LeftOutColumns(self._columns, self.names) if self._columns else NOTHING_LEFT_OUT

    def list_table_names(self, patterns: Sequence[str]) -> list[TableName]:
        """Return the tables that `patterns` select, sorted."""
        return list_tables(self._session.connection, patterns)

    def examine_tables(self, names: Collection[TableName]) -> dict[TableName, ExaminedTable]:
        """Return the definition of each table, as it is published, and whether it can be captured, with a
        handful of queries for all.
        """
        flavour, left_out = self._session.flavour, self.left_out
        logs_virtual = flavour.logs_virtual(self._server.version)
        found = {
            name: judge_catalog_table(
                name,
                entry,
                flavour.stored_otherwise,
                logs_virtual=logs_virtual,
                left_out=left_out.list_columns(name),
            )
            for name, entry in read_tables(self._session.connection, names).items()
        }
        for name in self.cascades.list_child_tables(found):
            if (
                found[name].table is not None
                and (problem := self.cascades.explain_unlogged_action(name)) is not None
            ):
                found[name] = refuse_table(name, problem)
        return found

    def find_nontransactional_engine(self, name: TableName) -> str | None:
        """Return the table's engine if it has no transactions, otherwise None."""
        rows = self._session.run_query(
            "SELECT t.engine AS engine FROM information_schema.tables t JOIN information_schema.engines e "
            "ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s AND "
            "COALESCE(e.transactions, 'NO') <> 'YES'",
            name,
        )
        return str(rows[0]["engine"]) if rows else None

    def estimate_rows(self, name: TableName) -> int | None:
        """Return the server's estimate of a table's rows; None: there is no such table."""
        rows = self._session.run_query(
            "SELECT table_rows AS about FROM information_schema.tables WHERE "
            "table_schema = %s AND table_name = %s",
            name,
        )
        return int(rows[0]["about"]) if rows and rows[0]["about"] is not None else None

    def find_partitioning(self, name: TableName) -> str | None:
        """Return a table's partitioning method ("RANGE", "LIST COLUMNS" …), "" if it has none.

        " MAXVALUE" follows RANGE if there is a partition for every value. None: there is no such table, or it
        has several methods.
        """
        rows = self._session.run_query(
            "SELECT COALESCE(partition_method, '') AS method, "
            "MAX(COALESCE(partition_description, '') REGEXP '^MAXVALUE(,MAXVALUE)*$') AS whole "
            "FROM information_schema.partitions WHERE table_schema = %s AND table_name = %s "
            "GROUP BY COALESCE(partition_method, '')",
            name,
        )
        if len(rows) != 1:
            return None
        return str(rows[0]["method"]).upper() + (" MAXVALUE" if rows[0]["whole"] else "")


class ForeignKeyActions:
    """The actions of foreign keys, and whether the server logs the rows that they change."""

    def __init__(self, session: SourceSession, server: ServerState) -> None:
        self._session = session
        self._server = server

    def list_child_tables(self, names: Collection[TableName]) -> list[TableName]:
        """Return those of `names` that have foreign keys with actions that might not be logged."""
        if not names or self.are_actions_logged():
            return []
        rows = self._session.run_query(
            "SELECT DISTINCT table_schema AS db, table_name AS name FROM information_schema.key_column_usage "
            "WHERE referenced_table_name IS NOT NULL AND table_schema IN %s",
            [tuple({db for db, _ in names})],
        )
        return [name for row in rows if (name := (row["db"], row["name"])) in names]

    def explain_unlogged_action(self, name: TableName) -> Problem | None:
        """Return why a table's rows may change without row events (a foreign key's action).

        None: they cannot.
        """
        if self.are_actions_logged():
            return None
        try:
            cascades = list_cascading_foreign_keys(self._session.connection, *name)
        except SchemaError as error:
            return error.problem
        if not cascades:
            return None
        native = (
            "set innodb_native_foreign_keys = OFF and restart the server, " if self._can_log_actions() else ""
        )
        return Problem(
            f"table {name[0]}.{name[1]} has foreign keys whose actions this server does not log "
            f"({'; '.join(cascades)})",
            f"{native}use NO ACTION and change the child rows in the application, or exclude the table",
        )

    def are_actions_logged(self) -> bool:
        """Return whether the server logs the rows that a foreign key's action changes."""
        if not self._can_log_actions():
            return False
        return self._server.read_variables().get("innodb_native_foreign_keys", "OFF").upper() in ("OFF", "0")

    def _can_log_actions(self) -> bool:
        since = self._session.flavour.logs_cascades_from
        if since is None:
            return False
        version = self._session.run_query("SELECT VERSION() AS v")[0]["v"]
        return tuple(int(part) for part in version.split("-")[0].split(".")[:2]) >= since
