"""Changes of tables in PostgreSQL: takes the table's lock, reads the real table, and renders the
statements.

The lock is taken first, so that it is waited for only once, and what is read of the table afterwards
stays true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from consumer.errors import TargetConfigError
from consumer.targets.alterations import (
    AddUnique,
    AlterTable,
    ChangeColumn,
    DropColumn,
    DropTable,
    list_new_names,
    require_same_columns,
)
from consumer.targets.postgres.alter_statements import (
    PostgresRealTable,
    RealIndex,
    is_retyped,
    render_statements,
)
from consumer.targets.postgres.catalog import build_index_name, explain_column_name, read_native_types
from consumer.targets.postgres.sql import bare, quote
from consumer.targets.shared.name_limits import require_column_names
from consumer.targets.sql import qualify_table
from schemas.table.model import Table, UniqueIndex

if TYPE_CHECKING:
    from consumer.targets.postgres.connection import PostgresLink

_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"""
_INDEXES = """
SELECT i.relname::text, k.oid IS NOT NULL, x.indisprimary, ARRAY(
  SELECT a.attname::text FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS c (number, place)
  JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = c.number
  WHERE c.place <= x.indnkeyatts ORDER BY c.place)
FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
LEFT JOIN pg_catalog.pg_constraint k ON k.conindid = x.indexrelid AND k.conrelid = x.indrelid
  AND k.contype IN ('p', 'u')
WHERE x.indrelid = %s::regclass AND x.indisunique ORDER BY i.relname"""
_TAKEN = """
SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = ANY(%s)"""
#: (column, kind of the object that uses it, its name, the statement that removes it)
_USED = """
SELECT a.attname::text, u.what, u.name, u.remedy FROM (
  SELECT d.refobjsubid AS number, k.what, v.oid::regclass::text AS name,
    'DROP ' || upper(k.what) || ' ' || v.oid::regclass AS remedy
  FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid JOIN pg_catalog.pg_class v
    ON v.oid = r.ev_class
  CROSS JOIN LATERAL (SELECT CASE v.relkind WHEN 'm' THEN 'materialized view' ELSE 'view' END AS what) AS k
  WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = %s::regclass AND v.oid <> d.refobjid
  UNION SELECT d.refobjsubid, 'generated column', g.attname::text,
    'ALTER TABLE ' || f.adrelid::regclass || ' DROP COLUMN ' || quote_ident(g.attname)
  FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_attrdef f ON f.oid = d.objid
  JOIN pg_catalog.pg_attribute g ON g.attrelid = f.adrelid AND g.attnum = f.adnum
  WHERE d.classid = 'pg_attrdef'::regclass AND d.refobjid = %s::regclass AND d.refobjsubid <> f.adnum
  UNION SELECT unnest(c.conkey), 'check constraint', c.conname::text,
    'ALTER TABLE ' || c.conrelid::regclass || ' DROP CONSTRAINT ' || quote_ident(c.conname)
  FROM pg_catalog.pg_constraint c WHERE c.contype = 'c' AND c.conrelid = %s::regclass
) AS u JOIN pg_catalog.pg_attribute a ON a.attnum = u.number WHERE a.attrelid = %s::regclass
ORDER BY 1, 2, 3"""
_OF_TYPES = frozenset({"view", "materialized view", "generated column"})


class PostgresAlterer:
    """Changes tables of PostgreSQL; see `consumer.targets.dialect_components.TableAlterer`."""

    transactional = True

    def __init__(self, link: PostgresLink) -> None:
        self._link = link

    def render_statements(self, change: AlterTable | DropTable) -> Iterator[str]:
        table = change.table
        name = qualify_table(quote, table.db, table.name)
        if isinstance(change, DropTable):
            yield f"DROP TABLE IF EXISTS {name}"
            return
        require_column_names(f"{table.db}.{table.name}", list_new_names(change), explain_column_name)
        yield f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"
        place = qualify_table(bare, table.db, table.name)
        types = {str(column): str(text) for column, text in self._link.execute(_COLUMNS, [place])}
        require_same_columns(table, list(types))
        real = self._read_real_table(place, types)
        self._refuse_what_is_used(change, place, real)
        taken = self._list_taken_names(change)

        def free_name(index: UniqueIndex) -> str:
            own = self.get_index_name(table, index)
            return (
                own
                if own not in taken
                else build_index_name(table.name, "_".join((index.name, *index.columns)))
            )

        yield from render_statements(change, real, free_name)

    def _read_real_table(self, place: str, types: Mapping[str, str]) -> PostgresRealTable:
        found = self._link.execute(_INDEXES, [place])
        indexes = tuple(
            RealIndex(str(name), tuple(columns), bool(constraint), bool(primary))  # type: ignore[arg-type]
            for name, constraint, primary, columns in found
        )
        [(version,)] = self._link.execute("SELECT current_setting('server_version_num')", [])
        arrays = frozenset(column for column, text in types.items() if text == "real[]")
        return PostgresRealTable(indexes, int(str(version)), read_native_types(self._link), arrays)

    def _list_taken_names(self, change: AlterTable) -> frozenset[str]:
        added = [step.index for step in change.steps if isinstance(step, AddUnique)]
        names = [self.get_index_name(change.table, index) for index in added]
        return frozenset(str(row[0]) for row in self._link.execute(_TAKEN, [change.table.db, names]))

    def _refuse_what_is_used(self, change: AlterTable, place: str, real: PostgresRealTable) -> None:
        """Raise TargetConfigError for columns that other objects use.

        The server would refuse the change without a remedy, or silently drop a check constraint with
        its column.
        """
        concerned = _find_affected_columns(change, real)
        if not concerned:
            return
        for column, what, name, remedy in self._link.execute(_USED, [place] * 4):
            if what in concerned.get(str(column), ()):
                table = change.table
                raise TargetConfigError(
                    f"target table {table.db}.{table.name}: column {column} cannot be changed as at the "
                    f"source, for {what} {name} uses it",
                    f"run {remedy} in the target, and create it again afterwards",
                )

    def get_index_name(self, table: Table, index: UniqueIndex) -> str:
        return build_index_name(table.name, index.name)

    @contextmanager
    def extend_lock_wait(self, lock_wait_s: float) -> Iterator[None]:
        """Set the lock wait in the open transaction; if that fails, its end restores the setting."""
        setting = "SELECT set_config('lock_timeout', %s, true)"
        [(before,)] = self._link.execute("SELECT current_setting('lock_timeout')", [])
        self._link.execute(setting, [f"{round(lock_wait_s * 1000)}ms"])
        yield
        self._link.execute(setting, [before])


def _find_affected_columns(change: AlterTable, real: PostgresRealTable) -> dict[str, frozenset[str]]:
    """Return column → the kinds of objects that prevent its change.

    A check constraint may allow another type, but is dropped with its column.
    """
    found: dict[str, frozenset[str]] = {}
    for step in change.steps:
        if isinstance(step, DropColumn):
            found[step.name] = _OF_TYPES | {"check constraint"}
        elif isinstance(step, ChangeColumn) and is_retyped(step, real.list_native_types(step.now.name)):
            found[step.desired.name] = _OF_TYPES
    return found
