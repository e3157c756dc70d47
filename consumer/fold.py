"""Folded bytes of an index's value: what an index holds equal folds equal (design.md §6 Dispatch, finding 10).

The fold serves lanes, tickets and held keys only. Folding too little would let two events of one row or one unique
value run side by side, folding too much only costs parallelism; so each rule here is chosen coarser than any server's:
text is folded to a skeleton of letters and digits (case, accents, widths, ligatures, trailing spaces and everything a
collation may ignore removed), numbers to one form, prefixes are cut before. A collation that is not known to agree
with the skeleton (it is language-tailored, or unknown) keeps only the digits. collations.py has the text part.

tests/integration/test_fold.py holds this against the weights that real servers give to every character.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from consumer.collations import FOLD_DATA_VERSION, text_fold
from schemas.table import Column, IndexPart, Kind, Row, Table, UniqueIndex, Value

FOLD_VERSION = 100 + FOLD_DATA_VERSION
"""Part of the layout: raise it when any rule of this module or of collations.py changes."""

Fold = Callable[[Row], bytes | None]
"""Row of the target table → folded value of the index; None: by the NULL rules it collides with nothing."""
FoldValue = Callable[[Any], bytes]
"""A wire value that is not None → folded bytes."""

_NULL = b"\0N"
_TEXT = {Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET}
_BINARY = {Kind.BINARY, Kind.VARBINARY, Kind.BLOB}
_WHOLE = {Kind.INT, Kind.YEAR, Kind.BIT}


def index_fold(table: Table, index: UniqueIndex, source: Table | None = None) -> Fold:
    """Return the fold of a unique index of the target table `table`; rows are in the order of `table.columns`.

    `source`: the same table as the source has it (with the target's column names), where its collations may differ.
    """
    values = [_value_fold(table, part, source) for part in index.parts]
    at = table.indexes_of(index.columns)
    nulls = not index.nulls_distinct
    if len(at) == 1:
        return _single(at[0], values[0], _NULL if nulls else None)
    pairs = list(zip(at, values, strict=True))

    def fold(row: Row) -> bytes | None:
        parts = []
        for ordinal, of in pairs:
            value = row[ordinal]
            if value is None and not nulls:
                return None
            parts.append(_NULL if value is None else of(value))
        return b"\0".join(parts)

    return fold


def key_fold(table: Table, source: Table | None = None) -> Callable[[Row], bytes]:
    """Return the fold of `table`'s key. Key columns are never NULL; should one be, it folds like any other value."""
    whole = UniqueIndex(name=table.key.name, parts=table.key.parts, nulls_distinct=False)
    return index_fold(table, whole, source)  # type: ignore[return-value]  # without nulls_distinct never None


def folded_text(folded: bytes) -> str:
    """Return a folded value as text that any database can store (`Held.folded`)."""
    return folded.hex()


def _single(at: int, of: FoldValue, null: bytes | None) -> Fold:
    def fold(row: Row) -> bytes | None:
        value = row[at]
        return null if value is None else of(value)

    def fold_integer(row: Row) -> bytes | None:
        value = row[at]
        if type(value) is int:
            return b"%d" % value
        return null if value is None else of(value)

    if of is fold_whole:
        return fold_integer

    return fold


def _value_fold(table: Table, part: IndexPart, source: Table | None) -> FoldValue:
    column = table.column(part.column)
    kind = column.type.kind
    if kind in _TEXT:
        return text_fold(_collations(column, part, source), part.prefix)
    if kind in _BINARY:
        return _binary_fold(part.prefix)
    if kind in _WHOLE:
        return fold_whole
    if kind is Kind.DECIMAL:
        return fold_decimal
    if kind in {Kind.FLOAT, Kind.DOUBLE}:
        return fold_float
    return fold_other


def _collations(column: Column, part: IndexPart, source: Table | None) -> frozenset[str]:
    """Return the collations by which either end may compare the column; {""}: neither names one.

    An end that names none compares exactly (PostgreSQL's default): the other's collation is the coarser then.
    """
    found = {part.collation or column.type.collation or ""}
    if source is not None and column.name in source.column_names:
        found.add(source.column(column.name).type.collation or "")
    return frozenset(found - {""} or {""})


def fold_whole(value: Value) -> bytes:
    """Fold an integer: 7 and "7" alike, so that it does not matter from which side of 2^53 a form comes."""
    if type(value) is int:
        return b"%d" % value
    try:
        return b"%d" % int(value)  # type: ignore[arg-type]  # a str, or refused just below
    except (ValueError, TypeError):
        return fold_other(value)


def fold_decimal(value: Value) -> bytes:
    """Fold a decimal to its normal form: "1.50", "1.5", 1.5 alike, and "-0.00" is 0."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return fold_other(value)
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return b"0" if text in {"-0", "-", ""} else text.encode()


def fold_float(value: Value) -> bytes:
    """Fold a float or double by its 32-bit value: coarser than either, and -0.0 is 0.0."""
    try:
        return struct.pack("<f", float(value) + 0.0)  # type: ignore[arg-type]
    except OverflowError:
        return b"inf"
    except (ValueError, TypeError):
        return fold_other(value)


def fold_other(value: Value) -> bytes:
    """Fold what has one wire form only (dates and times): as text, without trailing zeros of a fraction."""
    text = str(value)
    if "." in text:
        text = text.rstrip("Z").rstrip("0").rstrip(".")
    return text.rstrip("Z ").encode("utf-8", "surrogatepass")


def _binary_fold(prefix: int | None) -> FoldValue:
    """Return the fold of base64 text: the bytes up to `prefix`, without the zeros and spaces that padding may add."""

    def fold(value: Any) -> bytes:
        try:
            return base64.b64decode(value)[:prefix].rstrip(b"\0 ")
        except (ValueError, TypeError):
            return fold_other(value)

    return fold
