"""The rights that a role lacks in PostgreSQL: from the catalog before a run, or from a server's message
during it; pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from consumer.targets.checks.rights import ROW_RIGHTS, MissingRight, RequiredRights, TablePlace
from consumer.targets.postgres.sql import bare

# A right on single columns counts as the right: which columns a run needs is not known here.
ROLE = """
SELECT current_user, current_database(), has_database_privilege(current_database(), 'CREATE'),
  has_database_privilege(current_database(), 'TEMPORARY')"""
SCHEMAS = """
SELECT nspname, has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE')
FROM pg_catalog.pg_namespace WHERE nspname = ANY(%s)"""
TABLE_RIGHTS_SQL = """
SELECT n.nspname, c.relname, has_any_column_privilege(c.oid, 'SELECT'), has_any_column_privilege(c.oid,
  'INSERT'),
  has_any_column_privilege(c.oid, 'UPDATE'), has_table_privilege(c.oid, 'DELETE'), pg_has_role(c.relowner,
    'USAGE')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm')
  AND (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""


@dataclass(frozen=True, slots=True)
class PostgresRights:
    """Rights of a role."""

    user: str
    database: str
    create: bool
    temporary: bool
    schemas: Mapping[str, tuple[bool, bool]]
    """Existing schema → (USAGE, CREATE)."""
    tables: Mapping[TablePlace, frozenset[str]]
    """Existing table → the role's rights."""
    owned: frozenset[TablePlace] = frozenset()
    """Tables that are owned by the role, or by a role that it is a member of."""


def find_lacking_rights(has: PostgresRights, required: RequiredRights) -> list[MissingRight]:
    """Return the rights that a run needs (`required`) and the role lacks, each with the statement that
    gives it.
    """
    missing = []
    if not has.temporary:
        message = f"user {has.user} may not make temporary tables: changes of many rows go through one (COPY)"
        missing.append(MissingRight(message, _render_database_grant("TEMPORARY", has.database, has.user)))
    absent = [schema for schema in required.list_schemas() if schema not in has.schemas]
    if required.books_schema in absent:
        message = (
            f"schema {required.books_schema}, where rowlock keeps its bookkeeping tables, does not exist"
        )
        statement = f"CREATE SCHEMA {bare(required.books_schema)} AUTHORIZATION {bare(has.user)};"
        missing.append(MissingRight(message, statement))
    made = [schema for schema in absent if schema != required.books_schema]
    if made and required.create and not has.create:
        message = f"user {has.user} may not create the schemas that are missing ({', '.join(made)})"
        missing.append(MissingRight(message, _render_database_grant("CREATE", has.database, has.user)))
    for schema in required.list_schemas():
        if schema in has.schemas:
            missing += [*_find_schema_rights(has, required, schema), *_on_tables(has, required, schema)]
    return [*missing, *_find_ownership_rights(has, required)]


def _find_schema_rights(has: PostgresRights, required: RequiredRights, schema: str) -> Iterator[MissingRight]:
    """Yield the rights that are missing on a schema.

    CREATE … IF NOT EXISTS needs the right to create even if the table exists; this always concerns the
    bookkeeping. An index, too, is created in the schema of its table.
    """
    usage, create = has.schemas[schema]
    names = required.list_tables_in_schema(schema)
    creates = (
        schema == required.books_schema
        or (required.create and any((schema, name) not in has.tables for name in names))
        or any(place == schema for place, _ in required.alter)
    )
    lacks = [right for right, given in (("USAGE", usage), ("CREATE", create or not creates)) if not given]
    if lacks:
        hides = frozenset((schema, name) for name in names) if not usage else frozenset()
        message = f"user {has.user} lacks {' and '.join(lacks)} on schema {schema}"
        yield MissingRight(message, _render_grant(lacks, f"SCHEMA {bare(schema)}", has.user), hides)


def _on_tables(has: PostgresRights, required: RequiredRights, schema: str) -> Iterator[MissingRight]:
    """Yield one statement for all tables of the schema that lack the same rights."""
    needed: dict[str, tuple[str, ...]] = dict.fromkeys(required.list_tables_in_schema(schema), ROW_RIGHTS)
    needed |= required.books if schema == required.books_schema else {}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, rights in needed.items():
        given = has.tables.get((schema, name))
        lacks = () if given is None else tuple(right for right in rights if right not in given)
        if lacks:
            groups.setdefault(lacks, []).append(name)
    for lacks, names in groups.items():
        listed = ", ".join(f"{schema}.{name}" for name in names)
        places = ", ".join(f"{bare(schema)}.{bare(name)}" for name in names)
        message = f"user {has.user} lacks {', '.join(lacks)} on {listed}"
        yield MissingRight(message, _render_grant(lacks, f"TABLE {places}", has.user))


def _find_ownership_rights(has: PostgresRights, required: RequiredRights) -> Iterator[MissingRight]:
    """Yield the tables that the role does not own.

    Only the owner may change or drop a table: no GRANT gives that right. Tables that rowlock created
    are its own.
    """
    for place in sorted((required.alter | required.drop) & has.tables.keys() - has.owned):
        schema, name = place
        message = (
            f"user {has.user} does not own {schema}.{name}, and may not change it as "
            "the source's table is changed"
        )
        yield MissingRight(message, _render_owner_change(f"{bare(schema)}.{bare(name)}", has.user))


def _render_owner_change(place: str, user: str) -> str:
    return f"ALTER TABLE {place} OWNER TO {bare(user)};"


def _render_grant(rights: list[str] | tuple[str, ...], where: str, user: str) -> str:
    return f"GRANT {', '.join(rights)} ON {where} TO {bare(user)};"


def _render_database_grant(right: str, database: str, user: str) -> str:
    return _render_grant([right], f"DATABASE {bare(database)}", user)


# -- the server's messages (SQLSTATE 42501)

_TABLE = re.compile(
    r"permission denied for (?:table|relation|view|materialized view|foreign table) (?P<name>.+)$", re.M
)
_OWNER = re.compile(r"must be owner of (?:table|relation) (?P<name>.+)$", re.M)
_SCHEMA = re.compile(r"permission denied for schema (?P<name>.+)$", re.M)
_SEQUENCE = re.compile(r"permission denied for sequence (?P<name>.+)$", re.M)
_DATABASE = re.compile(r"permission denied for database (?P<name>.+)$", re.M)
_TEMPORARY = re.compile(r'permission denied to create temporary tables in database "(?P<name>.+)"', re.M)
_TERMINATE = re.compile(
    r"permission denied to terminate process|must be a member of the role whose process is being terminated"
)
_SUPERUSER = re.compile(r"with the SUPERUSER attribute|must be a superuser to terminate superuser process")


def grant_for(message: str, user: str, hint: str = "") -> str | None:
    """Return the GRANT that a message of "insufficient privilege" asks for; None if it does not show
    one, or none helps.

    `hint`: the statement, which qualifies the table with its schema; the server's message does not.
    Messages are English unless the server's lc_messages is set otherwise; those of other languages give
    None.
    """
    if found := _TABLE.search(message):
        return _render_grant(ROW_RIGHTS, f"TABLE {_qualify_name(found['name'], hint)}", user)
    if found := _OWNER.search(message):
        return _render_owner_change(_qualify_name(found["name"], hint), user)
    if found := _SEQUENCE.search(message):
        return _render_grant(["USAGE", "SELECT"], f"SEQUENCE {_qualify_name(found['name'], hint)}", user)
    if found := _SCHEMA.search(message):
        return _render_grant(["USAGE", "CREATE"], f"SCHEMA {bare(_strip_quotes(found['name']))}", user)
    if found := _TEMPORARY.search(message):
        return _render_database_grant("TEMPORARY", found["name"], user)
    if found := _DATABASE.search(message):
        right = "CONNECT" if "CONNECT privilege" in message else "CREATE"
        return _render_database_grant(right, _strip_quotes(found["name"]), user)
    if _TERMINATE.search(message) and not _SUPERUSER.search(message):
        return f"GRANT pg_signal_backend TO {bare(user)};"
    return None


def _strip_quotes(name: str) -> str:
    """Return a name without its quotation marks, which only some messages have."""
    quoted = len(name) > 2 and name.startswith('"') and name.endswith('"')
    return name[1:-1] if quoted else name


def _qualify_name(name: str, hint: str) -> str:
    quoted = bare(_strip_quotes(name))
    found = re.search(r'"(?:[^"]|"")+"\.' + re.escape(quoted), hint.replace("%%", "%"))
    return found[0] if found else quoted
