"""MySQL's character sets as Python decoders.

A decoder takes the bytes of the log and returns UTF-8 *as a latin-1 string*: the generated decoders
assemble the JSON of an event from such strings and encode it once, so text that is already UTF-8 costs
one slice.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

from producer.binlog_format.tabled_charsets import TABLED_CHARSETS, has_repeated_codes, make_table_decoder

UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
"""Charsets with bytes that are valid UTF-8."""

_CODECS = {
    "big5": "cp950",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ucs2": "utf-16-be",
    "ujis": "euc_jp",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}

# Where MySQL's tables differ from Python's: character of Python → character of MySQL
# (tests/integration/test_decoder_charsets.py).
_DIFFERENCES = {
    "big5": dict(zip("￠￡￥‧¯～⊙⊕∕﹨﹑", "¢£¥•‾∼☉♁／＼､", strict=True)),
    "cp866": {"¤": "²", "№": "ⁿ"},
    "gb18030": {"\ue7c7": "ḿ", "ḿ": "\ue7c7"},
    "greek": {"\u2018": "ʽ", "\u2019": "ʼ"},
    "hebrew": {"¯": "‾"},
    "koi8u": {"∙": "•"},
    "sjis": {"＼": "\\"},
}

# Codes of characters to which the servers give another code: NEC's of IBM's characters, and a backslash of
# two bytes. A pattern matches from the begin of a value to such a code.
_SHIFTED = rb"(?s:[\x81-\x9f\xe0-\xfc].|[^\x81-\x9f\xe0-\xfc])*?"
_REPEATED = {
    "cp932": re.compile(
        _SHIFTED + rb"(?s:[\xed\xee].|\x87[\x90-\x92\x95-\x97\x9a-\x9c]|\xfa[\x4a-\x54\x58-\x5b])"
    ),
    "sjis": re.compile(_SHIFTED + rb"\x81\x5f"),
}

# MySQL's latin1 is cp1252 with the five undefined bytes mapped to the control characters of the same
# number.
_LATIN1 = "".join(bytes([i]).decode("cp1252", "ignore") or chr(i) for i in range(256))


def find_decoder(charset: str | None) -> Callable[[bytes], str] | None:
    """Return the decoder of `charset`; None when its bytes are UTF-8 already.

    Raises LookupError for a charset that Python cannot decode as MySQL does.
    """
    if charset is None or charset in UTF8:
        return None
    if charset == "latin1":
        return _decode_latin1
    if charset in TABLED_CHARSETS:
        decode_text = make_table_decoder(charset)
        return lambda data: encode_utf8_in_latin1(decode_text(data))
    name = _CODECS.get(charset)
    if name is None:
        raise LookupError(f"text in character set {charset!r} cannot be decoded")
    decode = codecs.lookup(name).decode
    differences = _DIFFERENCES.get(charset)
    if differences is None:
        return lambda data: encode_utf8_in_latin1(decode(data)[0])
    table = str.maketrans(differences)
    return lambda data: encode_utf8_in_latin1(decode(data)[0].translate(table))


def find_code_check(charset: str | None) -> Callable[[bytes], object] | None:
    """Return the function that raises UnicodeError for bytes with a code whose character has another code;
    None: no character of `charset` has two.

    The source distinguishes such values, but their texts are the same.
    """
    if charset in TABLED_CHARSETS:
        return make_table_decoder(charset, unique=True) if has_repeated_codes(charset) else None
    repeated = _REPEATED.get(charset or "")
    if repeated is None:
        return None

    def require_single_codes(data: bytes) -> None:
        if repeated.match(data):
            raise UnicodeDecodeError(str(charset), data, 0, len(data), "a character has another code")

    return require_single_codes


def encode_utf8_in_latin1(text: str) -> str:
    """Return the UTF-8 bytes of `text` as a string of their byte values."""
    return text if text.isascii() else text.encode().decode("latin-1")


def prove_utf8(text: str) -> None:
    """Raise UnicodeDecodeError unless the byte values of `text`, a latin-1 string, are UTF-8."""
    text.encode("latin-1").decode()


def _decode_latin1(data: bytes) -> str:
    return encode_utf8_in_latin1(codecs.charmap_decode(data, "strict", _LATIN1)[0])
