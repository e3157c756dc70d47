"""MySQL's and MariaDB's definitions and reads.

Columns and indexes come from schemas.io.mysql_catalog, which also reads them for capture, so a table
means the same on both sides, including prefix lengths and collations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import structlog

from consumer.errors import TargetConfigError
from consumer.ordering.model import TargetTable
from consumer.targets.checks.rights import MissingRight, RequiredRights
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.mysql import rights
from consumer.targets.mysql.facts import find_durability_risk, read_table_facts
from consumer.targets.mysql.sql import quote
from consumer.targets.mysql.values import make_key_encoder, order_encoder
from consumer.targets.shared.keyed_reads import KeyedReads
from consumer.targets.sql import qualify_table, render_placeholders
from schemas.errors import SchemaError, TableNotFoundError
from schemas.io import mysql_catalog
from schemas.table.collations import make_collation_chooser, make_key_collation_chooser
from schemas.table.model import Column, IndexPart, Key, Row, Table, UniqueIndex
from schemas.table.names import NameRules
from schemas.table.typemap import render_mysql_type
from schemas.values.mysql import make_select_row_converter, select_list

if TYPE_CHECKING:
    from consumer.targets.mysql.connection import Flavour, MySqlLink
    from schemas.config.model import TargetConfig

log = structlog.get_logger(__name__)

_LONG = ("text", "blob")
"""Suffixes of the names of types that need a length in an index."""


class MySqlTargetCatalog(KeyedReads):
    """The catalog of servers with MySQL's protocol; see
    `consumer.targets.dialect_components.TargetCatalog`.
    """

    quote = staticmethod(quote)
    column_names = NameRules(folds=True)

    def __init__(self, target: TargetConfig, link: MySqlLink, flavour: Flavour) -> None:
        self._target = target
        self._link = link
        # InnoDB's own table of foreign keys, which shows those of databases that the user may not see
        self._foreign = flavour.foreign
        self._whole_texts = flavour.whole_texts

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
        return read_table_facts(self._link, schema, name, self._foreign)

    def find_missing_rights(self, required: RequiredRights) -> list[MissingRight]:
        self._link.connect()
        lines = [str(row[0]) for row in self._link.execute("SHOW GRANTS", [])]
        schemas = required.list_schemas()
        query = (
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN "
            f"{render_placeholders(len(schemas))}"
        )
        there = {(str(schema), str(name)) for schema, name in self._link.execute(query, [*schemas])}
        return rights.find_lacking_rights(lines, self._link.account, required, there)

    def find_durability_risk(self) -> Remark | None:
        self._link.connect()
        return find_durability_risk(self._link)

    def create_statements(self, table: Table) -> list[str]:
        self._link.connect()
        with self._link.translate_errors():
            available = mysql_catalog.read_collations(self._link.raw)
        exact, near, keyed = (
            make_key_collation_chooser(available),
            make_collation_chooser(available),
            _list_exact_columns(table),
        )
        try:
            types = [
                render_mysql_type(column.type, exact if column.name in keyed else near)
                for column in table.columns
            ]
            body = [
                f"{quote(column.name)} {kind.replace('%', '%%')}{_render_null(column)}"
                for column, kind in zip(table.columns, types, strict=True)
            ]
        except SchemaError as error:
            raise TargetConfigError.wrap_error(f"target table {table.db}.{table.name}", error) from error
        body.append(f"PRIMARY KEY ({_render_index_parts(table.key)})")
        body += [
            f"UNIQUE KEY {quote(index.name)} ({_render_index_parts(index)})"
            for index in self._yield_possible_indexes(table)
        ]
        name = qualify_table(quote, table.db, table.name)
        create = (
            f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(body)}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
        )
        return [*self._create_database(table.db), create]

    def _yield_possible_indexes(self, table: Table) -> Iterator[UniqueIndex]:
        """Yield the unique indexes that the server can have; the source keeps rows unique in the
        others, too.
        """
        long = {
            each.name
            for each in table.columns
            if render_mysql_type(each.type).partition(" ")[0].endswith(_LONG)
        }
        for index in table.unique:
            if self._whole_texts or not any(
                part.prefix is None and part.column in long for part in index.parts
            ):
                yield index
                continue
            log.warning(
                "target table created without a unique index",
                reason="MySQL has no unique index over a whole TEXT or BLOB (error 1170)",
                table=f"{table.db}.{table.name}", columns=list(index.columns),
            )  # fmt: skip

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

    def build_key_params(self, table: TargetTable, key: Key) -> list[object]:
        return list(make_key_encoder(table.table)(key))

    def order_params(self, table: TargetTable, key: Key) -> Sequence[object]:
        return order_encoder(table.table)(key)


def _list_exact_columns(table: Table) -> frozenset[str]:
    """Return the columns that need a collation which distinguishes all that the source's does.

    These include columns with labels (ENUM, SET), because labels must differ, too.
    """
    labelled = {column.name for column in table.columns if column.type.members}
    return frozenset(labelled.union(table.key.columns, *(index.columns for index in table.unique)))


def _render_null(column: Column) -> str:
    """Return the nullability.

    On old servers a TIMESTAMP without NULL would be NOT NULL with an automatic value.
    """
    return " NULL" if column.nullable else " NOT NULL"


def _render_index_parts(index: UniqueIndex) -> str:
    return ", ".join(_render_index_part(part) for part in index.parts)


def _render_index_part(part: IndexPart) -> str:
    return quote(part.column) + (f"({part.prefix})" if part.prefix else "")
