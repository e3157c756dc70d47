"""PostgreSQL's definitions and reads: the real table through SQLAlchemy's inspector, DDL through the
type map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2s
from itertools import compress
from typing import TYPE_CHECKING, Any

from msgspec import structs

from consumer.errors import FEWER_COLUMNS, TableTooLargeError, TargetConfigError, TransientError
from consumer.ordering.model import TargetTable
from consumer.targets.checks.rights import ROW_RIGHTS, MissingRight, RequiredRights
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.postgres import rights
from consumer.targets.postgres.connection import translate_refusals
from consumer.targets.postgres.facts import read_table_facts
from consumer.targets.postgres.numbering import render_numbering
from consumer.targets.postgres.sql import bare, quote, render_row_comparison
from consumer.targets.shared.inspection import CatalogInspection
from consumer.targets.shared.keyed_reads import KeyedReads
from consumer.targets.shared.name_limits import require_column_names, require_table_names
from consumer.targets.shared.numbering import choose_first_number
from consumer.targets.sql import qualify_table
from schemas.errors import SchemaError
from schemas.io.server_errors import TESTED_TARGETS, explain_untested_version
from schemas.problems import Problem
from schemas.table.keys import choose_key
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, TextOf, UniqueIndex
from schemas.table.typemap import convert_postgres_type, render_postgres_type
from schemas.values.postgres import make_postgres_row_converter, select_list_pg, to_postgres_columns

if TYPE_CHECKING:
    from sqlalchemy.engine.reflection import Inspector

    from consumer.targets.dialect_components import Rows
    from consumer.targets.postgres.connection import PostgresLink
    from schemas.config.model import TargetConfig

IDENTIFIER_BYTES = 63
SYSTEM_COLUMNS = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
MAX_COLUMNS = 1600

_LOOSE = """
SELECT a.attname, n.nspname || '.' || c.collname
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND NOT c.collisdeterministic"""
_TYPES = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped"""

_PGVECTOR = """
SELECT 1 FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_depend d ON d.objid = t.oid AND d.classid = 'pg_type'::regclass AND d.deptype = 'e'
JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
WHERE t.typname = 'vector' AND e.extname = 'vector' AND pg_type_is_visible(t.oid)"""


class PostgresTargetCatalog(KeyedReads):
    """PostgreSQL's catalog; see `consumer.targets.dialect_components.TargetCatalog`."""

    quote = staticmethod(quote)
    render_after_key = staticmethod(partial(render_row_comparison, ">"))
    render_up_to_key = staticmethod(partial(render_row_comparison, "<="))

    def __init__(self, target: TargetConfig, link: PostgresLink) -> None:
        self._link = link
        where = f"{target.host}:{target.port}"
        self._inspection = CatalogInspection("postgresql+psycopg", where, link.translate_errors)

    def read_table(self, schema: str, name: str) -> Table | None:
        require_table_names(f"{schema}.{name}", (schema, name), explain_name)
        self._link.connect()
        with self._inspection.open_inspector(self._link.raw) as inspector:
            if not inspector.has_table(name, schema=schema):
                return None
            formatted = {str(column): str(text) for column, text in self._fetch_rows(_TYPES, schema, name)}
            loose = {
                str(column): str(collation) for column, collation in self._fetch_rows(_LOOSE, schema, name)
            }
            return _read_table(inspector, schema, name, formatted, loose)

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        return read_table_facts(lambda query: self._fetch_rows(query, schema, name), f"{schema}.{name}")

    def _fetch_rows(self, query: str, schema: str, name: str) -> Rows:
        self._link.connect()
        return self._link.execute(query, [qualify_table(bare, schema, name)] * query.count("%s"))

    def find_missing_rights(self, required: RequiredRights) -> list[MissingRight]:
        self._link.connect()
        execute = self._link.execute
        [(user, database, create, temporary)] = execute(rights.ROLE, [])
        schemas = execute(rights.SCHEMAS, [required.list_schemas()])
        places = [*required.tables, *((required.books_schema, name) for name in required.books)]
        tables = execute(rights.TABLE_RIGHTS_SQL, [list(part) for part in zip(*places, strict=True)])
        has = rights.PostgresRights(
            user=str(user),
            database=str(database),
            create=bool(create),
            temporary=bool(temporary),
            schemas={str(name): (bool(usage), bool(making)) for name, usage, making in schemas},
            tables={
                (str(schema), str(name)): frozenset(compress(ROW_RIGHTS, given))
                for schema, name, *given in tables
            },
            owned=frozenset((str(schema), str(name)) for schema, name, *_, owned in tables if owned),
        )
        return rights.find_lacking_rights(has, required)

    def find_durability_risk(self) -> Remark | None:
        return None  # the link ensures it when it connects

    def explain_untested_version(self) -> Problem | None:
        version = str(self._link.execute("SELECT current_setting('server_version')", [])[0][0])
        return explain_untested_version(TESTED_TARGETS, "postgres", version)

    def create_statements(self, table: Table) -> list[str]:
        name = qualify_table(quote, table.db, table.name)
        place = f"{table.db}.{table.name}"
        require_table_names(place, (table.db, table.name), explain_name)
        require_column_names(place, table.column_names, explain_column_name)
        if (count := len(table.columns)) > MAX_COLUMNS:
            raise TargetConfigError(
                f"target table {table.db}.{table.name}: it has {count} columns, and the limit is "
                f"{MAX_COLUMNS}",
                FEWER_COLUMNS,
            )
        native = read_native_types(self._link)
        body = [_render_column(column, native) for column in table.columns]
        body.append(f"PRIMARY KEY ({_render_columns(table.key)})")
        body += [_render_unique_index(table, index) for index in table.unique]
        create = f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(body)})"
        return [*self._create_schema(table.db), create]

    def _create_schema(self, schema: str) -> list[str]:
        """Return CREATE SCHEMA if the schema is missing: IF NOT EXISTS needs the right to create
        schemas even if it exists.
        """
        self._link.connect()
        found = self._link.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", [schema])
        return [] if found else [f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}"]

    def render_numbering(self, table: Table, column: str, next_number: int) -> tuple[int, list[str]]:
        self._link.connect()
        first = choose_first_number(self._link, self.quote, table, column, next_number)
        return first, render_numbering(self._link, table, column, first)

    def name_large_columns(self, table: Table, error: TableTooLargeError) -> TableTooLargeError:
        return error  # the server refuses single rows instead

    def explain_left_out_indexes(self, table: Table) -> list[Problem]:
        return []

    def select_rows(self, table: TargetTable) -> tuple[str, Callable[[tuple[object, ...]], Row]]:
        columns = ", ".join(part.replace("%", "%%") for part in select_list_pg(table.table))
        return f"SELECT {columns} FROM {self.quote_table_name(table)}", make_postgres_row_converter(
            table.table
        )

    def build_key_params(self, table: TargetTable, keys: Sequence[Key]) -> Sequence[Sequence[object]]:
        with translate_refusals():
            return list(map(to_postgres_columns(table.table, table.table.key.columns), keys))


def read_native_types(link: PostgresLink) -> frozenset[TextOf]:
    """Return VECTOR if pgvector's type is there, and found without the name of its schema."""
    link.connect()
    return frozenset({TextOf.VECTOR}) if link.execute(_PGVECTOR, []) else frozenset()


def explain_name(name: str) -> str:
    """Return why PostgreSQL cannot have a name as it is: it truncates longer ones without an error, so two
    may become equal.
    """
    size = len(name.encode())
    if size <= IDENTIFIER_BYTES:
        return ""
    return f"PostgreSQL cuts names at {IDENTIFIER_BYTES} bytes, and {name!r} has {size}"


def explain_column_name(name: str) -> str:
    """Return why PostgreSQL cannot have a column of this name."""
    if name in SYSTEM_COLUMNS:
        return f"every table of PostgreSQL has a system column {name}"
    return explain_name(name)


def _render_columns(index: UniqueIndex) -> str:
    return ", ".join(quote(column) for column in index.columns)


def _render_column(column: Column, native: frozenset[TextOf]) -> str:
    try:
        rendered = render_postgres_type(column.type, native)
    except SchemaError as error:
        raise TargetConfigError.wrap_error(f"column {column.name}", error) from error
    return f"{quote(column.name)} {rendered}" + ("" if column.nullable else " NOT NULL")


def _render_unique_index(table: Table, index: UniqueIndex) -> str:
    nulls = "" if index.nulls_distinct else " NULLS NOT DISTINCT"
    return (
        f"CONSTRAINT {quote(build_index_name(table.name, index.name))} "
        f"UNIQUE{nulls} ({_render_columns(index)})"
    )


def build_index_name(table: str, index: str) -> str:
    """Return the name of an index: in PostgreSQL it must be unique in the schema, in MySQL only in the
    table.
    """
    name = f"{table}_{index}_key"
    if len(name.encode()) <= IDENTIFIER_BYTES:
        return name
    digest = blake2s(name.encode(), digest_size=6).hexdigest()
    return name.encode()[: IDENTIFIER_BYTES - 13].decode(errors="ignore") + "_" + digest


def _read_table(
    inspector: Inspector, schema: str, name: str, formatted: dict[str, str], loose: dict[str, str]
) -> Table:
    place = f"target table {schema}.{name}"
    shown = inspector.get_columns(name, schema=schema)
    indexes = _read_unique_indexes(inspector, schema, name)
    if not formatted.keys() >= {column["name"] for column in shown}.union(
        *(each.columns for each in indexes)
    ):
        raise TransientError(f"{place} was changed while its definition was read, so it is read again")
    columns = tuple(_parse_column(column, formatted[column["name"]], loose) for column in shown)
    try:
        key = choose_key(columns, indexes, f"{schema}.{name}")
    except SchemaError as error:
        raise TargetConfigError.wrap_error(place, error) from error
    for index in indexes:
        for column in index.columns:
            _require_known(formatted[column], f"{place}: column {column} of unique index {index.name}")
    rest = tuple(index for index in indexes if index is not key)
    return Table(db=schema, name=name, columns=columns, key=key, unique=rest)


def _require_known(formatted: str, place: str) -> None:
    """Raise TargetConfigError for an unknown type (for example citext).

    Its comparison is not known, so writes cannot be ordered by its values.
    """
    try:
        convert_postgres_type(formatted)
    except SchemaError as error:
        raise TargetConfigError.wrap_error(place, error) from error


def _parse_column(column: Any, formatted: str, loose: dict[str, str]) -> Column:
    try:
        type_ = convert_postgres_type(formatted)
    except SchemaError:  # an enum, a domain, an array: it accepts text; indexes over it are refused
        type_ = ColumnType(kind=Kind.TEXT)
    return Column(
        name=column["name"],
        type=structs.replace(type_, collation=loose.get(column["name"])),
        nullable=column["nullable"],
        default=column["default"],
        auto_increment=bool(column.get("identity")),
        generated=bool(column.get("computed")),
    )


def _read_unique_indexes(inspector: Inspector, schema: str, name: str) -> list[UniqueIndex]:
    key = inspector.get_pk_constraint(name, schema=schema)
    found = []
    if key["constrained_columns"]:
        found.append(_build_index("PRIMARY", key["constrained_columns"], {}))
    for index in inspector.get_indexes(name, schema=schema):
        if not index["unique"]:
            continue
        options = index.get("dialect_options", {})
        if index.get("expressions") or options.get("postgresql_where"):
            raise TargetConfigError(
                f"unique index {index['name']} of target table {schema}.{name} is over an expression or a "
                "part of the rows: its conflicts cannot be put in order",
                "make it an ordinary unique index over columns, or drop it",
            )
        found.append(_build_index(str(index["name"]), index["column_names"], options))
    return found


def _build_index(name: str, columns: Sequence[str | None], options: dict[str, Any]) -> UniqueIndex:
    parts = tuple(IndexPart(column=str(column)) for column in columns)
    distinct = not options.get("postgresql_nulls_not_distinct", False)
    return UniqueIndex(name=name, parts=parts, nulls_distinct=distinct)
