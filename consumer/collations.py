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
    "": "\u037a\ufc5e\ufc5f\ufc60\ufc61\ufc62\ufc63\ufe70\ufe72\ufe74\ufe76\ufe78\ufe7a\ufe7c\ufe7e\u16ee\u16ef\u16f0",
    " ": "\u1680\ufdfa",
    "0": "\u0f33",
    "1": "\u09f4\u0f2a",
    "120p": "\U0001f1a4",
    "2": "\u09f5\u0f2b",
    "22.2": "\U0001f1a2",
    "2k": "\U0001f19d",
    "2nd scr": "\U0001f19c",
    "3": "\u09f6\u0f2c",
    "3d": "\U0001f19b",
    "4": "\u09f7\u0f2d",
    "4k": "\U0001f19e",
    "5": "\u0f2e",
    "5.1": "\U0001f1a0",
    "6": "\u0f2f",
    "60p": "\U0001f1a3",
    "7": "\u0f30",
    "7.1": "\U0001f1a1",
    "8": "\u0f31",
    "8k": "\U0001f19f",
    "9": "\u0f32",
    "a": "\u0363\u1dd3\u1df2\ua79a\ua79b\ua7c0\ua7c1\U0001f150\U0001f170",
    "a/s": "\u214d",
    "aa": "\ua732\ua733\U00010780",
    "ab": "\U0001f18e",
    "ae": "\u00c6\u00e6\u01e2\u01e3\u01fc\u01fd\u1d2d\u1dd4\U00010783",
    "ao": "\u1dd5\ua734\ua735",
    "au": "\ua736\ua737",
    "av": "\u1dd6\ua738\ua739\ua73a\ua73b",
    "ay": "\ua73c\ua73d",
    "b": "\u1de8\U0001f151\U0001f171",
    "c": "\u0368\u1dd7\U0001f152\U0001f172",
    "cl": "\U0001f191",
    "cool": "\U0001f192",
    "d": "\u00d0\u00f0\u0110\u0111\u0369\u1d9e\u1dd8\u1dd9\ua779\ua77a\U0001f153\U0001f173\U0001f1a5\u02a4\u02a5\U0001078a\U00010789\uab66\U00010788\U0001df12\U0001df19",
    "db": "\u0238",
    "dz": "\u02a3\U00010787",
    "e": "\u0364\U0001f154\U0001f174",
    "f": "\u1deb\ua77b\ua77c\U0001f155\U0001f175\u02a9\U00010790\U0001df00",
    "free": "\U0001f193",
    "g": "\u1acc\u1d79\u1dda\ua77d\ua7a0\ua7a1\U0001f156\U0001f176",
    "h": "\u0126\u0127\u036a\u210f\ua7f8\U00010795\U0001f157\U0001f177",
    "hc": "\U0001f1a6",
    "hdr": "\U0001f1a7",
    "hi res": "\U0001f1a8",
    "i": "\u0131\u0365\U0001d6a4\U0001f158\U0001f178",
    "ic": "\U0001f18b",
    "id": "\U0001f194",
    "j": "\U0001f159\U0001f179",
    "k": "\u1ddc\ua7a2\ua7a3\U0001f15a\U0001f17a",
    "l": "\u0141\u0142\u1ddd\U0001f15b\U0001f17b",
    "ll": "\u1efa\u1efb",
    "losles": "\U0001f1a9",
    "ls": "\u02aa\U00010799",
    "lz": "\u02ab\U0001079a",
    "m": "\u036b\U0001f15c\U0001f17c",
    "n": "\u1de0\ua7a4\ua7a5\U0001f15d\U0001f17d",
    "new": "\U0001f195",
    "ng": "\U0001f196",
    "o": "\u00d8\u00f8\u01fe\u01ff\u0366\u1ded\u1df3\ua79c\ua79d\U000107a2\U0001f15e\U0001f17e",
    "oe": "\u0152\u0153\ua7f9",
    "ok": "\U0001f197",
    "oo": "\ua74e\ua74f",
    "p": "\u1dee\U0001f15f\U0001f17f\U0001f18a",
    "pa": "\U0001f18c",
    "q": "\U0001f160\U0001f180",
    "qp": "\u0239",
    "r": "\u036c\u1acd\u1dca\u1de3\ua75a\ua75b\ua782\ua783\ua7a6\ua7a7\U0001f161\U0001f181",
    "s": "\u1de4\u1de5\ua784\ua785\ua7a8\ua7a9\ua7d8\ua7d9\U0001f162\U0001f182",
    "sa": "\U0001f18d",
    "shv": "\U0001f1aa",
    "sos": "\U0001f198",
    "t": "\u036d\u1ace\ua786\ua787\U0001f163\U0001f183\u02a7\u02a8\U000107ae\U000107ab\uab67\U000107ad\U0001df17\U0001df1c",
    "th": "\u1d7a",
    "ts": "\u01be\u02a6\U000107ac",
    "tz": "\ua728\ua729",
    "u": "\u0367\u1df0\u1df4\ua79e\ua79f\U0001f164\U0001f184",
    "uhd": "\U0001f1ab",
    "up!": "\U0001f199",
    "v": "\u036e\U0001f165\U0001f185",
    "vod": "\U0001f1ac",
    "vs": "\U0001f19a",
    "vy": "\ua760\ua761",
    "w": "\u1abf\u1df1\ua7c2\ua7c3\U0001f166\U0001f186",
    "wc": "\U0001f18f",
    "x": "\u036f\U0001f167\U0001f187",
    "y": "\U0001f168\U0001f188",
    "z": "\u1de6\U0001f169\U0001f189",
    "zw": "\u018d",
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
_NEW_TAILORED = re.compile(r".*(?:_0900_|uca1400|_520_|_myanmar_)")
_SINGLE_BYTE = {
    "latin1_swedish_ci": {"Üü": "y", "Åå": "[", "ÄäÆæ": "\\", "Öö": "]", "Ðð": "d"},
    "latin1_german1_ci": {"Ææ": "a", "Øø": "o"},
    "latin1_german2_ci": {"Ää": "ae", "Öö": "oe", "Üü": "ue", "Ææ": "\\", "Ðð": "d"},
    "latin1_general_ci": {},
    "latin1_general_cs": {},
    "ascii_general_ci": {},
}


class _Table(dict[int, str]):
    """A table for `str.translate` that fills itself: code point → what is left of it.

    `last`: code points beyond it are dropped. `keep`: None, or the only characters that stay.
    """

    def __init__(self, special: dict[str, str], *, last: int = 0x10FFFF, keep: str | None = None) -> None:
        super().__init__()
        self._special = {ord(char): to for chars, to in special.items() for char in chars}
        self._last, self._keep = last, keep

    def __missing__(self, point: int) -> str:
        left = ""
        if point <= self._last:
            special = self._special.get(point)
            left = _left_of(chr(point)) if special is None else special
        if self._keep is not None:
            left = "".join(char for char in left if char in self._keep)
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
    if _NEW_TAILORED.match(name):
        return "new digits"
    return "old digits" if re.match(_UNICODE, name) else "ascii digits"


def _table(family: str) -> _Table:
    if family in _SINGLE_BYTE:
        return _Table(_SINGLE_BYTE[family])
    special = {chars: to for to, chars in _LETTERS.items()} | dict(zip(_RADICALS, _IDEOGRAPHS, strict=True))
    last = {"new": 0x10FFFF, "old": 0xFFFF, "ascii": 0x7F}[family.split(maxsplit=1)[0]]
    return _Table(special, last=last, keep="0123456789" if family.endswith("digits") else None)


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
