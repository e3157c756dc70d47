"""Text folded coarser than any collation compares it (used by fold.py only).

Four folds, from fine to coarse:

- exact: binary and deterministic collations; only trailing spaces go.
- skeleton: what is left of a text in ASCII letters, digits and Han characters, in lower case: other characters are
  decomposed, marks and everything that is neither are dropped, and "ss" is "s" (ß is the one or the other).
  Dropping whole scripts is deliberate: nothing a collation ignores, expands or contracts can then tell two equal values
  apart. A unique column written in Cyrillic only loses parallelism.
- digits: the decimal digits of the skeleton; for collations tailored to a language, or unknown.
- constant: for a column that its two ends compare by collations of which neither fold fits both.

A family of collations says where servers disagree with Unicode's decomposition (`_LETTERS`, `_RADICALS`: equal to the
letter or ideograph in at least one of the collations). The tables were derived from the weights that MariaDB 11.4 and MySQL 9 give to
every character; tests/integration/test_fold.py asks the servers again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

FOLD_DATA_VERSION = 1

# letter (or letters) ← characters that some server holds equal to it although Unicode does not decompose them so
_LETTERS = {
    "0": "\u0f33",
    "1": "\u09f4\u0f2a",
    "2": "\u09f5\u0f2b",
    "3": "\u09f6\u0f2c",
    "4": "\u09f7\u0f2d",
    "5": "\u0f2e",
    "6": "\u0f2f",
    "7": "\u0f30",
    "8": "\u0f31",
    "9": "\u0f32",
    "a": "\u0363\u1dd3\u1df2\ua79a\ua79b\ua7c0\ua7c1\U0001f150\U0001f170",
    "a/s": "\u214d",
    "au": "\ua736\ua737",
    "b": "\u1de8\U0001f151\U0001f171",
    "c": "\u0368\u1dd7\U0001f152\U0001f172",
    "d": "\u00d0\u00f0\u0110\u0111\u0369\u1d9e\u1dd8\u1dd9\ua779\ua77a\U0001f153\U0001f173\U0001f1a5",
    "db": "\u0238",
    "dz": "\u02a3",
    "e": "\u0364\U0001f154\U0001f174",
    "f": "\u1deb\ua77b\ua77c\U0001f155\U0001f175",
    "g": "\u1acc\u1d79\u1dda\ua77d\ua7a0\ua7a1\U0001f156\U0001f176",
    "h": "\u0126\u0127\u036a\u210f\ua7f8\U0001f157\U0001f177",
    "i": "\u0131\u0365\U0001d6a4\U0001f158\U0001f178",
    "j": "\U0001f159\U0001f179",
    "k": "\u1ddc\ua7a2\ua7a3\U0001f15a\U0001f17a",
    "l": "\u0141\u0142\u1ddd\U0001f15b\U0001f17b",
    "m": "\u036b\U0001f15c\U0001f17c",
    "n": "\u1de0\ua7a4\ua7a5\U0001f15d\U0001f17d",
    "o": "\u00d8\u00f8\u01fe\u01ff\u0366\u1ded\u1df3\ua79c\ua79d\U0001f15e\U0001f17e",
    "p": "\u1dee\U0001f15f\U0001f17f\U0001f18a",
    "pa": "\U0001f18c",
    "q": "\U0001f160\U0001f180",
    "r": "\u036c\u1acd\u1dca\u1de3\ua75a\ua75b\ua782\ua783\ua7a6\ua7a7\U0001f161\U0001f181",
    "s": "\u1de4\u1de5\ua784\ua785\ua7a8\ua7a9\ua7d8\ua7d9\U0001f162\U0001f182",
    "t": "\u036d\u1ace\ua786\ua787\U0001f163\U0001f183",
    "u": "\u0367\u1df0\u1df4\ua79e\ua79f\U0001f164\U0001f184",
    "v": "\u036e\U0001f165\U0001f185",
    "w": "\u1abf\u1df1\ua7c2\ua7c3\U0001f166\U0001f186",
    "wc": "\U0001f18f",
    "x": "\u036f\U0001f167\U0001f187",
    "y": "\U0001f168\U0001f188",
    "z": "\u1de6\U0001f169\U0001f189",
}
_RADICALS = (
    "⺀⺁⺂⺃⺄⺅⺆⺇⺈⺉⺊⺋⺌⺍⺎⺏⺐⺑⺒⺓⺔⺕⺖⺗⺘⺙⺛⺜⺝⺞⺠⺡⺢⺣⺤⺥⺦⺧⺨⺩⺪⺫⺬⺭⺮⺯⺰⺱⺲⺳⺴⺵⺶⺷⺸⺹⺺⺻⺼⺽"
    "⺾⺿⻀⻁⻂⻃⻄⻅⻆⻇⻈⻉⻊⻋⻌⻍⻎⻏⻐⻑⻒⻓⻔⻕⻖⻗⻘⻙⻚⻛⻜⻝⻞⻟⻠⻡⻢⻣⻤⻥⻦⻧⻨⻩⻪⻫⻬⻭⻮⻯⻰⻱⻲"
)
_IDEOGRAPHS = (
    "丶厂乛乚乙亻冂几刀刂卜卩小小尢尣尢尣巳幺彑彐忄心扌攵旡日月歺民氵氺灬爫爫丬牛犭王疋目示礻竹糹纟罓罒罓罓罒羊羊羋耂肀聿肉臼"
    "艹艹艹虎衤覀西见角角讠贝足车辶辶辶邑钅長镸长门阜阝雨青韦页风飞食飠飠饣首马骨鬼鱼鸟鹵麦黄黾齊齐齒齿龍龙龜龜"
)

_EXACT = re.compile(
    r"binary|.*_bin|c|posix|ucs_basic|default|unicode|pg_c_utf8|c[._]utf-?8"
    r"|[a-z]{2,3}(_[a-z]{2})?(\.utf-?8)?|[a-z]{2,3}(-[a-z]{2,4})*-x-icu",
    re.IGNORECASE,
)
_UNICODE = r"(?:utf8mb4|utf8mb3|utf8|utf16|utf16le|utf32|ucs2)_"
_NEW = re.compile(rf"(?:{_UNICODE})?(?:unicode_520|0900|uca1400)(?:_nopad)?(?:_a[is])?(?:_c[is])?(?:_nopad)?")
_OLD = re.compile(
    rf"{_UNICODE}(?:general|unicode|general_mysql500|general1400|general1400_as)(?:_nopad)?_c[is]"
)
_NEW_TAILORED = re.compile(r".*(?:_0900_|uca1400|_520_)")
_SINGLE_BYTE = {
    "latin1_swedish_ci": {"Üü": "y", "Åå": "[", "ÄäÆæ": "\\", "Öö": "]", "Ðð": "d"},
    "latin1_german1_ci": {"Ææ": "a", "Øø": "o"},
    "latin1_german2_ci": {"Ää": "ae", "Öö": "oe", "Üü": "ue", "Ææ": "\\", "Ðð": "d"},
    "latin1_general_ci": {},
    "latin1_general_cs": {},
    "ascii_general_ci": {},
}


class _Table(dict[int, str]):
    """A table for `str.translate` that fills itself: code point → what is left of it."""

    def __init__(self, special: dict[str, str], *, supplementary: bool, digits: bool = False) -> None:
        super().__init__({ord(char): to for chars, to in special.items() for char in chars})
        self._supplementary, self._digits = supplementary, digits

    def __missing__(self, point: int) -> str:
        left = _left_of(chr(point)) if point < 0x10000 or self._supplementary else ""
        if self._digits:
            left = "".join(char for char in left if char in "0123456789")
        self[point] = left
        return left


def _left_of(char: str) -> str:
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    left = "".join(_kept(part) for part in text)
    if left or unicodedata.category(char)[0] != "N":
        return left
    number = unicodedata.numeric(char)
    return str(int(number)) if number == int(number) else ""


def _kept(char: str) -> str:
    point = ord(char)
    if point < 0x80:
        return char.lower() if char.isprintable() else ""
    return char if 0x3400 <= point < 0x4DC0 or 0x4E00 <= point < 0xA000 else ""


def _family(collation: str) -> str:
    name = collation.lower()
    if not name or _NEW.fullmatch(name):
        return "new"
    if _OLD.fullmatch(name):
        return "old"  # knows no characters beyond U+FFFF: all of them are equal there
    if name in _SINGLE_BYTE:
        return name
    if _EXACT.fullmatch(name):
        return "exact"
    return "new digits" if _NEW_TAILORED.match(name) else "old digits"


def _table(family: str) -> _Table:
    if family in _SINGLE_BYTE:
        return _Table(_SINGLE_BYTE[family], supplementary=False)
    special = {chars: to for to, chars in _LETTERS.items()}
    special |= dict(zip(_RADICALS, _IDEOGRAPHS, strict=True))
    digits = family.endswith("digits")
    if digits:
        special = {chars: to for chars, to in special.items() if to.isdigit()}
    return _Table(special, supplementary=family.startswith("new"), digits=digits)


def text_fold(collations: frozenset[str], prefix: int | None) -> Callable[[Any], bytes]:
    """Return the fold for text compared by any of `collations` ("": not named), cut to `prefix` characters."""
    families = {_family(collation) for collation in collations}
    if families == {"exact"}:
        return _exact(prefix)
    families.discard("exact")
    if len(families) > 1:
        return lambda _value: b""
    family = families.pop()
    return _coarse(_table(family), prefix, digits=family.endswith("digits"))


def _exact(prefix: int | None) -> Callable[[Any], bytes]:
    def fold(value: Any) -> bytes:
        return str(value)[:prefix].rstrip(" ").encode("utf-8", "surrogatepass")

    return fold


def _coarse(table: _Table, prefix: int | None, *, digits: bool) -> Callable[[Any], bytes]:
    def fold(value: Any) -> bytes:
        text: str = value if type(value) is str else str(value)
        if prefix is not None:
            text = text[:prefix]
        if not digits and text.isascii() and text.isprintable():
            text = text.lower().rstrip(" ")
        else:
            text = text.translate(table).rstrip(" ")
        if "ss" in text:
            text = _MANY_S.sub("s", text)
        return text.encode()

    return fold


_MANY_S = re.compile("ss+")
