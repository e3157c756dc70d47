"""The conversion of columns in information_schema of MySQL and MariaDB to the neutral model. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from schemas.errors import UnsupportedTypeError
from schemas.io.catalog_form import CatalogForm
from schemas.table.model import NUMBERED, Column, ColumnType, Kind, TextOf, convert_labels_to_numbers
from schemas.table.text_types import normalize_text
from schemas.table.typemap import MYSQL_CATALOG


class CatalogColumn(NamedTuple):
    """A row of information_schema.columns, as schemas.io.mysql_catalog selects it."""

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
    expression: str | None = None


#: What MariaDB before 10.2 shows of a generated column.
_GENERATED_BEFORE_10_2 = frozenset({"virtual", "persistent"})


def build_column(row: CatalogColumn, form: CatalogForm) -> Column:
    """Return the neutral column. Raises UnsupportedTypeError. `form`: of the catalog that shows it."""
    extra, quoted = row.extra.lower(), form.has_quoted_defaults
    type_ = build_column_type(row)
    # For a column of label numbers the default is shown as labels, which are not values of it.
    no_literal = "default_generated" in extra or type_.kind in NUMBERED.values()
    literal = None if no_literal else _parse_default(row.default, type_, quoted=quoted)
    generated = " generated" in extra or extra in _GENERATED_BEFORE_10_2
    if generated and not form.shows_computations:
        raise UnsupportedTypeError(
            f"column {row.name} is computed ({row.extra}), and the catalog of this version of the server "
            "does not show how: a change of its expression would change rows without an entry in the log",
            "exclude the table",
        )
    return Column(
        name=row.name,
        type=type_,
        nullable=row.nullable == "YES",
        default=literal,
        auto_increment="auto_increment" in extra,
        generated=generated,
        expression=(row.expression or None) if generated else None,
        default_expression=_parse_default_expression(row.default, literal, quoted=quoted),
    )


def build_column_type(row: CatalogColumn) -> ColumnType:
    """Return the neutral type of a column. Raises UnsupportedTypeError."""
    fixed = MYSQL_CATALOG.get(row.data_type.lower())
    if fixed is None:
        raise UnsupportedTypeError(
            f"column {row.name}: type {row.declared} is not supported", "exclude the table"
        )
    if "text_of" in fixed:
        return replace(ColumnType(**fixed), precision=_read_dimensions(row.declared))
    kind: Kind = fixed["kind"]
    return convert_labels_to_numbers(
        ColumnType(
            charset=row.charset,
            collation=row.collation,
            **{**fixed, **_FACTS.get(kind, _read_no_attributes)(row)},
        )
    )


def _read_dimensions(declared: str) -> int:
    """Return the most numbers of a VECTOR; 0 for other types with a text."""
    found = re.fullmatch(r"vector\((\d+)\)", declared.lower())
    return int(found[1]) if found else 0


def _read_no_attributes(_: CatalogColumn) -> dict[str, Any]:
    return {}


def _read_signedness(row: CatalogColumn) -> dict[str, Any]:
    return {"unsigned": bool(re.search(r"\b(unsigned|zerofill)\b", row.declared.lower()))}


def _read_number_attributes(row: CatalogColumn) -> dict[str, Any]:
    return {"precision": row.precision, "scale": row.scale, **_read_signedness(row)}


def _read_character_length(row: CatalogColumn) -> dict[str, Any]:
    return {"length": row.characters}


def _read_octet_length(row: CatalogColumn) -> dict[str, Any]:
    return {"length": row.octets}


def _read_fraction(row: CatalogColumn) -> dict[str, Any]:
    return {"fsp": row.fsp or 0}


def _read_labels(row: CatalogColumn) -> dict[str, Any]:
    return {"members": _parse_members(row.name, row.declared, row.charset)}


#: Kind → reader of the attributes that the catalog's row gives.
_FACTS: dict[Kind, Callable[[CatalogColumn], dict[str, Any]]] = {
    **dict.fromkeys((Kind.INT, Kind.FLOAT, Kind.DOUBLE), _read_signedness),
    Kind.DECIMAL: _read_number_attributes,
    Kind.BIT: lambda row: {"length": row.precision},
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR), _read_character_length),
    **dict.fromkeys((Kind.TEXT, Kind.BINARY, Kind.VARBINARY, Kind.BLOB), _read_octet_length),
    **dict.fromkeys((Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), _read_fraction),
    **dict.fromkeys((Kind.ENUM, Kind.SET), _read_labels),
    Kind.GEOMETRY: lambda row: {"srid": row.srid},
}


_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'(?:,|\)$)", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "b": "\b"}
_BEYOND_BMP = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})


def parse_members(declared: str) -> tuple[str, ...]:
    """Return the labels of "enum('a','it''s')" or "set(…)", unescaped."""
    return tuple(_unescape_literal(each) for each in _MEMBER.findall(declared.partition("(")[2]))


def _unescape_literal(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]) if match[1] else "'", text)


def _parse_members(name: str, declared: str, charset: str | None) -> tuple[str, ...]:
    members = parse_members(declared)
    if charset in _BEYOND_BMP and any("?" in member for member in members):
        # information_schema is utf8mb3: it shows "?" for an emoji, like for a real question mark
        raise UnsupportedTypeError(
            f"column {name}: a label holds '?', which information_schema also shows "
            "for characters beyond U+FFFF",
            "rename the label, or exclude the table",
        )
    return members


_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_BINARY_KINDS = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BLOB, Kind.GEOMETRY})


def _parse_default(shown: str | None, type_: ColumnType, *, quoted: bool) -> str | None:
    """Return the default as plain text; None for expressions and for binary kinds (rows always have
    every value).
    """
    if shown is None or type_.kind in _BINARY_KINDS:
        return None
    if type_.kind is Kind.BIT:
        return str(int(shown[2:-1], 2)) if shown.startswith("b'") else None
    if type_.kind in (Kind.DATETIME, Kind.TIMESTAMP) and shown.upper().startswith("CURRENT_TIMESTAMP"):
        return None  # MySQL before 8.0 does not mark it
    literal = re.fullmatch(r"'(.*)'", shown, re.DOTALL) if quoted else None
    if literal:
        shown = _unescape_literal(literal[1])
    elif quoted and not _NUMBER.fullmatch(shown):
        return None
    if type_.text_of is not None:
        return _normalize_default(shown, type_.text_of)
    return _strip_zero_padding(shown) if type_.kind in (Kind.INT, Kind.DECIMAL) else shown


def _normalize_default(shown: str, text_of: TextOf) -> str | None:
    """Return a default in the spelling of values; None, so that it counts as an expression, if it has another
    form.
    """
    try:
        return normalize_text(text_of, shown)
    except ValueError:
        return None


def _parse_default_expression(shown: str | None, literal: str | None, *, quoted: bool) -> str | None:
    """Return the default that is not a literal of this model, in the server's notation.

    The server computes it for rows that give no value.
    """
    if literal is not None or (quoted and shown == "NULL"):
        return None
    return shown


def _strip_zero_padding(number: str) -> str:
    """Return a number without leading zeros, which ZEROFILL shows in defaults."""
    return re.sub(r"^(-?)0+(?=\d)", r"\1", number)
