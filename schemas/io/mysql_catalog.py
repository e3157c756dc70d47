"""Table definitions of MySQL and MariaDB, read from information_schema into the neutral model.

Capture reads a table when it first sees it and at each DDL barrier; `check` reads what it checks. This
module only reads. The differences between servers are in `CatalogForm` (schemas.io.catalog_form).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from schemas.errors import (
    ExpressionIndexError,
    SchemaError,
    TableNotFoundError,
    UnsupportedTypeError,
)
from schemas.io.catalog_form import READ_FORM, CatalogForm, build_catalog_form
from schemas.io.mysql_columns import CatalogColumn, build_column
from schemas.io.uuid_order import COMPARES_AS_STORED, build_uuid_key_error, has_uuid_key
from schemas.problems import Problem
from schemas.table.keys import choose_key, require_comparable_keys
from schemas.table.model import IndexPart, Table, TextOf, UniqueIndex
from schemas.table.names import NameRules
from schemas.table.patterns import is_selected_by_patterns

if TYPE_CHECKING:
    from pymysql.connections import Connection

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_REPLICATED = ("BASE TABLE", "SYSTEM VERSIONED")


# All of them for tables given by schema and name, so that the servers open no other table's definition.
_WHICH = "table_schema IN %s AND table_name IN %s"
_COLUMNS = """
SELECT table_schema, table_name, column_name, column_default, is_nullable, data_type, column_type,
       character_maximum_length, character_octet_length, numeric_precision, numeric_scale, datetime_precision,
       character_set_name, collation_name, extra, {srs_id}, {expression}
FROM information_schema.columns WHERE {which} ORDER BY table_schema, table_name, ordinal_position"""
_INDEXES = """
SELECT table_schema, table_name, index_name, column_name, sub_part, {expression}
FROM information_schema.statistics WHERE {which} AND non_unique = 0
ORDER BY table_schema, table_name, index_name, seq_in_index"""
_TABLES = """
SELECT t.table_schema, t.table_name, t.table_type, c.character_set_name, t.table_collation, t.engine,
  e.transactions
FROM information_schema.tables t
LEFT JOIN information_schema.collation_character_set_applicability c ON c.{collation_name} = t.table_collation
LEFT JOIN information_schema.engines e ON e.engine = t.engine
WHERE {which}"""
_AT_ONCE = 1000  # names in one query

TableName = tuple[str, str]


class CatalogEntry(NamedTuple):
    """A table's entry in the catalog."""

    table: Table | SchemaError
    """The table's definition, or the error that prevented it."""
    columns: tuple[CatalogColumn, ...] = ()
    """The columns as the catalog shows them."""
    engine: str | None = None
    """The engine, if a ROLLBACK does not undo its changes; else None."""


def read_table(conn: Connection[Any], db: str, name: str) -> Table:
    """Return the definition of `db`.`name`.

    Raises the error in `CatalogEntry.table`, if there is one (see read_tables).
    """
    found = read_tables(conn, [(db, name)])[db, name].table
    if isinstance(found, SchemaError):
        raise found
    return found


def read_tables(conn: Connection[Any], names: Iterable[TableName]) -> dict[TableName, CatalogEntry]:
    """Read definitions in bulk, by a handful of queries for a thousand tables.

    Errors of a table: TableNotFoundError, NoKeyError, ExpressionIndexError, UnsupportedTypeError. A DDL
    between the queries can mix two definitions; a caller that depends on one must prove that none
    happened (producer/definitions).
    """
    form, distinct = _read_form(conn), list(dict.fromkeys(names))
    same = read_name_rules(conn).normalize_table
    found: dict[TableName, CatalogEntry] = {}
    for at in range(0, len(distinct), _AT_ONCE):
        found |= _read_entries(conn, form, distinct[at : at + _AT_ONCE], same)
    return found | _refuse_unordered_keys(conn, found)


def _refuse_unordered_keys(
    conn: Connection[Any], found: Mapping[TableName, CatalogEntry]
) -> dict[TableName, CatalogEntry]:
    """Return the entries of tables with a UUID in the key, with an error, if the server's order of UUIDs
    is not that of its indexes.
    """
    keyed = {
        name: entry.table
        for name, entry in found.items()
        if isinstance(entry.table, Table) and has_uuid_key(entry.table)
    }
    if not keyed or _fetch_rows(conn, COMPARES_AS_STORED)[0][0] == 1:
        return {}
    return {name: CatalogEntry(build_uuid_key_error(table)) for name, table in keyed.items()}


def read_name_rules(conn: Connection[Any]) -> NameRules:
    """Return how the server compares names of databases and tables."""
    return NameRules.from_setting(str(_fetch_rows(conn, "SELECT @@lower_case_table_names")[0][0]))


def _read_entries(
    conn: Connection[Any],
    form: CatalogForm,
    names: Sequence[TableName],
    same: Callable[[TableName], TableName],
) -> dict[TableName, CatalogEntry]:
    """Return the entries of tables.

    `same`: returns the form in which names are compared; some servers with case-sensitive names have
    views that compare without case.
    """
    which = tuple({db for db, _ in names}), tuple({name for _, name in names})
    ask_columns = _COLUMNS.format(srs_id=form.srs_id, expression=form.generation_expression, which=_WHICH)
    columns: dict[TableName, list[CatalogColumn]] = defaultdict(list)
    for db, name, *row in _fetch_rows(conn, ask_columns, *which):
        shown_as = CatalogColumn(*row)
        if shown_as.collation:
            shown_as = shown_as._replace(collation=form.own_name(shown_as.collation))
        columns[same((db, name))].append(shown_as)
    indexes: dict[TableName, list[tuple[Any, ...]]] = defaultdict(list)
    for db, name, *row in _fetch_rows(
        conn, _INDEXES.format(expression=form.index_expression, which=_WHICH), *which
    ):
        indexes[same((db, name))].append(tuple(row))
    tables = _fetch_rows(conn, _TABLES.format(collation_name=form.collation_name, which=_WHICH), *which)
    shown = {same((row[0], row[1])): row for row in tables}
    return {
        name: _build_entry((*name, *shown[key][2:]), columns[key], indexes[key], form)
        if (key := same(name)) in shown
        else CatalogEntry(TableNotFoundError.from_problem(describe_missing_table(name)))
        for name in names
    }


def _build_entry(
    shown: tuple[Any, ...],
    columns: Sequence[CatalogColumn],
    indexes: Iterable[tuple[Any, ...]],
    form: CatalogForm,
) -> CatalogEntry:
    db, name, table_type, charset, collation, engine, transactions = shown
    try:
        table = _build_table((db, name), table_type, columns, indexes, form)
    except SchemaError as error:
        return CatalogEntry(error)
    own = form.own_name(collation) if collation else collation
    table = msgspec.structs.replace(table, charset=charset, collation=own)
    return CatalogEntry(table, tuple(columns), None if transactions == "YES" else engine)


def _build_table(
    name: TableName,
    table_type: str,
    columns: Sequence[CatalogColumn],
    indexes: Iterable[tuple[Any, ...]],
    form: CatalogForm,
) -> Table:
    place = f"{name[0]}.{name[1]}"
    if table_type != "BASE TABLE":
        raise UnsupportedTypeError(
            f"{place} is a {table_type}, and only ordinary tables can be captured", "exclude the table"
        )
    if not columns:  # it was dropped between the queries
        raise TableNotFoundError.from_problem(describe_missing_table(name))
    found = tuple(build_column(row, form) for row in columns)
    unique = _build_indexes(indexes, place)
    key = choose_key(found, unique, place)
    rest = tuple(index for index in unique if index is not key)
    table = Table(db=name[0], name=name[1], columns=found, key=key, unique=rest)
    require_comparable_keys(table)
    return table


def describe_missing_table(name: TableName) -> Problem:
    """Return the problem of a table that is not in the catalog."""
    db, table = name
    return Problem(
        f"table {db}.{table} does not exist, or this user may not see it",
        f"check the name, or GRANT SELECT ON `{db}`.*; after a DROP create it again, or exclude the table",
    )


def list_tables(conn: Connection[Any], patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Return the (database, table) that `patterns` select, sorted; never those of system schemas.

    A pattern is "db.table" with `*` and `?`; "!" excludes. The last pattern that matches a table
    decides. Names and patterns compare as the server compares names, and names come in the form in
    which they compare (schemas.table.names).
    """
    compared = read_name_rules(conn)
    folded = compared.fold_patterns(patterns)
    rows = _fetch_rows(conn, "SELECT table_schema, table_name, table_type FROM information_schema.tables")
    names = sorted(compared.normalize_table((db, table)) for db, table, kind in rows if kind in _REPLICATED)
    return [(db, table) for db, table in names if is_selected(folded, db, table)]


def is_selected(patterns: Iterable[str], db: str, table: str) -> bool:
    """Return whether `patterns` (see list_tables) select the table. Pure."""
    if db.lower() in SYSTEM_SCHEMAS:
        return False
    return is_selected_by_patterns(patterns, db, table)


def read_collations(conn: Connection[Any]) -> frozenset[str]:
    """Return the full names of all collations of the server, without aliases (for
    schemas.table.collations).
    """
    form = _read_form(conn)
    query = f"SELECT {form.collation_name} FROM information_schema.collation_character_set_applicability"
    return frozenset(name for (name,) in _fetch_rows(conn, query) if form.own_name(name) == name)


def read_text_types(conn: Connection[Any]) -> frozenset[TextOf]:
    """Return the server's types with a canonical text: plugins of MariaDB, and VECTOR."""
    rows = _fetch_rows(
        conn, "SELECT plugin_name FROM information_schema.plugins WHERE plugin_type = 'DATA TYPE'"
    )
    known = {each.value: each for each in TextOf}
    plugins = frozenset(known[name.lower()] for (name,) in rows if name.lower() in known)
    [(version,)] = _fetch_rows(conn, "SELECT VERSION()")
    return plugins | {TextOf.VECTOR} if has_vectors(str(version)) else plugins


def has_vectors(version: str) -> bool:
    """Return whether the server with this VERSION() has VECTOR."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return numbers >= (_VECTORS_MARIADB if "MariaDB" in version else _VECTORS)


_VECTORS, _VECTORS_MARIADB = (9, 0), (11, 7)


def read_charset_ids(conn: Connection[Any]) -> dict[int, str]:
    """Return collation id → character set, for all collations of the server; TABLE_MAP events of the
    log contain the ids.
    """
    view = _read_form(conn).charset_ids
    rows = _fetch_rows(conn, f"SELECT id, character_set_name FROM information_schema.{view}")
    return {int(number): charset for number, charset in rows if number is not None}


def _read_form(conn: Connection[Any]) -> CatalogForm:
    [(version, shown)] = _fetch_rows(conn, READ_FORM)
    return build_catalog_form(version, (shown or "").split(","))


def _fetch_rows(
    conn: Connection[Any], query: str, *parameters: str | tuple[str, ...]
) -> list[tuple[Any, ...]]:
    from pymysql.cursors import Cursor

    with conn.cursor(Cursor) as cursor:
        cursor.execute(query, parameters or None)
        return list(cursor.fetchall())


def _build_indexes(rows: Iterable[tuple[Any, ...]], table: str) -> tuple[UniqueIndex, ...]:
    parts: dict[str, list[IndexPart]] = {}
    for name, part, prefix, expression in rows:
        if part is None:
            raise ExpressionIndexError(
                f"unique index {name} of {table} is over an expression ({expression}): its values are not "
                "in the binlog, so changes cannot be put in order",
                "put the expression in a stored generated column and index that, or exclude the table",
            )
        parts.setdefault(name, []).append(IndexPart(column=part, prefix=prefix))
    return tuple(UniqueIndex(name=name, parts=tuple(columns)) for name, columns in parts.items())
