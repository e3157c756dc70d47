"""Judges which changes of a column's type keep every value, whether a target column holds a type, and which type holds two of them. Pure.

Only what is known to keep values is called lossless; whatever else may be so costs a copy of the table and nothing more.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from consumer.targets.checks.column_fit import holds, int_range, takes
from schemas.table.model import ColumnType, Kind

_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
"""Character sets that hold every character of every other one."""
_BMP = frozenset(
    {"ascii", "latin1", "latin2", "latin5", "latin7", "cp1250", "cp1251", "cp1256", "cp1257", "greek", "ucs2"}
)
"""Character sets whose characters utf8mb3 has all."""
_CHARACTERS = (Kind.CHAR, Kind.VARCHAR)
_TEXT = (*_CHARACTERS, Kind.TEXT)
_BYTES = (Kind.BINARY, Kind.VARBINARY, Kind.BLOB)
_LABELS = (Kind.ENUM, Kind.SET)
_FRACTIONS = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)
_LONGEST = 2**32 - 1


def lossless(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether a source that changes a column from `old` to `new` keeps each of its values, so that a target that converts
    them too has what the source has. The collation is no part of a value."""
    if replace(old, collation=None) == replace(new, collation=None):
        return True
    rule = _RULES.get((old.kind, new.kind))
    return rule is not None and rule(old, new) and keeps_characters(old, new)


def fits(source: ColumnType, real: ColumnType) -> bool:
    """Tell whether a target column of type `real` takes every value of `source` as it is."""
    return (
        takes(source, real)
        and holds(source, real)
        and keeps_characters(source, real)
        and _as_it_is(source, real)
    )


def _as_it_is(source: ColumnType, real: ColumnType) -> bool:
    """Signs must be had; CHAR loses the spaces at the end, BINARY fills up, TEXT and BLOB count bytes; of JSON and geometry nobody knows how many."""
    if real.kind in (Kind.FLOAT, Kind.DOUBLE):
        return _signs(source, real)
    if real.kind is Kind.CHAR:
        return source.kind in (Kind.CHAR, *_LABELS)
    if real.kind is Kind.BINARY:
        return source.kind is Kind.BINARY and source.length == real.length
    if real.kind not in (Kind.TEXT, Kind.BLOB) or not real.length:
        return True
    if source.kind in (Kind.JSON, Kind.GEOMETRY):
        return real.length >= _LONGEST and real.charset in (None, *_UNICODE)
    return source.kind in _BYTES or _bytes_of(source, real) <= real.length


def _bytes_of(old: ColumnType, new: ColumnType) -> int:
    """Return how many bytes a text of type `old` may have in the character set of `new`. The limit of TEXT is one of bytes."""
    if old.kind is Kind.TEXT:
        return old.length * (1 if _today(old.charset) == _today(new.charset) else _width(new.charset))
    longest = max((len(member) for member in old.members), default=old.length)
    return (len(",".join(old.members)) if old.kind is Kind.SET else longest) * _width(new.charset)


def _width(charset: str | None) -> int:
    """Return how many bytes a character may have."""
    narrow = _today(charset)
    if narrow == "utf8mb3":
        return 3
    return 1 if narrow in _BMP and narrow != "ucs2" else 4


def keeps_characters(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether the character set of `new` has every character of `old`'s; None (a target without such sets) has all."""
    narrow, wide = _today(old.charset), _today(new.charset)
    if narrow is None or wide is None or narrow == wide or wide in _UNICODE or narrow == "ascii":
        return True
    return wide == "utf8mb3" and narrow in _BMP


def join(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Return the narrowest type that holds all values of both, as this module knows it; None: there is none of a related kind."""
    if fits(one, other):
        return other
    if fits(other, one):
        return one
    for kinds, joined in _JOINS:
        if one.kind in kinds and other.kind in kinds:
            found = joined(one, other)
            return found if found is not None and fits(one, found) and fits(other, found) else None
    return None


def _today(charset: str | None) -> str | None:
    return "utf8mb3" if charset == "utf8" else charset


# --- lossless


def _within(old: ColumnType, new: ColumnType) -> bool:
    (low, high), (lowest, highest) = int_range(old), int_range(new)
    return lowest <= low and high <= highest


def _digits(old: ColumnType, new: ColumnType) -> bool:
    """DECIMAL into DECIMAL, or a whole number into it."""
    return holds(old, new)


def _year(_old: ColumnType, new: ColumnType) -> bool:
    return int_range(new)[1] >= 2155


def _longer(old: ColumnType, new: ColumnType) -> bool:
    return old.length <= new.length


def _room_for_bytes(old: ColumnType, new: ColumnType) -> bool:
    return _bytes_of(old, new) <= new.length


def _finer(old: ColumnType, new: ColumnType) -> bool:
    return old.fsp <= new.fsp


def _appended(old: ColumnType, new: ColumnType) -> bool:
    return new.members[: len(old.members)] == old.members


def _signs(old: ColumnType, new: ColumnType) -> bool:
    return old.unsigned or not new.unsigned


def _always(_old: ColumnType, _new: ColumnType) -> bool:
    return True


#: (old kind, new kind) → what must hold. BIT, BINARY, FLOAT, YEAR and others are missing where a server pads, rounds or rewrites.
_RULES: dict[tuple[Kind, Kind], Callable[[ColumnType, ColumnType], bool]] = {
    (Kind.INT, Kind.INT): _within,
    (Kind.INT, Kind.DECIMAL): _digits,
    (Kind.DECIMAL, Kind.DECIMAL): _digits,
    (Kind.YEAR, Kind.INT): _year,
    (Kind.FLOAT, Kind.FLOAT): _signs,
    (Kind.DOUBLE, Kind.DOUBLE): _signs,
    (Kind.CHAR, Kind.CHAR): _longer,
    (Kind.CHAR, Kind.VARCHAR): _longer,
    (Kind.VARCHAR, Kind.VARCHAR): _longer,
    (Kind.CHAR, Kind.TEXT): _room_for_bytes,
    (Kind.VARCHAR, Kind.TEXT): _room_for_bytes,
    (Kind.TEXT, Kind.TEXT): _room_for_bytes,
    (Kind.VARBINARY, Kind.VARBINARY): _longer,
    (Kind.VARBINARY, Kind.BLOB): _longer,
    (Kind.BLOB, Kind.BLOB): _longer,
    **{(kind, kind): _finer for kind in _FRACTIONS},
    **{(kind, kind): _appended for kind in _LABELS},
    (Kind.GEOMETRY, Kind.GEOMETRY): _always,
}


# --- join


def _joined_int(one: ColumnType, other: ColumnType) -> ColumnType | None:
    low = min(int_range(one)[0], int_range(other)[0])
    high = max(int_range(one)[1], int_range(other)[1])
    for bits in (8, 16, 24, 32, 64):
        found = ColumnType(kind=Kind.INT, bits=bits)
        if int_range(found)[0] <= low and high <= int_range(found)[1]:
            return found
    return ColumnType(kind=Kind.DECIMAL, precision=20)


def _joined_decimal(one: ColumnType, other: ColumnType) -> ColumnType | None:
    if any(each.kind is Kind.DECIMAL and not each.precision for each in (one, other)):
        return ColumnType(kind=Kind.DECIMAL)
    sizes = [_as_decimal(each) for each in (one, other)]
    scale = max(scale for _, scale in sizes)
    precision = max(whole for whole, _ in sizes) + scale
    if precision > 65 or scale > 30:
        return None
    unsigned = all(each.unsigned for each in (one, other))
    return ColumnType(kind=Kind.DECIMAL, precision=precision, scale=scale, unsigned=unsigned)


def _as_decimal(type_: ColumnType) -> tuple[int, int]:
    """Return (digits before the point, behind it)."""
    if type_.kind is Kind.INT:
        return len(str(max(map(abs, int_range(type_))))), 0
    return type_.precision - type_.scale, type_.scale


def _joined_text(one: ColumnType, other: ColumnType) -> ColumnType | None:
    charset, collation = one.charset, one.collation
    if not keeps_characters(other, one):
        charset, collation = (
            (other.charset, other.collation) if keeps_characters(one, other) else ("utf8mb4", "utf8mb4_bin")
        )
    if Kind.TEXT not in (one.kind, other.kind):
        length = max(one.length, other.length)
        return ColumnType(kind=Kind.VARCHAR, length=length, charset=charset, collation=collation)
    wide = ColumnType(kind=Kind.TEXT, charset=charset, collation=collation)
    return replace(wide, length=_room(max(_bytes_of(each, wide) for each in (one, other))))


def _joined_bytes(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Both as VARBINARY or BLOB: BINARY fills up."""
    length = max(one.length, other.length)
    if Kind.BLOB in (one.kind, other.kind):
        return ColumnType(kind=Kind.BLOB, length=_room(length))
    return ColumnType(kind=Kind.VARBINARY, length=length)


def _room(length: int) -> int:
    """Return the smallest limit of a TEXT or BLOB of `length` bytes."""
    return next((2**n - 1 for n in (8, 16, 24) if length < 2**n), 2**32 - 1)


def _joined_fraction(one: ColumnType, other: ColumnType) -> ColumnType | None:
    return one if one.kind is other.kind and one.fsp >= other.fsp else None


def _joined_labels(one: ColumnType, other: ColumnType) -> ColumnType | None:
    if one.kind is not other.kind:
        return None
    more = tuple(each for each in other.members if each not in one.members)
    wide = one if keeps_characters(other, one) else replace(one, charset="utf8mb4", collation="utf8mb4_bin")
    return replace(wide, members=one.members + more)


_JOINS: tuple[tuple[tuple[Kind, ...], Callable[[ColumnType, ColumnType], ColumnType | None]], ...] = (
    ((Kind.INT,), _joined_int),
    ((Kind.INT, Kind.DECIMAL), _joined_decimal),
    (_TEXT, _joined_text),
    (_BYTES, _joined_bytes),
    (_FRACTIONS, _joined_fraction),
    (_LABELS, _joined_labels),
)
