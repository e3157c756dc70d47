"""MySQL's and MariaDB's definitions and reads.

Columns and indexes come from schemas.io.mysql_catalog, which also reads them for capture, so a table
means the same on both sides, including prefix lengths and collations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from consumer.errors import TableTooLargeError, TargetConfigError
from consumer.ordering.model import TargetTable
from consumer.targets.checks.rights import MissingRight, RequiredRights
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.mysql import rights
from consumer.targets.mysql.facts import find_durability_risk, read_table_facts
from consumer.targets.mysql.limits import (
    DEFAULT_CHARSET,
    ServerLimits,
    explain_column_name,
    explain_name,
    list_impossible_indexes,
    name_large_columns,
    refuse_table_limit,
)
from consumer.targets.mysql.numbering import render_numbering
from consumer.targets.mysql.sql import quote
from consumer.targets.mysql.values import make_key_encoder, order_encoder
from consumer.targets.shared.keyed_reads import KeyedReads
from consumer.targets.shared.name_limits import require_column_names, require_table_names
from consumer.targets.shared.numbering import choose_first_number
from consumer.targets.sql import qualify_table, render_placeholders
from schemas.errors import SchemaError, TableNotFoundError
from schemas.io import mysql_catalog
from schemas.io.server_errors import TESTED_TARGETS, explain_untested_version
from schemas.problems import Problem
from schemas.table.collations import Choose, make_collation_chooser, make_key_collation_chooser
from schemas.table.model import Column, IndexPart, Key, Row, Table, UniqueIndex
from schemas.table.names import NameRules
from schemas.table.typemap import adopt_collation, render_mysql_type
from schemas.values.mysql import make_select_row_converter, pack_rows, select_list
from schemas.values.packed import PackedSelect, can_pack

if TYPE_CHECKING:
    from consumer.targets.mysql.connection import MySqlLink
    from schemas.config.model import TargetConfig

_CHARACTERS = "SELECT character_set_name, maxlen FROM information_schema.character_sets"


def read_server_limits(link: MySqlLink) -> ServerLimits:
    """Return what tables of this server may be."""
    return ServerLimits(
        {str(charset): int(str(size)) for charset, size in link.execute(_CHARACTERS, [])},
        link.flavour.key_parts,
        link.flavour.whole_texts,
        link.flavour.page_value_bytes,
        link.flavour.page_reference_bytes,
    )


class MySqlTargetCatalog(KeyedReads):
    """The catalog of servers with MySQL's protocol; see
    `consumer.targets.dialect_components.TargetCatalog`.
    """

    quote = staticmethod(quote)
    column_names = NameRules(folds=True)

    def __init__(self, target: TargetConfig, link: MySqlLink) -> None:
        self._target = target
        self._link = link
        self._table_names: NameRules | None = None

    @property
    def table_names(self) -> NameRules:
        """The rules of `lower_case_table_names`, which a server never changes."""
        if self._table_names is None:
            self._link.connect()
            with self._link.translate_errors():
                self._table_names = mysql_catalog.read_name_rules(self._link.raw)
        return self._table_names

    def read_table(self, schema: str, name: str) -> Table | None:
        self._link.connect()
        try:
            with self._link.translate_errors():
                return mysql_catalog.read_table(self._link.raw, schema, name)
        except TableNotFoundError:
            return None
        except SchemaError as error:
            raise TargetConfigError.wrap_error(f"target table {schema}.{name}", error) from error

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        self._link.connect()
        return read_table_facts(self._link, schema, name, self._link.flavour.foreign)

    def find_missing_rights(self, required: RequiredRights) -> list[MissingRight]:
        self._link.connect()
        lines = [str(row[0]) for row in self._link.execute("SHOW GRANTS", [])]
        schemas = required.list_schemas()
        query = (
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN "
            f"{render_placeholders(len(schemas))}"
        )
        there = {(str(schema), str(name)) for schema, name in self._link.execute(query, [*schemas])}
        lacking = rights.find_lacking_rights(lines, self._link.account, required, there)
        if "PROCESS" not in self._link.flavour.locks.grant:  # otherwise it is reported with the locks
            lacking += rights.find_lacking_process(lines, self._link.account, required, there)
        return lacking

    def find_durability_risk(self) -> Remark | None:
        self._link.connect()
        return find_durability_risk(self._link)

    def explain_untested_version(self) -> Problem | None:
        self._link.connect()
        version = str(self._link.execute("SELECT VERSION()", [])[0][0])
        return explain_untested_version(
            TESTED_TARGETS, "mariadb" if "mariadb" in version.lower() else "mysql", version
        )

    def create_statements(self, table: Table) -> list[str]:
        place = f"{table.db}.{table.name}"
        require_table_names(place, (table.db, table.name), explain_name)
        require_column_names(place, table.column_names, explain_column_name)
        new, impossible = self._plan_new_table(table)
        with self._link.translate_errors():
            native = mysql_catalog.read_text_types(self._link.raw)
        names = [index.name for index, _ in impossible]
        try:
            body = [
                f"{quote(column.name)} {kind.replace('%', '%%')}{_render_null(column)}"
                for column in new.columns
                for kind in (render_mysql_type(column.type, native=native),)
            ]
        except SchemaError as error:
            raise TargetConfigError.wrap_error(f"target table {table.db}.{table.name}", error) from error
        body.append(f"PRIMARY KEY ({_render_index_parts(table.key)})")
        body += [
            f"UNIQUE KEY {quote(index.name)} ({_render_index_parts(index)})"
            for index in table.unique
            if index.name not in names
        ]
        name = qualify_table(quote, table.db, table.name)
        create = (
            f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(body)}) ENGINE=InnoDB "
            f"DEFAULT CHARSET={DEFAULT_CHARSET}"
        )
        return [*self._create_database(table.db), create]

    def render_numbering(self, table: Table, column: str, next_number: int) -> tuple[int, list[str]]:
        self._link.connect()
        first = choose_first_number(self._link, self.quote, table, column, next_number)
        return first, render_numbering(self._link, table, column, first)

    def explain_left_out_indexes(self, table: Table) -> list[Problem]:
        _, impossible = self._plan_new_table(table)
        return [
            Problem(
                f"the table is created without unique index {index.name} ({', '.join(index.columns)}), which "
                f"{reason}",
                "nothing needs to be done: the source keeps its rows unique",
            )
            for index, reason in impossible
        ]

    def name_large_columns(self, table: Table, error: TableTooLargeError) -> TableTooLargeError:
        return name_large_columns(error, table, read_server_limits(self._link))

    def _plan_new_table(self, table: Table) -> tuple[Table, list[tuple[UniqueIndex, str]]]:
        """Return the table as it is created, and the unique indexes that the server cannot have.

        Raises TargetConfigError if the server cannot have the table.
        """
        self._link.connect()
        with self._link.translate_errors():
            available = mysql_catalog.read_collations(self._link.raw)
        new = adopt_collations(
            table, make_key_collation_chooser(available), make_collation_chooser(available)
        )
        limits = read_server_limits(self._link)
        refuse_table_limit(new, limits)
        return new, list_impossible_indexes(new, limits)

    def _create_database(self, database: str) -> list[str]:
        """Return CREATE DATABASE if the database is missing: IF NOT EXISTS needs the right to create
        even if it exists.
        """
        query = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"
        found = self._link.execute(query, [database])
        return [] if found else [f"CREATE DATABASE IF NOT EXISTS {quote(database)} CHARACTER SET utf8mb4"]

    def select_rows(self, table: TargetTable) -> tuple[str, Callable[[tuple[object, ...]], Row]]:
        columns = ", ".join(part.replace("%", "%%") for part in select_list(table.table))
        return f"SELECT {columns} FROM {self.quote_table_name(table)}", make_select_row_converter(table.table)

    def select_packed_rows(self, table: TargetTable) -> tuple[str, PackedSelect] | None:
        if not (table.has_same_key_kinds and can_pack(table.table, table.added)):
            return None
        packed = pack_rows(table.table)
        return f"SELECT {packed.columns.replace('%', '%%')} FROM {self.quote_table_name(table)}", packed

    def build_key_params(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Sequence[object]]:
        return list(map(make_key_encoder(table.table), keys))

    def order_params(self, table: TargetTable, key: Key) -> Sequence[object]:
        return order_encoder(table.table)(key)


def adopt_collations(table: Table, exact: Choose, near: Choose) -> Table:
    """Return the table with the collations that its columns have on the server.

    Columns of keys, and labels (ENUM, SET), distinguish all values that the source does. Raises
    TargetConfigError if the server has no collation for a column.
    """
    keyed = {*table.key.columns, *(name for index in table.unique for name in index.columns)}
    try:
        columns = tuple(
            replace(
                column,
                type=adopt_collation(
                    column.type, exact if column.name in keyed or column.type.members else near
                ),
            )
            for column in table.columns
        )
    except SchemaError as error:
        raise TargetConfigError.wrap_error(f"target table {table.db}.{table.name}", error) from error
    return replace(table, columns=columns)


def _render_null(column: Column) -> str:
    """Return the nullability.

    On old servers a TIMESTAMP without NULL would be NOT NULL with an automatic value.
    """
    return " NULL" if column.nullable else " NOT NULL"


def _render_index_parts(index: UniqueIndex) -> str:
    return ", ".join(_render_index_part(part) for part in index.parts)


def _render_index_part(part: IndexPart) -> str:
    return quote(part.column) + (f"({part.prefix})" if part.prefix else "")
