"""Character sets of MySQL and MariaDB: their characters, and the bytes that these take. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from schemas.table.model import ColumnType, Kind

UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
"""Character sets that contain every character of all others."""
_BMP = frozenset(
    {"ascii", "latin1", "latin2", "latin5", "latin7", "cp1250", "cp1251", "cp1256", "cp1257", "greek", "ucs2"}
    | {"armscii8", "dec8", "geostd8", "hp8", "keybcs2", "swe7"}
)
"""Character sets that utf8mb3 contains completely."""
LONGEST = 2**32 - 1
"""Bytes of the longest text.

No value is longer in any character set: a packet has 1 GiB at most, and a character four bytes.
"""


def keeps_characters(old: ColumnType, new: ColumnType) -> bool:
    """Return whether the character set of `new` has every character of `old`'s.

    None (a target without such character sets) has all.
    """
    narrow, wide = _normalize_charset_name(old.charset), _normalize_charset_name(new.charset)
    if narrow is None or wide is None or narrow == wide or wide in UNICODE:
        return True
    if narrow == "ascii":
        return wide != "swe7"  # which has letters in place of brackets and braces
    return wide == "utf8mb3" and narrow in _BMP


def compute_text_bytes(old: ColumnType, new: ColumnType) -> int:
    """Return how many bytes a text of type `old` may take in the character set of `new`.

    TEXT is limited in bytes.
    """
    if old.kind is Kind.TEXT:
        return min(
            old.length
            * (
                1
                if _normalize_charset_name(old.charset) == _normalize_charset_name(new.charset)
                else _get_character_width(new.charset)
            ),
            LONGEST,
        )
    return compute_longest_text(old) * _get_character_width(new.charset)


def compute_longest_text(type_: ColumnType) -> int:
    """Return the characters of the longest value of a column of labels or characters, as it is written."""
    match type_.kind:
        case Kind.SET:
            return len(",".join(type_.members))
        case Kind.ENUM_NUMBER:
            return len(str(len(type_.members)))
        case Kind.SET_NUMBER:
            return len(str(2 ** len(type_.members) - 1))
        case _:
            return max((len(member) for member in type_.members), default=type_.length)


def choose_text_limit(length: int) -> int:
    """Return the smallest limit of a TEXT or BLOB type that has room for `length` bytes."""
    return next((2**n - 1 for n in (8, 16, 24) if length < 2**n), LONGEST)


def as_long(text: ColumnType, charset: str | None) -> ColumnType:
    """Return a TEXT in another character set that has room for every value of `text`."""
    if text.kind is not Kind.TEXT or not text.length or None in (charset, text.charset):
        return text
    size = compute_text_bytes(text, ColumnType(kind=Kind.TEXT, charset=charset))
    return text if size == text.length else replace(text, length=choose_text_limit(size))


def _get_character_width(charset: str | None) -> int:
    """Return the most bytes of one character."""
    narrow = _normalize_charset_name(charset)
    if narrow == "utf8mb3":
        return 3
    return 1 if narrow in _BMP and narrow != "ucs2" else 4


def _normalize_charset_name(charset: str | None) -> str | None:
    return "utf8mb3" if charset == "utf8" else charset
