"""Oracle's definitions and reads: the real table from the data dictionary, over the session's connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2s
from typing import TYPE_CHECKING

from consumer.errors import TableTooLargeError, TargetConfigError
from consumer.ordering.model import TargetTable
from consumer.targets.checks.rights import MissingRight, RequiredRights
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.oracle import rights
from consumer.targets.oracle.facts import read_table_facts
from consumer.targets.oracle.numbering import render_numbering
from consumer.targets.oracle.sql import (
    IDENTIFIER_BYTES,
    ORACLE_NAMES,
    explain_column_name,
    explain_name,
    normalize_name,
    quote_identifier,
    restore_spelling,
)
from consumer.targets.oracle.values import from_oracle, list_keyed_columns, to_oracle, translate_refusals
from consumer.targets.shared.keyed_reads import KeyedReads
from consumer.targets.shared.name_limits import require_column_names, require_table_names
from consumer.targets.shared.numbering import choose_first_number
from consumer.targets.sql import qualify_table, render_placeholders
from schemas.errors import SchemaError
from schemas.problems import Problem
from schemas.table.keys import choose_key
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, UniqueIndex
from schemas.table.names import NameRules
from schemas.table.oracle_ddl import (
    EMPTY_IS_NULL,
    PADDED,
    OracleCatalogType,
    convert_oracle_type,
    is_lob,
    render_oracle_type,
)

if TYPE_CHECKING:
    from consumer.targets.oracle.connection import OracleLink

_COLUMNS = """
SELECT column_name, data_type, char_length, data_length, data_precision, data_scale, nullable, virtual_column,
  data_default
FROM SYS.ALL_TAB_COLS WHERE owner = %s AND table_name = %s AND hidden_column = 'NO' ORDER BY column_id"""
_PRIMARY = """
SELECT c.index_name, k.column_name FROM SYS.ALL_CONSTRAINTS c
JOIN SYS.ALL_CONS_COLUMNS k ON k.owner = c.owner AND k.constraint_name = c.constraint_name
WHERE c.owner = %s AND c.table_name = %s AND c.constraint_type = 'P' ORDER BY k.position"""
_UNIQUE = """
SELECT i.index_name, c.column_name, e.column_expression FROM SYS.ALL_INDEXES i
JOIN SYS.ALL_IND_COLUMNS c ON c.index_owner = i.owner AND c.index_name = i.index_name
LEFT JOIN SYS.ALL_IND_EXPRESSIONS e
  ON e.index_owner = c.index_owner AND e.index_name = c.index_name AND e.column_position = c.column_position
WHERE i.table_owner = %s AND i.table_name = %s AND i.uniqueness = 'UNIQUE'
ORDER BY i.index_name, c.column_position"""
_USER = "SELECT 1 FROM SYS.ALL_USERS WHERE username = %s"
_ROLE = "SELECT SYS_CONTEXT('USERENV', 'SESSION_USER') FROM dual"
_PRIVILEGES = "SELECT privilege FROM SYS.SESSION_PRIVS"
_THERE = "SELECT owner, table_name FROM SYS.ALL_TABLES WHERE owner IN {schemas}"
_GRANTED = """
SELECT DISTINCT table_schema, table_name, privilege FROM SYS.ALL_TAB_PRIVS WHERE table_schema IN {schemas}
AND (grantee IN (SYS_CONTEXT('USERENV', 'SESSION_USER'), 'PUBLIC') OR grantee IN (SELECT role
FROM SYS.SESSION_ROLES))"""
#: The only expression index that is understood: it leaves out rows that have a NULL in one of its
#: columns.
_UNLESS_NULL = re.compile(r'\s*CASE\s+WHEN\s+(?P<given>.+?)\s+THEN\s+"(?P<column>[^"]+)"\s+END\s*', re.S)
_GIVEN = re.compile(r'\(*\s*"(?P<column>[^"]+)"\s+IS\s+NOT\s+NULL\s*\)*')


class OracleTargetCatalog(KeyedReads):
    """Oracle's catalog; see `consumer.targets.dialect_components.TargetCatalog`."""

    quote = staticmethod(quote_identifier)
    column_names: NameRules = ORACLE_NAMES
    table_names: NameRules = ORACLE_NAMES

    def __init__(self, link: OracleLink) -> None:
        self._link = link

    def read_table(self, schema: str, name: str) -> Table | None:
        place = f"{schema}.{name}"
        require_table_names(place, (schema, name), explain_name)
        self._link.connect()
        at: list[object] = [normalize_name(schema), normalize_name(name)]
        rows = self._link.execute(_COLUMNS, at)
        if not rows:
            return None
        columns = tuple(_parse_column(row, name) for row in rows)
        indexes = self._read_unique_indexes(at, columns, place, name)
        _refuse_padded({restore_spelling(str(row[0]), name): str(row[1]) for row in rows}, indexes, place)
        try:
            key = choose_key(columns, indexes, place)
        except SchemaError as error:
            raise TargetConfigError.wrap_error(f"target table {place}", error) from error
        unique = tuple(index for index in indexes if index is not key)
        return Table(db=schema, name=name, columns=columns, key=key, unique=unique)

    def _read_unique_indexes(
        self, at: list[object], columns: Sequence[Column], place: str, name: str
    ) -> list[UniqueIndex]:
        primary = self._link.execute(_PRIMARY, at)
        found: dict[str, list[tuple[str, str | None]]] = {}
        for index, column, expression in self._link.execute(_UNIQUE, at):
            found.setdefault(str(index), []).append(
                (str(column), None if expression is None else str(expression))
            )
        key_columns = [restore_spelling(str(column), name) for _, column in primary]
        indexes = [_build_plain_index("PRIMARY", key_columns, frozenset())] if key_columns else []
        nullable = frozenset(column.name for column in columns if column.nullable)
        for index, parts in found.items():
            if primary and index == str(primary[0][0]):
                continue
            indexes.append(_build_index(index, parts, nullable, place, name))
        return indexes

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        self._link.connect()
        return read_table_facts(self._link, schema, name)

    def find_missing_rights(self, required: RequiredRights) -> list[MissingRight]:
        self._link.connect()
        execute = self._link.execute
        [(user,)] = execute(_ROLE, [])
        schemas: list[object] = [normalize_name(schema) for schema in required.list_schemas()]
        some = render_placeholders(len(schemas))
        granted: dict[tuple[str, str], set[str]] = {}
        for schema, table, right in execute(_GRANTED.format(schemas=some), schemas):
            granted.setdefault((str(schema), str(table)), set()).add(str(right))
        return rights.find_lacking_rights(
            rights.OracleRights(
                user=str(user),
                privileges=frozenset(str(row[0]) for row in execute(_PRIVILEGES, [])),
                tables=frozenset((str(a), str(b)) for a, b in execute(_THERE.format(schemas=some), schemas)),
                granted={place: frozenset(given) for place, given in granted.items()},
            ),
            required,
        )

    def find_durability_risk(self) -> Remark | None:
        # COMMIT waits for the redo log unless COMMIT_WAIT is set otherwise, which a session may not see
        return None

    def explain_untested_version(self) -> Problem | None:
        return None  # none was tested, as README says: only stand-ins

    def create_statements(self, table: Table) -> list[str]:
        place = f"{table.db}.{table.name}"
        require_table_names(place, (table.db, table.name), explain_name)
        require_column_names(place, table.column_names, explain_column_name)
        self._link.connect()
        if not self._link.execute(_USER, [normalize_name(table.db)]):
            raise TargetConfigError(
                f"target table {place}: Oracle has no user {normalize_name(table.db)}, "
                "and so no schema of that name",
                "create the user, or send the table elsewhere by a route (`to`)",
            )
        body = [render_column_definition(table, column) for column in table.columns]
        body.append(f"PRIMARY KEY ({_join_quoted(table.key.columns)})")
        name = qualify_table(quote_identifier, table.db, table.name)
        return [
            f"CREATE TABLE {name} ({', '.join(body)})",
            *(render_unique_index(table, index) for index in table.unique),
        ]

    def render_numbering(self, table: Table, column: str, next_number: int) -> tuple[int, list[str]]:
        self._link.connect()
        first = choose_first_number(self._link, self.quote, table, column, next_number)
        return first, render_numbering(self._link, table, column, first)

    def name_large_columns(self, table: Table, error: TableTooLargeError) -> TableTooLargeError:
        return error  # the server refuses single rows instead

    def explain_left_out_indexes(self, table: Table) -> list[Problem]:
        return []

    def select_rows(self, table: TargetTable) -> tuple[str, Callable[[tuple[object, ...]], Row]]:
        columns = ", ".join(map(quote_identifier, table.table.column_names))
        return f"SELECT {columns} FROM {self.quote_table_name(table)}", from_oracle(table.table)

    def build_key_params(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Sequence[object]]:
        with translate_refusals():
            return list(map(to_oracle(table.table, table.table.key.columns), keys))


def takes_null(table: Table, column: Column) -> bool:
    """Return whether a column is created nullable: also where the source's is not, but contains empty
    values.
    """
    if column.name in table.key.columns:
        return False
    return column.nullable or (
        column.type.kind in EMPTY_IS_NULL and column.name not in list_keyed_columns(table)
    )


def render_type(table: Table, column: Column) -> str:
    """Return the DDL type of a column.

    Raises TargetConfigError if there is none, or if a key cannot be over it.
    """
    place = f"target table {table.db}.{table.name}: column {column.name}"
    try:
        rendered = render_oracle_type(column.type)
    except SchemaError as error:
        raise TargetConfigError.wrap_error(place, error) from error
    if is_lob(rendered) and column.name in list_keyed_columns(table):
        raise TargetConfigError(
            f"{place}: Oracle stores it as {rendered}, which cannot be part of a key or unique index",
            "make the column shorter at the source, or create the target table by hand",
        )
    return rendered


def render_column_definition(table: Table, column: Column) -> str:
    null = "" if takes_null(table, column) else " NOT NULL"
    return f"{quote_identifier(column.name)} {render_type(table, column)}{null}"


def list_expression_columns(table: Table, index: UniqueIndex) -> list[str]:
    """Return the columns that keep a row with a NULL out of the index by an expression.

    Empty if the index is over plain columns.
    """
    nullable = [name for name in index.columns if takes_null(table, table.get_column(name))]
    return nullable if len(index.columns) > 1 and index.nulls_distinct else []


def render_unique_index(table: Table, index: UniqueIndex, name: str = "") -> str:
    """Return CREATE UNIQUE INDEX. `name`: the index's name in the data dictionary, if it existed
    before.

    Oracle considers (1, NULL) and (1, NULL) equal, the sources do not: if one of several columns is
    nullable, a row with a NULL is kept out of the index by an expression.
    """
    if nullable := list_expression_columns(table, index):
        given = " AND ".join(f"{quote_identifier(column)} IS NOT NULL" for column in nullable)
        parts = ", ".join(
            f"CASE WHEN {given} THEN {quote_identifier(column)} END" for column in index.columns
        )
    else:
        parts = _join_quoted(index.columns)
    for column in index.columns:
        render_type(table, table.get_column(column))
    place = qualify_table(quote_identifier, table.db, name or build_index_name(table.name, index.name))
    return f"CREATE UNIQUE INDEX {place} ON {qualify_table(quote_identifier, table.db, table.name)} ({parts})"


def build_index_name(table: str, index: str) -> str:
    """Return the name of an index: in Oracle it must be unique in the schema, in MySQL only in the table."""
    name = f"{table}_{index}_key".replace('"', "'")
    if len(name.encode()) <= IDENTIFIER_BYTES:
        return name
    digest = blake2s(name.encode(), digest_size=6).hexdigest()
    return name.encode()[: IDENTIFIER_BYTES - 13].decode(errors="ignore") + "_" + digest


def _join_quoted(columns: Sequence[str]) -> str:
    return ", ".join(map(quote_identifier, columns))


def _parse_column(row: Sequence[object], place: str) -> Column:
    name, data_type, characters, size, precision, scale, nullable, virtual, default = row

    def number(value: object) -> int | None:
        return None if value is None else int(str(value))

    real = OracleCatalogType(
        str(data_type), number(characters) or number(size) or 0, number(precision), number(scale)
    )
    try:
        type_ = convert_oracle_type(real)
    except SchemaError:  # an object, XML, a vector: none of our values goes into it, which its check reports
        type_ = ColumnType(kind=Kind.GEOMETRY)
    generated = virtual == "YES"
    return Column(
        name=restore_spelling(str(name), place),
        type=type_,
        nullable=nullable == "Y",
        default=None if default is None or generated else str(default).strip(),
        generated=generated,
    )


def _refuse_padded(types: Mapping[str, str], indexes: Sequence[UniqueIndex], place: str) -> None:
    """Raise TargetConfigError for a key over a column that Oracle fills with blanks.

    A bound VARCHAR2 is compared without padding, and `'abc'` does not match `'abc  '`, so that a DELETE
    would match nothing.
    """
    for index in indexes:
        for column in index.columns:
            if (type_ := types.get(column)) in PADDED:
                what = "the primary key" if index.name == "PRIMARY" else f"unique index {index.name}"
                raise TargetConfigError(
                    f"target table {place}: column {column} of {what} is {type_}, which Oracle pads with "
                    "blanks: rows with shorter values would not be found again, and deletes be lost",
                    "make the column VARCHAR2 (NVARCHAR2) and take the blanks off "
                    f"(UPDATE … SET {column} = RTRIM({column}))",
                )


def _build_plain_index(name: str, columns: Sequence[str], nullable: frozenset[str]) -> UniqueIndex:
    """Return an index over columns: NULLs of one column never collide, but rows with the same partly
    NULL values do.
    """
    distinct = len(columns) == 1 or nullable.isdisjoint(columns)
    return UniqueIndex(
        name=name, parts=tuple(IndexPart(column=column) for column in columns), nulls_distinct=distinct
    )


def _build_index(
    name: str, parts: Sequence[tuple[str, str | None]], nullable: frozenset[str], place: str, table: str
) -> UniqueIndex:
    if all(expression is None for _, expression in parts):
        return _build_plain_index(name, [restore_spelling(column, table) for column, _ in parts], nullable)
    columns = _parse_expression_columns(parts)
    if columns is None or not nullable.intersection(restore_spelling(each, table) for each in columns) <= {
        restore_spelling(each, table) for each in _parse_given_columns(parts)
    }:
        raise TargetConfigError(
            f"unique index {name} of target table {place} is on an expression, so rowlock cannot keep the "
            "order of rows that conflict in it",
            "make it an ordinary unique index on columns, or drop it",
        )
    return UniqueIndex(
        name=name, parts=tuple(IndexPart(column=restore_spelling(each, table)) for each in columns)
    )


def _parse_expression_columns(parts: Sequence[tuple[str, str | None]]) -> list[str] | None:
    """Return the columns of an expression index of `render_unique_index`; None: it is another index."""
    matches = [_UNLESS_NULL.fullmatch(expression or "") for _, expression in parts]
    found = [match for match in matches if match is not None]
    conditions = {_parse_not_null_conditions(match["given"]) for match in found}
    if len(found) < len(parts) or len(conditions) != 1 or None in conditions:
        return None
    columns = [match["column"] for match in found]
    return columns if (conditions.pop() or frozenset()) <= set(columns) else None


def _parse_given_columns(parts: Sequence[tuple[str, str | None]]) -> frozenset[str]:
    match = _UNLESS_NULL.fullmatch(parts[0][1] or "")
    return (_parse_not_null_conditions(match["given"]) if match else None) or frozenset()


def _parse_not_null_conditions(text: str) -> frozenset[str] | None:
    """Return the columns of "A IS NOT NULL AND B IS NOT NULL"; None: the text is something else."""
    matches = [_GIVEN.fullmatch(each.strip()) for each in re.split(r"\s+AND\s+", text)]
    columns = [match["column"] for match in matches if match is not None]
    return frozenset(columns) if len(columns) == len(matches) else None
