"""The type map: neutral column types ↔ the types of MySQL, MariaDB and PostgreSQL, as tables of data.

docs/reference/types.md is generated from these tables (tools/docs/typemap.py). A rule matches if its
kind and all attributes that it names match; the first match counts. `{…}` in a template is an attribute
of the ColumnType.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from schemas.errors import UnsupportedTypeError
from schemas.table.charsets import LONGEST, as_long
from schemas.table.equality import are_wire_equal as are_wire_equal
from schemas.table.model import ColumnType, Kind, TextOf


@dataclass(frozen=True)
class TypeRule:
    """A rule: types of `kind` with attributes equal to `when` are rendered as `template`; `note`: a
    remark for readers.
    """

    kind: Kind
    template: str
    when: Mapping[str, object] = field(default_factory=dict)
    note: str = ""

    def is_rule_for(self, type_: ColumnType) -> bool:
        return self.kind is type_.kind and all(
            getattr(type_, name) == value for name, value in self.when.items()
        )

    def render_type(self, type_: ColumnType) -> str:
        return self.template.format(
            precision=type_.precision, scale=type_.scale, length=type_.length, fsp=type_.fsp,
            members=",".join(quote_literal(member) for member in type_.members),
            unsigned=" unsigned" if type_.unsigned else "",
        )  # fmt: skip


WIDEST_DECIMAL = (65, 30)
"""Precision and scale of the column for decimals of any scale, in databases without such a type; it
refuses values that do not fit.
"""

MAX_PGVECTOR = 16_000
"""Most numbers of a `vector` of pgvector; MySQL's and MariaDB's have up to 16,383."""
_BIGINT_NOTE = "it has no unsigned 64-bit integer"
_PGVECTOR_NOTE = "`vector(3)` where the extension pgvector is installed in the target's database"
POSTGRES_TYPE_RULES: tuple[TypeRule, ...] = (
    TypeRule(Kind.INT, "smallint", {"bits": 8}),
    TypeRule(Kind.INT, "integer", {"bits": 16, "unsigned": True}),
    TypeRule(Kind.INT, "smallint", {"bits": 16}),
    TypeRule(Kind.INT, "integer", {"bits": 24}),
    TypeRule(Kind.INT, "bigint", {"bits": 32, "unsigned": True}),
    TypeRule(Kind.INT, "integer", {"bits": 32}),
    TypeRule(Kind.INT, "numeric(20,0)", {"bits": 64, "unsigned": True}, _BIGINT_NOTE),
    TypeRule(Kind.INT, "bigint", {"bits": 64}),
    TypeRule(Kind.DECIMAL, "numeric", {"precision": 0}, "of any scale: Oracle's NUMBER"),
    TypeRule(Kind.DECIMAL, "numeric({precision},{scale})"),
    TypeRule(Kind.FLOAT, "real"),
    TypeRule(Kind.DOUBLE, "double precision"),
    TypeRule(Kind.BIT, "bit({length})"),
    TypeRule(Kind.YEAR, "smallint"),
    TypeRule(Kind.CHAR, "uuid", {"text_of": TextOf.UUID}),
    *(TypeRule(Kind.VARCHAR, "inet", {"text_of": one}) for one in (TextOf.INET4, TextOf.INET6, TextOf.INET)),
    TypeRule(Kind.TEXT, "real[]", {"text_of": TextOf.VECTOR}, _PGVECTOR_NOTE),
    TypeRule(Kind.CHAR, "varchar(1)", {"length": 0}, "it has no zero-length type"),
    TypeRule(Kind.VARCHAR, "varchar(1)", {"length": 0}, "it has no zero-length type"),
    TypeRule(Kind.CHAR, "varchar({length})", {}, "a NUL character is refused"),
    TypeRule(Kind.VARCHAR, "varchar({length})", {}, "a NUL character is refused"),
    TypeRule(Kind.TEXT, "text", {}, "a NUL character is refused"),
    TypeRule(Kind.BINARY, "bytea"),
    TypeRule(Kind.VARBINARY, "bytea"),
    TypeRule(Kind.BLOB, "bytea"),
    TypeRule(Kind.DATE, "date", {}, "zero and invalid dates are refused"),
    TypeRule(Kind.TIME, "interval({fsp})", {}, "MySQL's TIME is a duration of up to ±838 hours"),
    TypeRule(Kind.DATETIME, "timestamp({fsp})", {}, "wall time; zero and invalid dates are refused"),
    TypeRule(Kind.TIMESTAMP, "timestamptz({fsp})", {}, "an instant; the zero timestamp is refused"),
    TypeRule(Kind.JSON, "jsonb", {}, "the same document, not the same text; \\u0000 is refused"),
    TypeRule(Kind.ENUM, "text"),
    TypeRule(Kind.SET, "text", {}, "labels joined by commas"),
    TypeRule(Kind.ENUM_NUMBER, "text", {}, "the number's digits"),
    TypeRule(Kind.SET_NUMBER, "text", {}, "the number's digits"),
    TypeRule(Kind.GEOMETRY, "bytea", {}, "EWKB, as PostGIS reads it with ST_GeomFromEWKB"),
)

_UNSIGNED = "{unsigned}"
_CI_NOTE = "character set and collation are kept, or [replaced](#collations)"
_NATIVE_NOTE = "where the server has the source's type (MariaDB), that type"
_VECTOR_NOTE = "refused by servers without it: MySQL has it from 9.0, MariaDB from 11.7"
_OLD_TYPES = "TINYTEXT, TEXT, MEDIUMTEXT and LONGTEXT by their maximal length"
MYSQL_TYPE_RULES: tuple[TypeRule, ...] = (
    TypeRule(Kind.INT, "tinyint" + _UNSIGNED, {"bits": 8}),
    TypeRule(Kind.INT, "smallint" + _UNSIGNED, {"bits": 16}),
    TypeRule(Kind.INT, "mediumint" + _UNSIGNED, {"bits": 24}),
    TypeRule(Kind.INT, "int" + _UNSIGNED, {"bits": 32}),
    TypeRule(Kind.INT, "bigint" + _UNSIGNED, {"bits": 64}),
    TypeRule(
        Kind.DECIMAL,
        "decimal({},{})".format(*WIDEST_DECIMAL),
        {"precision": 0},
        "what it would round is refused",
    ),
    TypeRule(Kind.DECIMAL, "decimal({precision},{scale})" + _UNSIGNED),
    TypeRule(Kind.FLOAT, "float" + _UNSIGNED),
    TypeRule(Kind.DOUBLE, "double" + _UNSIGNED),
    TypeRule(Kind.BIT, "bit({length})"),
    TypeRule(Kind.YEAR, "year"),
    TypeRule(Kind.CHAR, "char({length})", {"text_of": TextOf.UUID}, _NATIVE_NOTE),
    TypeRule(Kind.VARCHAR, "varchar({length})", {"text_of": TextOf.INET4}, _NATIVE_NOTE),
    TypeRule(Kind.VARCHAR, "varchar({length})", {"text_of": TextOf.INET6}, _NATIVE_NOTE),
    TypeRule(Kind.TEXT, "vector({precision})", {"text_of": TextOf.VECTOR}, _VECTOR_NOTE),
    TypeRule(Kind.CHAR, "char({length})", {}, _CI_NOTE),
    TypeRule(Kind.VARCHAR, "varchar({length})", {}, _CI_NOTE),
    TypeRule(Kind.TEXT, "tinytext", {"length": 2**8 - 1}, _OLD_TYPES),
    TypeRule(Kind.TEXT, "text", {"length": 2**16 - 1}),
    TypeRule(Kind.TEXT, "mediumtext", {"length": 2**24 - 1}),
    TypeRule(Kind.TEXT, "longtext"),
    TypeRule(Kind.BINARY, "binary({length})"),
    TypeRule(Kind.VARBINARY, "varbinary({length})"),
    TypeRule(Kind.BLOB, "tinyblob", {"length": 2**8 - 1}),
    TypeRule(Kind.BLOB, "blob", {"length": 2**16 - 1}),
    TypeRule(Kind.BLOB, "mediumblob", {"length": 2**24 - 1}),
    TypeRule(Kind.BLOB, "longblob"),
    TypeRule(Kind.DATE, "date"),
    TypeRule(Kind.TIME, "time({fsp})"),
    TypeRule(Kind.DATETIME, "datetime({fsp})"),
    TypeRule(Kind.TIMESTAMP, "timestamp({fsp})"),
    TypeRule(Kind.JSON, "json", {}, "on MariaDB an alias of longtext with a check"),
    TypeRule(Kind.ENUM, "enum({members})", {}, "the error value (index 0) is refused"),
    TypeRule(Kind.SET, "set({members})"),
    TypeRule(Kind.ENUM_NUMBER, "enum({members})", {}, "the error value (index 0) is refused"),
    TypeRule(Kind.SET_NUMBER, "set({members})"),
    TypeRule(Kind.GEOMETRY, "geometry", {}, "any subtype; the SRID stays in each value"),
)

_ASCII = {"charset": "ascii", "collation": "ascii_bin"}
_INET4_LENGTH, _INET6_LENGTH = 15, 39
_INT = Kind.INT
_VECTOR = {"kind": Kind.TEXT, "length": LONGEST, "text_of": TextOf.VECTOR, **_ASCII}
#: DATA_TYPE of information_schema → attributes fixed by it; length, precision, fsp and members come
#: from the row.
MYSQL_CATALOG: dict[str, dict[str, Any]] = {
    "tinyint": {"kind": _INT, "bits": 8}, "smallint": {"kind": _INT, "bits": 16},
    "mediumint": {"kind": _INT, "bits": 24}, "int": {"kind": _INT, "bits": 32},
    "bigint": {"kind": _INT, "bits": 64}, "decimal": {"kind": Kind.DECIMAL}, "float": {"kind": Kind.FLOAT},
    "double": {"kind": Kind.DOUBLE}, "bit": {"kind": Kind.BIT}, "year": {"kind": Kind.YEAR},
    "char": {"kind": Kind.CHAR}, "varchar": {"kind": Kind.VARCHAR},
    **{key: {"kind": Kind.TEXT} for key in ("tinytext", "text", "mediumtext", "longtext")},
    "binary": {"kind": Kind.BINARY}, "varbinary": {"kind": Kind.VARBINARY},
    **{key: {"kind": Kind.BLOB} for key in ("tinyblob", "blob", "mediumblob", "longblob")},
    "date": {"kind": Kind.DATE}, "time": {"kind": Kind.TIME}, "datetime": {"kind": Kind.DATETIME},
    "timestamp": {"kind": Kind.TIMESTAMP}, "json": {"kind": Kind.JSON}, "enum": {"kind": Kind.ENUM},
    "set": {"kind": Kind.SET},
    **{key: {"kind": Kind.GEOMETRY} for key in ("geometry", "point", "linestring", "polygon", "multipoint",
     "multilinestring", "multipolygon", "geomcollection", "geometrycollection")},
    "uuid": {"kind": Kind.CHAR, "length": 36, "text_of": TextOf.UUID, **_ASCII},
    "inet4": {"kind": Kind.VARCHAR, "length": _INET4_LENGTH, "text_of": TextOf.INET4, **_ASCII},
    "inet6": {"kind": Kind.VARCHAR, "length": _INET6_LENGTH, "text_of": TextOf.INET6, **_ASCII},
    "vector": _VECTOR,
}  # fmt: skip

#: PostgreSQL's format_type() without its parentheses → neutral type; the numbers in them fill the
#: attributes named last.
POSTGRES_CATALOG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "smallint": ({"kind": _INT, "bits": 16}, ()),
    "integer": ({"kind": _INT, "bits": 32}, ()),
    "bigint": ({"kind": _INT, "bits": 64}, ()),
    "boolean": ({"kind": _INT, "bits": 8}, ()),
    "numeric": ({"kind": Kind.DECIMAL}, ("precision", "scale")),
    "real": ({"kind": Kind.FLOAT}, ()),
    "double precision": ({"kind": Kind.DOUBLE}, ()),
    "bit": ({"kind": Kind.BIT, "length": 1}, ("length",)),
    "character": ({"kind": Kind.CHAR, "length": 1}, ("length",)),
    "character varying": ({"kind": Kind.VARCHAR}, ("length",)),
    "text": ({"kind": Kind.TEXT}, ()),
    "real[]": (_VECTOR, ()),
    "vector": (_VECTOR, ("precision",)),
    "uuid": ({"kind": Kind.CHAR, "length": 36}, ()),
    "inet": ({"kind": Kind.VARCHAR, "length": _INET6_LENGTH, "text_of": TextOf.INET}, ()),
    "bytea": ({"kind": Kind.BLOB}, ()),
    "date": ({"kind": Kind.DATE}, ()),
    "interval": ({"kind": Kind.TIME, "fsp": 6}, ("fsp",)),
    "time without time zone": ({"kind": Kind.TIME, "fsp": 6}, ("fsp",)),
    "timestamp without time zone": ({"kind": Kind.DATETIME, "fsp": 6}, ("fsp",)),
    "timestamp with time zone": ({"kind": Kind.TIMESTAMP, "fsp": 6}, ("fsp",)),
    "json": ({"kind": Kind.JSON}, ()),
    "jsonb": ({"kind": Kind.JSON}, ()),
}


def render_postgres_type(type_: ColumnType, native: Container[TextOf] = ()) -> str:
    """Return the PostgreSQL DDL type, such as "numeric(20,0)". Raises UnsupportedTypeError.

    `native`: VECTOR if the type `vector` of pgvector is to be used.
    """
    if type_.text_of is TextOf.VECTOR and type_.text_of in native and type_.precision <= MAX_PGVECTOR:
        return f"vector({type_.precision})" if type_.precision else "vector"
    return _render_by_rules(POSTGRES_TYPE_RULES, type_, "PostgreSQL")


def render_mysql_type(
    type_: ColumnType,
    collation: Callable[[ColumnType], str | None] | None = None,
    native: Container[TextOf] = (),
) -> str:
    """Return the MySQL/MariaDB DDL type with its character set and collation. Raises
    UnsupportedTypeError.

    `collation` chooses the collation on this server (schemas.table.collations.make_collation_chooser);
    without it the source's is used unchanged. `native`: the types of this server that have a text.
    """
    if type_.text_of is TextOf.VECTOR:
        return _render_vector(type_, native)
    if type_.text_of is not None and type_.text_of in native:
        return type_.text_of.value
    type_ = adopt_collation(type_, collation or (lambda own: own.collation))
    rendered = _render_by_rules(MYSQL_TYPE_RULES, type_, "MySQL")
    if type_.collation:
        return f"{rendered} CHARACTER SET {type_.charset} COLLATE {type_.collation}"
    return f"{rendered} CHARACTER SET {type_.charset}" if type_.charset else rendered


def _render_vector(type_: ColumnType, native: Container[TextOf]) -> str:
    if TextOf.VECTOR not in native:
        raise UnsupportedTypeError(
            "this server has no type for VECTOR, which MySQL has from 9.0 and MariaDB from 11.7",
            "leave the column out of the route",
        )
    return _render_by_rules(MYSQL_TYPE_RULES, type_, "MySQL")


def adopt_collation(type_: ColumnType, choose: Callable[[ColumnType], str | None]) -> ColumnType:
    """Return the type of a MySQL/MariaDB column that is created for values of `type_` with the collation that
    `choose` returns.
    """
    chosen = choose(type_)
    charset = chosen.partition("_")[0] if chosen else type_.charset
    return replace(as_long(type_, charset), charset=charset, collation=chosen)


def _render_by_rules(rules: Iterable[TypeRule], type_: ColumnType, server: str) -> str:
    for rule in rules:
        if rule.is_rule_for(type_):
            return rule.render_type(type_)
    raise UnsupportedTypeError(
        f"{server} has no type for {type_.kind} ({type_})", "map the column or leave it out"
    )


_FORMATTED = re.compile(
    r"(?P<base>[a-z ]+?(?:\[\])?)(?:\((?P<numbers>[\d, ]+)\))?(?P<rest> with(?:out)? time zone)?"
)


def convert_postgres_type(formatted: str) -> ColumnType:
    """Return the neutral type of a PostgreSQL column from its `format_type(atttypid, atttypmod)`.

    Raises UnsupportedTypeError (arrays, domains, user-defined types, …).
    """
    match = _FORMATTED.fullmatch(formatted)
    known = POSTGRES_CATALOG.get(match["base"] + (match["rest"] or "")) if match else None
    if match is None or known is None:
        raise UnsupportedTypeError(
            f"PostgreSQL type {formatted!r} has no neutral type", "leave the column out of the route"
        )
    fixed, names = known
    numbers = [int(number) for number in (match["numbers"] or "").split(",") if number]
    return ColumnType(**{**fixed, **dict(zip(names, numbers, strict=False))})


def quote_literal(text: str) -> str:
    """Return a MySQL string literal (valid without NO_BACKSLASH_ESCAPES, which rowlock's sessions never
    set).
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
