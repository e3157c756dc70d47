"""Text folded coarser than its index's collation compares it (used by fold.py only); collation_data.py has the data.

Four folds, from fine to coarse:

- exact: binary and deterministic collations; only trailing spaces go.
- skeleton: what is left of a text in printable ASCII and the letters of most scripts (`KEPT_CODE_POINTS`), in lower case: characters
  are decomposed, marks and everything else are dropped, "ss" is "s" (ß is the one or the other), digits of all scripts
  are ASCII's. What is dropped no collation holds equal to what stays; where one does, `LETTERS` says so. Collations that
  are tailored to a language merge or drop some letters more (`TAILORED_LANGUAGES`), those of other character sets have exceptions
  of their own (`OTHERS`).
- digits: the decimal digits of the skeleton; for collations that are not known, or too far from Unicode's order.
- constant: a collation of PostgreSQL that does not compare exactly: its rules are whatever its maker wrote.
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
)  # knows no characters beyond U+FFFF: all of them are equal there
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
    """A table for `str.translate` that fills itself: code point → what is left of it.

    `special`: characters that are something else here than elsewhere. `merged`: letters that are. `last`: code points
    beyond it are dropped. `keep`: None, or the only characters that stay. `doubled`: what runs of letters count once.
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
    """Return a kept character as what it counts: hiragana as katakana, a small one as a large one, ı as i."""
    if "ぁ" <= char <= "ゖ":
        char = chr(ord(char) + 0x60)
    return "i" if char == "ı" else SMALL_KANA.get(char, char)


@cache
def _get_fold_table(collation: str) -> _Table:
    """Return the table for a collation that is not exact; it is filled by what it meets, and shared."""
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
    """Return the fold for text compared by `collation` ("": exactly), cut to `prefix` characters."""
    name = collation.lower()
    if "." in name:  # PostgreSQL's, with its schema: see postgres/catalogue.py
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
