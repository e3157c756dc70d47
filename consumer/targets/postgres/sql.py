"""The rendering of PostgreSQL's statements for one target table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consumer.ordering.model import TargetTable
from consumer.targets.sql import (
    Fragment,
    list_multiform_key_columns,
    qualify_table,
    quote_with,
    render_placeholders,
)
from schemas.table.model import Column, Table, TextOf, UniqueIndex

quote = quote_with('"')
#: For names that are themselves values (regclass).
bare = quote_with('"', formatted=False)


def render_row_comparison(sign: str, columns: Sequence[str], key: Sequence[object]) -> Fragment:
    """Return the predicate "key `sign` given".

    Of a condition for each column, PostgreSQL would use only the first column's to begin and end its scan of
    the index.
    """
    return f"({', '.join(columns)}) {sign} {render_placeholders(len(key))}", [*key]


#: Column of the temporary table, the operation on the row: "d" delete by key, "r" replace, "u" update
#: in place, "s" the same for a snapshot.
OPERATION = "rowlock op"
DELETE, REPLACE, UPDATE, SNAPSHOT = "d", "r", "u", "s"


@dataclass(frozen=True)
class PostgresPlan:
    """The statements of one table. In all of them "t" is the target table and "n" the temporary one."""

    table_name: str  # "schema.name", for messages
    temporary: str
    create_temporary: str
    drop_temporary: str
    empty: str
    copy: str
    key_columns: tuple[str, ...]
    delete_where: str
    delete_copied: str
    insert_values: str
    placeholders: str  # of one row
    insert_copied: str
    upsert_copied: str
    on_conflict: str
    snapshot_copied: str
    displaced: tuple[str, ...]  # one DELETE for each unique index: rows of other keys that hold needed values


def build_postgres_plan(table: TargetTable, number: int) -> PostgresPlan:
    """Return all statements for `table`. `number` distinguishes the temporary tables of one connection."""
    name = qualify_table(quote, table.schema, table.name)
    temporary = f"rowlock_net_{number}"
    temp = f"pg_temp.{quote(temporary)}"
    columns = [quote(column) for column in table.table.column_names]
    key = [quote(column) for column in table.table.key.columns]
    op = quote(OPERATION)
    listed = ", ".join(columns)
    into = f"INSERT INTO {name} ({listed}) OVERRIDING SYSTEM VALUE"
    forms = [quote(column) for column in list_multiform_key_columns(table.table)]
    conflict = _on_conflict(key, [column for column in columns if column not in key or column in forms])
    return PostgresPlan(
        table_name=f"{table.schema}.{table.name}",
        temporary=temporary,
        # by name and by query, so that types and collations are the real table's
        create_temporary=f"CREATE TEMPORARY TABLE {quote(temporary)} ON COMMIT DELETE ROWS AS "
        f"SELECT {_render_temporary_columns(table.table)}, 'd'::\"char\" AS {op} FROM {name} WITH NO DATA",
        drop_temporary=f"DROP TABLE {temp}",
        empty=f"TRUNCATE {temp}",
        copy=f"COPY {temp} ({listed}, {op}) FROM STDIN".replace("%%", "%"),  # sent as it is, without values
        key_columns=tuple(key),
        delete_where=f"DELETE FROM {name} WHERE",
        delete_copied=f"DELETE FROM {name} AS t USING {temp} AS n WHERE {_render_equality(key)} AND n.{op} "
        f"IN ('{DELETE}', '{REPLACE}')",
        insert_values=f"{into} VALUES",
        placeholders=f"({', '.join(f'%s{render_cast(column)}' for column in table.table.columns)})",
        insert_copied=f"{into} SELECT {listed} FROM {temp} WHERE {op} = '{REPLACE}'",
        upsert_copied=f"{into} SELECT {listed} FROM {temp} WHERE {op} = '{UPDATE}'{conflict}",
        on_conflict=conflict,
        snapshot_copied=f"{into} SELECT {listed} FROM {temp} WHERE {op} = '{SNAPSHOT}'{conflict}",
        displaced=tuple(
            _render_displaced_select(name, temp, key, index) for index in list_orderable_indexes(table)
        ),
    )


def render_cast(column: Column) -> str:
    """Return the cast of a written value: a vector is an array, which the server also takes for a column of
    pgvector's type; its text differs between the two."""
    return "::real[]" if column.type.text_of is TextOf.VECTOR else ""


def _render_temporary_columns(table: Table) -> str:
    columns = ((quote(column.name), render_cast(column)) for column in table.columns)
    return ", ".join(f"{name}{cast} AS {name}" if cast else name for name, cast in columns)


def list_orderable_indexes(table: TargetTable) -> list[UniqueIndex]:
    """Return the unique indexes with columns that rowlock writes; in others it causes only NULLs or
    defaults.
    """
    written = set(table.table.column_names)
    return [index for index in table.table.unique if written.issuperset(index.columns)]


def _on_conflict(key: Sequence[str], written: Sequence[str]) -> str:
    if not written:
        return f" ON CONFLICT ({', '.join(key)}) DO NOTHING"
    sets = ", ".join(f"{column} = EXCLUDED.{column}" for column in written)
    return f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}"


def _render_equality(columns: Sequence[str]) -> str:
    return " AND ".join(f"t.{column} = n.{column}" for column in columns)


def _render_displaced_select(name: str, temp: str, key: Sequence[str], index: UniqueIndex) -> str:
    columns = [quote(column) for column in index.columns]
    same = (
        _render_equality(columns)
        if index.nulls_distinct
        else " AND ".join(f"t.{column} IS NOT DISTINCT FROM n.{column}" for column in columns)
    )
    return (
        f"DELETE FROM {name} AS t USING {temp} AS n WHERE n.{quote(OPERATION)} <> '{DELETE}' AND {same} "
        f"AND NOT ({_render_equality(key)})"
    )
