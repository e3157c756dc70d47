"""Folded bytes of an index's values. Values that an index treats as equal have equal folds.

Folds serve lanes, tickets, quarantined keys, and the check of shared target tables. A fold that is too
fine would let two events of one row or one unique value run concurrently; a fold that is too coarse only
costs parallelism (and quarantines rows of other keys, or stops a unit that shares a table). So each rule
here is coarser than the index's: text is folded to a skeleton of its letters and digits (without case,
accents, widths, ligatures, trailing spaces and all other characters that a collation may ignore), numbers
to one form; prefixes are cut first. collations.py has the rules for text.

Only the *target's* collations count (`IndexPart.collation`, of the real table), even if the source's are
coarser: events collide in the target's rows and indexes only. Two keys that are equal only at the source
are two rows of the target. An update from one to the other is a move of the key there (dispatch.py); its
images are exact, so it takes the tickets of both.

tests/integration/test_fold.py compares the folds with the weights that real servers give to every
character.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec.structs import replace

from consumer.ordering.collations import FOLD_DATA_VERSION, make_text_fold
from consumer.ordering.model import QuarantineEntry, TargetTable, parse_entry_key
from schemas.table.model import IndexPart, Kind, Row, Table, UniqueIndex, Value

FOLD_VERSION = 100 + FOLD_DATA_VERSION
"""Part of the layout. Raise it when any rule of this module or of collations.py changes."""

IndexFold = Callable[[Row], bytes | None]
"""Row of the target table → folded value of the index; None: by the NULL rules it collides with no other
value."""
ValueFold = Callable[[Any], bytes]
"""A wire value that is not None → folded bytes."""

_NULL = b"\0N"
_INTEGER = re.compile(rb"-?[0-9]+")
_TEXT = {Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET}
_BINARY = {Kind.BINARY, Kind.VARBINARY, Kind.BLOB}
_WHOLE = {Kind.INT, Kind.YEAR, Kind.BIT, Kind.ENUM_NUMBER, Kind.SET_NUMBER}


def make_index_fold(table: Table, index: UniqueIndex) -> IndexFold:
    """Return the fold of a unique index of the target table `table`; rows are in the order of
    `table.columns`.
    """
    values = [make_value_fold(table, part) for part in index.parts]
    at = table.find_ordinals(index.columns)
    nulls = not index.nulls_distinct
    if len(at) == 1:
        return _make_single_fold(at[0], values[0], _NULL if nulls else None)
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


def make_key_fold(table: Table) -> Callable[[Row], bytes]:
    """Return the fold of `table`'s key.

    Key columns are never NULL; a NULL would be folded like any other value.
    """
    whole = UniqueIndex(name=table.key.name, parts=table.key.parts, nulls_distinct=False)
    return make_index_fold(table, whole)  # type: ignore[return-value]  # without nulls_distinct never None


def make_key_values_fold(table: Table) -> Callable[[Any], bytes]:
    """Return the fold of `table`'s key for the key alone: its value, or a tuple of its values if it has
    several columns.
    """
    values = [make_value_fold(table, part) for part in table.key.parts]
    of, parts_at = values[0], list(enumerate(values))

    def fold_value(key: Any) -> bytes:
        return _NULL if key is None else of(key)

    def fold_integer(key: Any) -> bytes:
        return b"%d" % key if type(key) is int else fold_value(key)

    def fold_values(key: Any) -> bytes:
        parts = []
        for at, fold_part in parts_at:
            value = key[at]
            parts.append(_NULL if value is None else fold_part(value))
        return b"\0".join(parts)

    if len(values) > 1:
        return fold_values
    return fold_integer if of is fold_whole else fold_value


def is_integer_key(table: Table) -> bool:
    """Return whether `table`'s key is a single integer column."""
    return [table.get_column(name).type.kind in _WHOLE for name in table.key.columns] == [True]


def yield_integers(folds: Iterable[bytes]) -> Iterator[int]:
    """Yield the integers that may have one of `folds`, which are those of values of an integer column."""
    return (int(folded) for folded in folds if _INTEGER.fullmatch(folded))


def encode_folded(folded: bytes) -> str:
    """Return a folded value as text that any database can store (`QuarantineEntry.folded`)."""
    return folded.hex()


def decode_folded(text: str) -> bytes:
    """Return a folded value as it was before `encode_folded`."""
    return bytes.fromhex(text)


def recompute_folded_keys(held: Iterable[QuarantineEntry], target: TargetTable) -> list[QuarantineEntry]:
    """Return quarantine entries with their keys folded by this version, for `target`'s present
    collations.

    Another version may have written an entry with another fold: its `folded` would not be found, and
    later changes of its key would overtake it. Entries of other tables are returned unchanged.
    """
    fold, width = make_key_values_fold(target.table), len(target.key_at)
    name = f"{target.schema}.{target.name}"

    def recompute_entry(entry: QuarantineEntry) -> QuarantineEntry:
        key = parse_entry_key(entry.key)
        if entry.table != name or len(key) != width:
            return entry
        folded = encode_folded(fold(key if width > 1 else key[0]))
        return entry if folded == entry.folded else replace(entry, folded=folded)

    return [recompute_entry(entry) for entry in held]


def _make_single_fold(at: int, of: ValueFold, null: bytes | None) -> IndexFold:
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


def make_value_fold(table: Table, part: IndexPart) -> ValueFold:
    """Return the fold of the values of one index part of the target table `table`."""
    column = table.get_column(part.column)
    kind = column.type.kind
    if kind in _TEXT:
        return make_text_fold(get_part_collation(table, part) or "", part.prefix)
    if kind in _BINARY:
        return _make_binary_fold(part.prefix)
    if kind in _WHOLE:
        return fold_whole
    if kind is Kind.DECIMAL:
        return fold_decimal
    if kind in {Kind.FLOAT, Kind.DOUBLE}:
        return fold_float
    return fold_other


def get_part_collation(table: Table, part: IndexPart) -> str | None:
    """Return the collation of an index part; None or "" if it compares exactly."""
    return table.get_column(part.column).type.collation if part.collation is None else part.collation


def fold_whole(value: Value) -> bytes:
    """Fold an integer. 7 and "7" fold alike, because integers beyond 2^53 are strings."""
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
    """Fold a float or double by its 32-bit value, which is coarser than either; -0.0 is 0.0."""
    try:
        return struct.pack("<f", float(value) + 0.0)  # type: ignore[arg-type]
    except OverflowError:
        return b"inf"
    except (ValueError, TypeError):
        return fold_other(value)


def fold_other(value: Value) -> bytes:
    """Fold a value with only one wire form (dates and times): as text, without trailing zeros of a
    fraction.
    """
    text = str(value)
    if "." in text:
        text = text.rstrip("Z").rstrip("0").rstrip(".")
    return text.rstrip("Z ").encode("utf-8", "surrogatepass")


def _make_binary_fold(prefix: int | None) -> ValueFold:
    """Return the fold of base64 text: the bytes up to `prefix`, without the zeros and spaces that
    padding may add.
    """

    def fold(value: Any) -> bytes:
        try:
            return base64.b64decode(value)[:prefix].rstrip(b"\0 ")
        except (ValueError, TypeError):
            return fold_other(value)

    return fold
