"""The text of a statement in its client's character set, not in the server's.

The log has a statement as the bytes that the client sent, with the collation id of
`character_set_client`. In gbk, big5 and similar ones the second byte of a character may be a backslash
or a backtick. Read in another character set, a string would end at another place, and the names after it
would be lost. Characters that cannot be decoded become U+FFFD, one for each character, as the server
divides the bytes: never a quote, never a backslash. A name with U+FFFD is unknown
(producer.statements.ddl).
"""

from __future__ import annotations

import re

from producer.binlog_format.charsets import find_decoder

UNDECODED = "\ufffd"

#: Collation ids that both servers give the character sets of clients that are not UTF-8; MariaDB's NOPAD
#: ones are 1024 higher.
_IDS: dict[str, tuple[int, ...]] = {
    "big5": (1, 84), "latin2": (2, 9, 21, 27, 77), "dec8": (3, 69), "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94), "hp8": (6, 72), "koi8r": (7, 74), "swe7": (10, 82),
    "ujis": (12, 91), "sjis": (13, 88), "cp1251": (14, 23, 50, 51, 52), "hebrew": (16, 71),
    "tis620": (18, 89), "euckr": (19, 85), "latin7": (20, 41, 42, 79), "koi8u": (22, 75), "gb2312": (24, 86),
    "greek": (25, 70), "cp1250": (26, 34, 44, 66, 99), "gbk": (28, 87), "cp1257": (29, 58, 59),
    "latin5": (30, 78), "armscii8": (32, 64), "cp866": (36, 68), "keybcs2": (37, 73), "macce": (38, 43),
    "macroman": (39, 53), "cp852": (40, 81), "cp1256": (57, 67), "geostd8": (92, 93), "cp932": (95, 96),
    "eucjpms": (97, 98), "gb18030": (248, 249, 250),
}  # fmt: skip
_CHARSETS = {number: charset for charset, numbers in _IDS.items() for number in numbers}
_NOPAD = 1 << 10

_PAIRS = rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]"
_SHIFTED = rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]"
_EUC = rb"\x8f[\xa1-\xfe]{2}|\x8e[\xa0-\xdf]|[\xa1-\xfe]{2}"
#: How the server divides the bytes of a character set into characters; in the others each byte is one.
_CHARACTERS: dict[str, re.Pattern[bytes]] = {
    charset: re.compile(rb"[\x00-\x7f]+|" + several + rb"|.", re.DOTALL)
    for charset, several in {
        "gbk": _PAIRS, "gb18030": rb"[\x81-\xfe][\x30-\x39][\x81-\xfe][\x30-\x39]|" + _PAIRS,
        "big5": rb"[\xa1-\xf9][\x40-\x7e\xa1-\xfe]", "sjis": _SHIFTED, "cp932": _SHIFTED,
        "euckr": rb"[\x81-\xfe][\x41-\x5a\x61-\x7a\x81-\xfe]", "gb2312": rb"[\xa1-\xf7][\xa1-\xfe]",
        "ujis": _EUC, "eucjpms": _EUC,
    }.items()
}  # fmt: skip
_BYTES = re.compile(rb"[\x00-\x7f]+|.", re.DOTALL)


def decode_statement_text(data: bytes, client: int | None) -> str:
    """Return the text of a statement.

    `client`: the collation id of its client's character set, None: it is not known.
    """
    if data.isascii():
        return data.decode("ascii")
    number = client or 0
    charset = _CHARSETS.get(number - _NOPAD if _NOPAD <= number < 2 * _NOPAD else number)
    if charset is None:
        return data.decode("utf-8", "replace")
    return "".join(
        _decode_character(each, charset) for each in _CHARACTERS.get(charset, _BYTES).findall(data)
    )


def _decode_character(data: bytes, charset: str) -> str:
    if data.isascii():
        return data.decode("ascii")
    try:
        decode = find_decoder(charset)
        text = UNDECODED if decode is None else decode(data).encode("latin-1").decode()
    except (UnicodeError, LookupError):
        return UNDECODED
    return text if len(text) == 1 and not text.isascii() else UNDECODED
