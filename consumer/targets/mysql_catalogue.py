"""MySQL's and MariaDB's definitions and reads.

Columns and indexes come from schemas.mysql_catalog, which also reads them for capture: so a table means the same on
both sides, prefix lengths and collations included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from consumer.errors import TargetConfigError
from consumer.model import TargetTable
from consumer.targets import mysql_rights
from consumer.targets.facts import TableFacts
from consumer.targets.mysql_sql import quote
from consumer.targets.mysql_values import key_encoder, order_encoder
from consumer.targets.rights import MissingRight, Wanted
from consumer.targets.sql import Fragment, after_key, placeholders, qualified
from schemas import mysql_catalog
from schemas.collations import chooser, key_chooser
from schemas.errors import SchemaError, TableNotFoundError
from schemas.mysql_values import row_from_select, select_list
from schemas.table import Column, IndexPart, Key, Row, Table, UniqueIndex
from schemas.typemap import mysql_type

if TYPE_CHECKING:
    from consumer.targets.mysql import MySqlLink
    from schemas.config import TargetConfig

_FACTS = {
    "triggers": "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = %s "
    "AND event_object_table = %s",
    "foreign_keys": "SELECT CONCAT(constraint_name, ' (', table_schema, '.', table_name, ' to ', "
    "referenced_table_schema, '.', referenced_table_name, ')') FROM information_schema.key_column_usage "
    "WHERE referenced_table_name IS NOT NULL AND ordinal_position = 1 "
    "AND ((table_schema = %s AND table_name = %s) OR (referenced_table_schema = %s AND referenced_table_name = %s))",
    "required": "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s "
    "AND is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%%auto_increment%%' "
    "AND extra NOT LIKE '%%generated%%'",
}
#: Partitionings by RANGE and LIST with the bounds of their partitions, in one row for each partition.
_PARTITIONS = """
SELECT DISTINCT partition_method, partition_expression, partition_description FROM information_schema.partitions
WHERE table_schema = %s AND table_name = %s AND partition_name IS NOT NULL
UNION SELECT DISTINCT subpartition_method, subpartition_expression, NULL FROM information_schema.partitions
WHERE table_schema = %s AND table_name = %s AND subpartition_name IS NOT NULL"""
_ENGINE = """
SELECT t.engine, e.transactions FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_schema = %s AND t.table_name = %s"""


class MySqlCatalogue:
    """`session.Catalogue` for the servers of MySQL's protocol."""

    def __init__(self, target: TargetConfig, link: MySqlLink, foreign: str) -> None:
        """`foreign`: InnoDB's own table of foreign keys, which shows those of databases that the user may not see."""
        self._target = target
        self._link = link
        self._foreign = foreign

    def name(self, table: TargetTable) -> str:
        return qualified(quote, table.schema, table.name)

    def read_table(self, schema: str, name: str) -> Table | None:
        self._link.connect()
        try:
            with self._link.translated():
                return mysql_catalog.read_table(self._link.raw, schema, name)
        except TableNotFoundError:
            return None
        except SchemaError as error:
            raise TargetConfigError(f"target table {schema}.{name}: {error}") from error

    def facts(self, schema: str, name: str) -> TableFacts:
        self._link.connect()
        place: list[object] = [schema, name]
        found: dict[str, Any] = {
            fact: tuple(str(row[0]) for row in self._link.execute(query, place * (query.count("%s") // 2)))
            for fact, query in _FACTS.items()
        }
        engines = self._link.execute(_ENGINE, [*place])
        engine, transactions = engines[0] if engines else (None, "YES")
        partitions = self._link.execute(_PARTITIONS, place * 2)
        lines = [str(row[0]) for row in self._link.execute("SHOW GRANTS", [])]
        if mysql_rights.sees_processes(lines):
            found["foreign_keys"] = (*found["foreign_keys"], *self._hidden(schema, name))
        return TableFacts(
            **found,
            uncovered=uncovered(partitions),
            unseen=tuple(mysql_rights.blind(lines, self._link.account, (schema, name))),
            engine=str(engine),
            transactional=transactions == "YES",
        )

    def _hidden(self, schema: str, name: str) -> list[str]:
        """Return the foreign keys of other databases that refer to the table, whether or not the user may see those."""
        names = [f"{schema}/{name}", f"{in_files(schema)}/{in_files(name)}"]
        query = (
            f"SELECT CONCAT(id, ' (', for_name, ' to ', ref_name, ')') FROM information_schema.{self._foreign} "
            "WHERE ref_name IN (%s, %s) AND for_name NOT LIKE CONCAT(SUBSTRING_INDEX(ref_name, '/', 1), '/%%')"
        )
        return [str(row[0]) for row in self._link.execute(query, [*names])]

    def missing_rights(self, wanted: Wanted) -> list[MissingRight]:
        self._link.connect()
        lines = [str(row[0]) for row in self._link.execute("SHOW GRANTS", [])]
        schemas = wanted.schemas()
        query = f"SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN {placeholders(len(schemas))}"
        there = {(str(schema), str(name)) for schema, name in self._link.execute(query, [*schemas])}
        return mysql_rights.lacking(lines, self._link.account, wanted, there)

    def create_statements(self, table: Table) -> list[str]:
        self._link.connect()
        with self._link.translated():
            available = mysql_catalog.collations(self._link.raw)
        exact, near, keyed = key_chooser(available), chooser(available), _keyed(table)
        try:
            body = [
                f"{quote(column.name)} "
                f"{mysql_type(column.type, exact if column.name in keyed else near).replace('%', '%%')}{_null(column)}"
                for column in table.columns
            ]
        except SchemaError as error:
            raise TargetConfigError(f"target table {table.db}.{table.name}: {error}") from error
        body.append(f"PRIMARY KEY ({_parts(table.key)})")
        body += [f"UNIQUE KEY {quote(index.name)} ({_parts(index)})" for index in table.unique]
        name = qualified(quote, table.db, table.name)
        create = (
            f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(body)}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
        )
        return [*self._create_database(table.db), create]

    def _create_database(self, database: str) -> list[str]:
        """Only when it is missing: IF NOT EXISTS needs the right to create it even when there is nothing to do."""
        query = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"
        found = self._link.execute(query, [database])
        return [] if found else [f"CREATE DATABASE IF NOT EXISTS {quote(database)} CHARACTER SET utf8mb4"]

    def select_rows(self, table: TargetTable) -> tuple[str, Callable[[tuple[object, ...]], Row]]:
        columns = ", ".join(part.replace("%", "%%") for part in select_list(table.table))
        return f"SELECT {columns} FROM {self.name(table)}", row_from_select(table.table)

    def key_params(self, table: TargetTable, key: Key) -> list[object]:
        return list(key_encoder(table.table)(key))

    def key_columns(self, table: TargetTable) -> tuple[str, ...]:
        return tuple(quote(column) for column in table.table.key.columns)

    def where(self, table: TargetTable, values: dict[str, str] | None) -> list[Fragment]:
        return [(f"{quote(column)} = %s", [value]) for column, value in (values or {}).items()]

    def page(self, table: TargetTable, after: Key | None) -> list[Fragment]:
        if after is None:
            return []
        return [after_key(self.key_columns(table), order_encoder(table.table)(after))]

    def page_order(self, table: TargetTable) -> str:
        return ", ".join(self.key_columns(table))


def uncovered(partitions: Sequence[Sequence[object]]) -> tuple[str, ...]:
    """Return the partitionings that do not take every row, of (method, expression, bound) of each partition. Pure."""
    bounds: dict[tuple[str, str], set[str]] = {}
    for method, expression, bound in partitions:
        bounds.setdefault((str(method), str(expression)), set()).add(str(bound))
    return tuple(
        f"{method} ({expression})"
        for (method, expression), found in bounds.items()
        if (method.startswith("RANGE") and not any(_UNBOUNDED.fullmatch(bound) for bound in found))
        or (method.startswith("LIST") and "DEFAULT" not in found)
    )


def in_files(name: str) -> str:
    """Return a name as InnoDB's own catalogue writes it (letters of some scripts have other codes, which are not made here)."""
    return "".join(
        char if char.isascii() and (char.isalnum() or char == "_") else f"@{ord(char):04x}" for char in name
    )


_UNBOUNDED = re.compile(r"\s*MAXVALUE\s*(,\s*MAXVALUE\s*)*")


def _keyed(table: Table) -> frozenset[str]:
    """Return the columns whose collation must tell apart all that the source does. Labels of an ENUM or SET must differ, too."""
    labelled = {column.name for column in table.columns if column.type.members}
    return frozenset(labelled.union(table.key.columns, *(index.columns for index in table.unique)))


def _null(column: Column) -> str:
    """TIMESTAMP without NULL would be NOT NULL with an automatic value on old servers."""
    return " NULL" if column.nullable else " NOT NULL"


def _parts(index: UniqueIndex) -> str:
    return ", ".join(_part(part) for part in index.parts)


def _part(part: IndexPart) -> str:
    return quote(part.column) + (f"({part.prefix})" if part.prefix else "")
