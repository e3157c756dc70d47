"""Table definitions of MySQL and MariaDB, read from information_schema into the neutral model.

Capture reads a table at its first sight and at each DDL barrier; `check` reads what it has to judge. Nothing here
writes. What differs between the two servers is in `_Flavour`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.errors import ExpressionIndexError, NoKeyError, TableNotFoundError, UnsupportedTypeError
from schemas.table import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.typemap import MYSQL_CATALOG

if TYPE_CHECKING:
    from pymysql.connections import Connection

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_REPLICATED = ("BASE TABLE", "SYSTEM VERSIONED")


@dataclass(frozen=True)
class _Flavour:
    """Where the catalogues differ: an expression column for indexes, srs_id, defaults as SQL literals, collation names."""

    expression: str
    srs_id: str
    quoted_defaults: bool
    collation_name: str


_MYSQL = _Flavour("expression", "srs_id", quoted_defaults=False, collation_name="collation_name")
_MARIADB = _Flavour("NULL", "NULL", quoted_defaults=True, collation_name="full_collation_name")

_COLUMNS = """
SELECT column_name, column_default, is_nullable, data_type, column_type, character_maximum_length,
       character_octet_length, numeric_precision, numeric_scale, datetime_precision, character_set_name,
       collation_name, extra, {srs_id}
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
_INDEXES = """
SELECT index_name, column_name, sub_part, {expression}
FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s AND non_unique = 0
ORDER BY index_name, seq_in_index"""
_TABLE = """
SELECT t.table_schema, t.table_name, t.table_type, c.character_set_name, t.table_collation
FROM information_schema.tables t
LEFT JOIN information_schema.collation_character_set_applicability c ON c.{collation_name} = t.table_collation
WHERE t.table_schema = %s AND t.table_name = %s"""
_CASCADES = """
SELECT constraint_name, delete_rule, update_rule, unique_constraint_schema, referenced_table_name
FROM information_schema.referential_constraints
WHERE constraint_schema = %s AND table_name = %s ORDER BY constraint_name"""


def read_table(conn: Connection[Any], db: str, name: str) -> Table:
    """Read the definition of `db`.`name`.

    Raises TableNotFoundError, NoKeyError, ExpressionIndexError, UnsupportedTypeError. Three queries: a DDL in between
    can mix two definitions, so capture reads at a barrier.
    """
    flavour = _flavour(conn)
    found = _rows(conn, _TABLE.format(collation_name=flavour.collation_name), db, name)
    if not found:
        raise TableNotFoundError(
            f"table {db}.{name} does not exist, or this user may not see it: check the name, or GRANT SELECT ON `{db}`.*"
        )
    schema, table, table_type, charset, collation = found[0]
    if table_type != "BASE TABLE":
        raise UnsupportedTypeError(
            f"{db}.{name} is a {table_type}: only ordinary tables can be captured, exclude it"
        )
    rows = _rows(conn, _COLUMNS.format(srs_id=flavour.srs_id), db, name)
    columns = tuple(_column(CatalogColumn(*row), flavour) for row in rows)
    indexes = _indexes(_rows(conn, _INDEXES.format(expression=flavour.expression), db, name), f"{db}.{name}")
    key = choose_key(columns, indexes, f"{db}.{name}")
    rest = tuple(index for index in indexes if index is not key)
    return Table(
        db=schema, name=table, columns=columns, key=key, unique=rest, charset=charset, collation=collation
    )


def choose_key(columns: Sequence[Column], indexes: Sequence[UniqueIndex], name: str) -> UniqueIndex:
    """Return the primary key, else the first unique index over NOT NULL columns (by column names, then name).

    Raises NoKeyError.
    """
    nullable = {column.name for column in columns if column.nullable}
    for index in indexes:
        if index.name == "PRIMARY":
            return index
    fit = [index for index in indexes if nullable.isdisjoint(index.columns)]
    if not fit:
        raise NoKeyError(
            f"table {name} has neither a primary key nor a unique index over NOT NULL columns, so its rows cannot be "
            "told apart: add a primary key, or exclude the table"
        )
    return min(fit, key=lambda index: (index.columns, index.name))


def list_tables(conn: Connection[Any], patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Return the (database, table) that `patterns` select, sorted; never those of system schemas.

    A pattern is "db.table" with `*` and `?`; "!" excludes. The last pattern that matches a table decides.
    """
    rows = _rows(conn, "SELECT table_schema, table_name, table_type FROM information_schema.tables")
    names = sorted((db, table) for db, table, kind in rows if kind in _REPLICATED)
    return [(db, table) for db, table in names if is_selected(patterns, db, table)]


def is_selected(patterns: Iterable[str], db: str, table: str) -> bool:
    """Return whether `patterns` (see list_tables) select the table. Pure."""
    if db.lower() in SYSTEM_SCHEMAS:
        return False
    selected = False
    for pattern in patterns:
        if _glob(pattern.removeprefix("!")).fullmatch(f"{db}.{table}"):
            selected = not pattern.startswith("!")
    return selected


def _glob(pattern: str) -> re.Pattern[str]:
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    return re.compile("".join(parts), re.DOTALL)


def cascading_foreign_keys(conn: Connection[Any], db: str, table: str) -> list[str]:
    """Return a line for each foreign key of the table whose action changes its rows (CASCADE, SET NULL, SET DEFAULT).

    InnoDB carries these out below the binlog (MariaDB, and MySQL before 9.6): such changes would never be captured.
    """
    return [
        f"{name}: {action} (references {parent_db}.{parent})"
        for name, on_delete, on_update, parent_db, parent in _rows(conn, _CASCADES, db, table)
        if (action := _actions(on_delete, on_update))
    ]


def _actions(on_delete: str, on_update: str) -> str:
    rules = (("ON DELETE", on_delete), ("ON UPDATE", on_update))
    return " ".join(f"{when} {rule}" for when, rule in rules if rule not in ("NO ACTION", "RESTRICT"))


def collations(conn: Connection[Any]) -> frozenset[str]:
    """Return the full names of all collations of the server (for schemas.collations.chooser)."""
    name = _flavour(conn).collation_name
    query = f"SELECT {name} FROM information_schema.collation_character_set_applicability"
    return frozenset(row[0] for row in _rows(conn, query))


def _flavour(conn: Connection[Any]) -> _Flavour:
    return _MARIADB if "MariaDB" in _rows(conn, "SELECT VERSION()")[0][0] else _MYSQL


def _rows(conn: Connection[Any], query: str, *parameters: str) -> list[tuple[Any, ...]]:
    from pymysql.cursors import Cursor

    with conn.cursor(Cursor) as cursor:
        cursor.execute(query, parameters or None)
        return list(cursor.fetchall())


def _indexes(rows: Iterable[tuple[Any, ...]], table: str) -> tuple[UniqueIndex, ...]:
    parts: dict[str, list[IndexPart]] = {}
    for name, column, prefix, expression in rows:
        if column is None:
            raise ExpressionIndexError(
                f"unique index {name} of {table} is over an expression ({expression}): its values are not in the binlog, "
                "so changes cannot be put in order. Put the expression in a stored generated column and index that, "
                "or exclude the table"
            )
        parts.setdefault(name, []).append(IndexPart(column=column, prefix=prefix))
    return tuple(UniqueIndex(name=name, parts=tuple(columns)) for name, columns in parts.items())


class CatalogColumn(NamedTuple):
    """A row of information_schema.columns, as _COLUMNS selects it."""

    name: str
    default: str | None
    nullable: str
    data_type: str
    declared: str
    characters: int | None
    octets: int | None
    precision: int | None
    scale: int | None
    fsp: int | None
    charset: str | None
    collation: str | None
    extra: str
    srid: int | None


def _column(row: CatalogColumn, flavour: _Flavour) -> Column:
    extra = row.extra.lower()
    type_ = column_type(row)
    return Column(
        name=row.name,
        type=type_,
        nullable=row.nullable == "YES",
        default=None if "default_generated" in extra else _default(row.default, type_, flavour),
        auto_increment="auto_increment" in extra,
        generated=" generated" in extra,
    )


def column_type(row: CatalogColumn) -> ColumnType:
    """Return the neutral type of a column. Raises UnsupportedTypeError."""
    fixed = MYSQL_CATALOG.get(row.data_type.lower())
    if fixed is None:
        raise UnsupportedTypeError(
            f"column {row.name}: type {row.declared} is not supported: exclude the table"
        )
    kind: Kind = fixed["kind"]
    return ColumnType(
        charset=row.charset, collation=row.collation, **{**fixed, **_FACTS.get(kind, _no_facts)(row)}
    )


def _no_facts(_: CatalogColumn) -> dict[str, Any]:
    return {}


def _signedness(row: CatalogColumn) -> dict[str, Any]:
    return {"unsigned": bool(re.search(r"\b(unsigned|zerofill)\b", row.declared.lower()))}


def _numbers(row: CatalogColumn) -> dict[str, Any]:
    return {"precision": row.precision, "scale": row.scale, **_signedness(row)}


def _characters(row: CatalogColumn) -> dict[str, Any]:
    return {"length": row.characters}


def _octets(row: CatalogColumn) -> dict[str, Any]:
    return {"length": row.octets}


def _fraction(row: CatalogColumn) -> dict[str, Any]:
    return {"fsp": row.fsp or 0}


def _labels(row: CatalogColumn) -> dict[str, Any]:
    return {"members": _members(row.name, row.declared, row.charset)}


#: What the catalogue's row adds to a kind.
_FACTS: dict[Kind, Callable[[CatalogColumn], dict[str, Any]]] = {
    **dict.fromkeys((Kind.INT, Kind.FLOAT, Kind.DOUBLE), _signedness),
    Kind.DECIMAL: _numbers,
    Kind.BIT: lambda row: {"length": row.precision},
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR), _characters),
    **dict.fromkeys((Kind.TEXT, Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _octets),
    **dict.fromkeys((Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), _fraction),
    **dict.fromkeys((Kind.ENUM, Kind.SET), _labels),
    Kind.GEOMETRY: lambda row: {"srid": row.srid},
}


_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'(?:,|\)$)", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "b": "\b"}
_BEYOND_BMP = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})


def parse_members(declared: str) -> tuple[str, ...]:
    """Return the labels of "enum('a','it''s')" or "set(…)", unescaped."""
    return tuple(_unescape(each) for each in _MEMBER.findall(declared.partition("(")[2]))


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]) if match[1] else "'", text)


def _members(name: str, declared: str, charset: str | None) -> tuple[str, ...]:
    members = parse_members(declared)
    if charset in _BEYOND_BMP and any("?" in member for member in members):
        # information_schema is utf8mb3: it shows "?" for an emoji, and nothing tells it from a real question mark
        raise UnsupportedTypeError(
            f"column {name}: a label holds '?', which information_schema also shows for characters beyond U+FFFF: "
            "rename the label, or exclude the table"
        )
    return members


_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_BINARY_KINDS = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BLOB, Kind.GEOMETRY})


def _default(shown: str | None, type_: ColumnType, flavour: _Flavour) -> str | None:
    """The default as plain text; None for expressions and for binary kinds (rows always carry every value)."""
    if shown is None or type_.kind in _BINARY_KINDS:
        return None
    if type_.kind is Kind.BIT:
        return str(int(shown[2:-1], 2)) if shown.startswith("b'") else None
    quoted = re.fullmatch(r"'(.*)'", shown, re.DOTALL) if flavour.quoted_defaults else None
    if quoted:
        shown = _unescape(quoted[1])
    elif flavour.quoted_defaults and not _NUMBER.fullmatch(shown):
        return None
    return _without_padding(shown) if type_.kind in (Kind.INT, Kind.DECIMAL) else shown


def _without_padding(number: str) -> str:
    """ZEROFILL shows defaults with leading zeros."""
    return re.sub(r"^(-?)0+(?=\d)", r"\1", number)
