"""Folds text more coarsely than its index's collation compares it. Used by fold.py only; the data are in
collation_data.py.

There are four folds, from fine to coarse:

- exact: for binary and deterministic collations; only trailing spaces are removed.
- skeleton: printable ASCII and the letters of most scripts (`KEPT_CODE_POINTS`), in lower case.
  Characters are decomposed, marks and all other characters are removed, "ss" becomes "s" (ß may be
  either), and digits of all scripts become ASCII digits. No collation treats a removed character as
  equal to a kept one, except as listed in `LETTERS`. Collations tailored to a language merge or remove
  more letters (`TAILORED_LANGUAGES`); those of other character sets have exceptions of their own
  (`OTHERS`).
- digits: the decimal digits of the skeleton, for unknown collations and those too far from Unicode's
  order.
- constant: for a PostgreSQL collation that does not compare exactly, because its author may define any
  rules.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from consumer.ordering.collation_data import (
    IDEOGRAPHS,
    KEPT_CODE_POINTS,
    LETTERS,
    OTHERS,
    RADICALS,
    SMALL_KANA,
    TAILORED_LANGUAGES,
)

FOLD_DATA_VERSION = 2

_EXACT = re.compile(r"|binary|.*_bin|c|posix|ucs_basic|default|unicode|pg_c_utf8", re.IGNORECASE)
_UNICODE = r"(?:utf8mb4|utf8mb3|utf8|utf16|utf16le|utf32|ucs2|gb18030)_"
_LEVELS = r"(?:_a[is])?(?:_c[is])?(?:_ks)?"
_NEW = re.compile(
    rf"(?:{_UNICODE})?(?:unicode_520_ci|(?:([a-z_]+?)_)?0900{_LEVELS}|uca1400(?:_((?!a[is]_)[a-z0-9]+))?{_LEVELS})"
)
_OLD = re.compile(
    rf"{_UNICODE}(?:unicode_ci|general1400_as_ci|(?!general|unicode|myanmar)([a-z0-9_]+)_ci)"
)  # has no weights beyond U+FFFF: all those characters are equal
_GENERAL = re.compile(
    r"(?:utf8mb4|utf8mb3|utf8|utf16|utf16le|utf32|ucs2)_(?:general(?:_mysql500)?|tolower)_ci"
)
_LANGUAGES = {name: merged for names, merged in TAILORED_LANGUAGES.items() for name in names.split()}
_OTHERS = {name: equal for names, equal in OTHERS.items() for name in names.split()}
_KNOWS_ALL = re.compile(r".*(?:_0900_|uca1400|_520_|_myanmar_)")
_DIGITS = frozenset("0123456789")
_KEPT = frozenset(
    chr(point)
    for first, last in KEPT_CODE_POINTS
    for point in range(first, last + 1)
    if point < 0x80 or unicodedata.category(chr(point))[0] == "L"
)
_SPECIAL = {char: to for to, chars in LETTERS.items() for char in chars} | dict(
    zip(RADICALS, IDEOGRAPHS, strict=True)
)
_MANY_S = re.compile("ss+")
_TWICE = (re.compile(r"([a-z])\1+"), r"\1")
_DOUBLED = {"hu": _TWICE, "hungarian": _TWICE}  # ccs = cscs


class _Table(dict[int, str]):
    """A table for `str.translate` that fills itself: code point → folded text.

    `special`: characters with another fold than usual. `merged`: letters with another fold. `last`: code
    points after it are removed. `keep`: the only characters that are kept; None: all. `doubled`: runs of
    letters that count once.
    """

    def __init__(
        self,
        special: Mapping[str, str],
        merged: Mapping[str, str],
        *,
        last: int = 0x10FFFF,
        keep: frozenset[str] | None = None,
        doubled: tuple[re.Pattern[str], str] = (_MANY_S, "s"),
    ) -> None:
        super().__init__()
        self._special = {**_SPECIAL, **special}
        self._merged, self._last, self._keep = merged, last, keep
        self.doubled = doubled
        self.plain = all(self[point] == chr(point).lower() for point in range(0x20, 0x7F))

    def __missing__(self, point: int) -> str:
        char, left = chr(point), ""
        if point <= self._last:
            left = self._merged.get(char, "") or self._special.get(char, _fold_character(char))
            left = "".join(self._merged.get(part, part) for part in left)
        if self._keep is not None:
            left = "".join(part for part in left if part in self._keep)
        self[point] = left
        return left


@cache
def _fold_character(char: str) -> str:
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    left = "".join(_map_kept_letter(part) for part in text if part in _KEPT)
    if left or unicodedata.category(char)[0] != "N":
        return left
    number = unicodedata.numeric(char)
    return str(int(number)) if number == int(number) else ""


def _map_kept_letter(char: str) -> str:
    """Return the equivalent of a kept character: katakana for hiragana, a large kana for a small one, i
    for ı.
    """
    if "ぁ" <= char <= "ゖ":
        char = chr(ord(char) + 0x60)
    return "i" if char == "ı" else SMALL_KANA.get(char, char)


@cache
def _get_fold_table(collation: str) -> _Table:
    """Return the table of a collation that is not exact. It is filled as characters occur, and shared."""
    name = collation.replace("_nopad", "")
    if name in _OTHERS:
        return _Table({char: to for to, chars in _OTHERS[name].items() for char in chars}, {})
    if _GENERAL.fullmatch(name):
        return _Table({"\u0345": "ι"}, {}, last=0xFFFF)
    for pattern, last in ((_NEW, 0x10FFFF), (_OLD, 0xFFFF)):
        if found := pattern.fullmatch(name):
            language = next((each for each in found.groups() if each), None)
            if language is None:
                return _Table({}, {}, last=last)
            if language in _LANGUAGES:
                return _Table(
                    {}, _LANGUAGES[language], last=last, doubled=_DOUBLED.get(language, (_MANY_S, "s"))
                )
    last = 0x10FFFF if _KNOWS_ALL.match(name) else 0xFFFF if re.match(_UNICODE, name) else 0x7F
    return _Table({}, {}, last=last, keep=_DIGITS)


def make_text_fold(collation: str, prefix: int | None) -> Callable[[Any], bytes]:
    """Return the fold of text compared by `collation` ("": exactly), cut to `prefix` characters."""
    name = collation.lower()
    if "." in name:  # PostgreSQL's, with its schema
        return lambda _value: b""
    if _EXACT.fullmatch(name):
        return _make_exact_fold(prefix)
    return _make_coarse_fold(_get_fold_table(name), prefix)


def _make_exact_fold(prefix: int | None) -> Callable[[Any], bytes]:
    def fold(value: Any) -> bytes:
        return str(value)[:prefix].rstrip(" ").encode("utf-8", "surrogatepass")

    return fold


def _make_coarse_fold(table: _Table, prefix: int | None) -> Callable[[Any], bytes]:
    plain, (doubled, once) = table.plain, table.doubled
    search, sub = doubled.search, doubled.sub
    only_s = doubled is _MANY_S

    def fold(value: Any) -> bytes:
        text: str = value if type(value) is str else str(value)
        if prefix is not None:
            text = text[:prefix]
        text = text.lower() if plain and text.isascii() and text.isprintable() else text.translate(table)
        text = text.rstrip(" ")
        if "ss" in text if only_s else search(text):
            text = sub(once, text)
        return text.encode()

    return fold
