"""The tables of a source, as its catalogue shows them now: which there are, and which of them can be captured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from producer.sources.server_state import ServerState
from producer.sources.source_session import SourceSession
from producer.sources.survey import MISSING, Surveyed, judge
from schemas.errors import SchemaError
from schemas.io.mysql_catalog import list_tables, missing_table, names_of, read_tables
from schemas.io.mysql_foreign_keys import cascading_foreign_keys
from schemas.table.names import Names

TableName = tuple[str, str]


class TableCatalog:
    """The catalogue of tables through one connection. Raises pymysql errors."""

    def __init__(self, session: SourceSession, server: ServerState) -> None:
        self._session = session
        self.cascades = Cascades(session, server)

    @cached_property
    def names(self) -> Names:
        """The server's rule for comparing names of databases and tables; it does not change while the server runs."""
        return names_of(self._session.connection)

    def table_names(self, patterns: Sequence[str]) -> list[TableName]:
        """Return the tables that `patterns` take, sorted."""
        return list_tables(self._session.connection, patterns)

    def survey(self, names: Collection[TableName]) -> dict[TableName, Surveyed]:
        """Return what each table is and whether it can be captured, by a handful of queries for all of them."""
        found = {
            name: judge(name, entry, self._session.flavour.stored_otherwise)
            for name, entry in read_tables(self._session.connection, names).items()
        }
        for name in self.cascades.children(found):
            if found[name].table is not None and (reason := self.cascades.unlogged(name)) is not None:
                found[name] = Surveyed(None, reason)
        return found

    def unfit(self, name: TableName) -> str | None:
        """Return why a table cannot be captured; None: it can."""
        found = self.survey([name])[name]
        return missing_table(name) if found == MISSING else found.reason

    def without_transactions(self, name: TableName) -> str | None:
        """Return the table's engine if it has no transactions."""
        rows = self._session.query(
            "SELECT t.engine AS engine FROM information_schema.tables t JOIN information_schema.engines e "
            "ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s AND COALESCE(e.transactions, 'NO') <> 'YES'",
            name,
        )
        return str(rows[0]["engine"]) if rows else None

    def rows_about(self, name: TableName) -> int | None:
        """Return how many rows the server thinks that a table has; None: there is none."""
        rows = self._session.query(
            "SELECT table_rows AS about FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            name,
        )
        return int(rows[0]["about"]) if rows and rows[0]["about"] is not None else None

    def partitioning(self, name: TableName) -> str | None:
        """Return by what a table is partitioned ("RANGE", "LIST COLUMNS" …), "" if it is not, None if there is none or several say."""
        rows = self._session.query(
            "SELECT DISTINCT COALESCE(partition_method, '') AS method FROM information_schema.partitions "
            "WHERE table_schema = %s AND table_name = %s",
            name,
        )
        return str(rows[0]["method"]).upper() if len(rows) == 1 else None


class Cascades:
    """The actions of foreign keys, and whether the server logs the rows that they change."""

    def __init__(self, session: SourceSession, server: ServerState) -> None:
        self._session = session
        self._server = server

    def children(self, names: Collection[TableName]) -> list[TableName]:
        """Return those of `names` that have foreign keys whose actions might not be logged."""
        if not names or self.logged():
            return []
        rows = self._session.query(
            "SELECT DISTINCT table_schema AS db, table_name AS name FROM information_schema.key_column_usage "
            "WHERE referenced_table_name IS NOT NULL AND table_schema IN %s",
            [tuple({db for db, _ in names})],
        )
        return [name for row in rows if (name := (row["db"], row["name"])) in names]

    def unlogged(self, name: TableName) -> str | None:
        """Return why a table's rows may change without an event of their own (a foreign key's action); None: they cannot."""
        if self.logged():
            return None
        try:
            cascades = cascading_foreign_keys(self._session.connection, *name)
        except SchemaError as error:
            return str(error)
        if not cascades:
            return None
        native = "set innodb_native_foreign_keys = OFF and restart the server, " if self._could_log() else ""
        return (
            f"table {name[0]}.{name[1]} has foreign keys whose actions this server does not log "
            f"({'; '.join(cascades)}): {native}use NO ACTION and change the child rows in the application, or exclude the table"
        )

    def logged(self) -> bool:
        """Tell whether the server logs the rows that a foreign key's action changes."""
        if not self._could_log():
            return False
        return self._server.variables().get("innodb_native_foreign_keys", "OFF").upper() in ("OFF", "0")

    def _could_log(self) -> bool:
        since = self._session.flavour.logs_cascades_from
        if since is None:
            return False
        version = self._session.query("SELECT VERSION() AS v")[0]["v"]
        return tuple(int(part) for part in version.split("-")[0].split(".")[:2]) >= since
