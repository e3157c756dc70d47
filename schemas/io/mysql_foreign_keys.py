"""Foreign keys of MySQL and MariaDB, as visible to a user that may only SELECT from the child table.

MariaDB shows information_schema.referential_constraints only to users with more than SELECT on the
child, without an error for others; SHOW CREATE TABLE needs only SELECT on both servers. Its text is
parsed strictly: a foreign key that information_schema.key_column_usage names but the text does not show
is an error, never "no foreign key".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.errors import SchemaError

if TYPE_CHECKING:
    from pymysql.connections import Connection

_NAME = r"`(?:[^`]|``)+`"
_RULE = r"(?:CASCADE|SET NULL|SET DEFAULT|NO ACTION|RESTRICT)"
#: In names of constraints and columns MariaDB does not double backticks, but in those of tables it
#: does.
_LINE = re.compile(
    rf"^ *CONSTRAINT `(?P<name>.+?)` FOREIGN KEY (?:`.+?` )?\(`(?P<columns>.+)`\) "
    rf"REFERENCES (?:(?P<db>{_NAME})\.)?(?P<table>{_NAME}) \(`.+`\)"
    rf"(?: ON DELETE (?P<delete>{_RULE}))?(?: ON UPDATE (?P<update>{_RULE}))?,?$",
    re.MULTILINE,
)
_KEYS = """
SELECT DISTINCT constraint_name FROM information_schema.key_column_usage
WHERE table_schema = %s AND table_name = %s AND referenced_table_name IS NOT NULL"""
_DENIED = 1142  # ER_TABLEACCESS_DENIED_ERROR
_QUIET = frozenset({"NO ACTION", "RESTRICT"})


class ForeignKey(NamedTuple):
    """A foreign key."""

    name: str
    columns: tuple[str, ...]
    parent: tuple[str, str]
    """(database, table)."""
    on_delete: str
    """As in SQL; RESTRICT if the definition has no rule."""
    on_update: str

    @property
    def action(self) -> str:
        """The actions on the child's rows, for example "ON DELETE CASCADE ON UPDATE SET NULL"; empty:
        none.
        """
        rules = (("ON DELETE", self.on_delete), ("ON UPDATE", self.on_update))
        return " ".join(f"{when} {rule}" for when, rule in rules if rule not in _QUIET)


def parse_foreign_keys(create: str, db: str) -> tuple[ForeignKey, ...]:
    """Return the foreign keys in a SHOW CREATE TABLE of a table in `db`. Pure."""
    return tuple(
        ForeignKey(
            name=match["name"].replace("``", "`"),
            columns=tuple(match["columns"].replace("``", "`").split("`, `")),
            parent=(_normalize_name(match["db"]) if match["db"] else db, _normalize_name(match["table"])),
            on_delete=match["delete"] or "RESTRICT",
            on_update=match["update"] or "RESTRICT",
        )
        for match in _LINE.finditer(create)
    )


def read_foreign_keys(conn: Connection[Any], db: str, table: str) -> tuple[ForeignKey, ...]:
    """Return the foreign keys of a base table. Raises SchemaError if the action of one cannot be read."""
    import pymysql
    from pymysql.cursors import Cursor

    with conn.cursor(Cursor) as cursor:
        try:
            cursor.execute(f"SHOW CREATE TABLE {_quote_name(db)}.{_quote_name(table)}")
        except pymysql.MySQLError as error:
            if error.args[0] != _DENIED:
                raise
            raise SchemaError(
                f"{db}.{table} may be read in part only ({error.args[1]})",
                f"GRANT SELECT ON {_quote_name(db)}.{_quote_name(table)}, or exclude the table",
            ) from error
        row = cursor.fetchone()
        found = parse_foreign_keys(str(row[1]) if row else "", db)
        cursor.execute(_KEYS, (db, table))
        named = {str(each[0]).replace("``", "`") for each in cursor.fetchall()}
    hidden = named - {key.name for key in found}
    if hidden:
        raise SchemaError(
            f"the actions of foreign keys of {db}.{table} cannot be read ({', '.join(sorted(hidden))})",
            f"GRANT REFERENCES ON {_quote_name(db)}.*, or exclude the table",
        )
    return found


def list_cascading_foreign_keys(conn: Connection[Any], db: str, table: str) -> list[str]:
    """Return a line for each foreign key of the table with an action that changes its rows.

    InnoDB carries out CASCADE, SET NULL and SET DEFAULT below the binlog (MariaDB, and MySQL before
    9.6): such changes would never be captured. Raises SchemaError like `read_foreign_keys`.
    """
    return describe_foreign_keys(read_foreign_keys(conn, db, table))


def describe_foreign_keys(keys: Iterable[ForeignKey]) -> list[str]:
    """Return a line for each of `keys` that has an action, sorted by name. Pure."""
    return [
        f"{key.name}: {key.action} (references {'.'.join(key.parent)})" for key in sorted(keys) if key.action
    ]


def _normalize_name(name: str) -> str:
    return name[1:-1].replace("``", "`")


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
