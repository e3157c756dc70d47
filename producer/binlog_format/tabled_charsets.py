"""Character sets that Python has no codec for, decoded by tables of the servers (charset_tables.json, which
`python -m tests.charset_tables` writes). Pure.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import cache
from importlib import resources

import msgspec

UNDEFINED = "\ufffd"
"""Fills the place of a code without a character."""
TABLED_CHARSETS = frozenset({"armscii8", "dec8", "eucjpms", "geostd8", "hp8", "keybcs2", "swe7"})

Decode = Callable[[bytes], str]
"""Bytes of a value → its text. Raises UnicodeDecodeError."""


class _CharsetTable(msgspec.Struct, frozen=True):
    """The codes of a character set.

    `rows`: (the first code in hexadecimal, the characters of this code and of those that follow it in the
    last byte). `repeated`: codes of characters to which the servers give another code.
    """

    rows: tuple[tuple[str, str], ...]
    repeated: frozenset[str]


@cache
def _load_tables() -> dict[str, _CharsetTable]:
    data = resources.files(__package__).joinpath("charset_tables.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, _CharsetTable])


def has_repeated_codes(charset: str) -> bool:
    """Return whether a character of a set in TABLED_CHARSETS has several codes."""
    return bool(_load_tables()[charset].repeated)


@cache
def make_table_decoder(charset: str, *, unique: bool = False) -> Decode:
    """Return the decoder of a character set in TABLED_CHARSETS.

    `unique`: it refuses codes of characters that have another code, so that different bytes never have the
    same text.
    """
    table = _load_tables()[charset]
    refused = {bytes.fromhex(code) for code in table.repeated} if unique else set()
    characters = {
        code: character
        for start, text in table.rows
        for code, character in zip(_yield_codes(bytes.fromhex(start)), text, strict=False)
        if character != UNDEFINED and code not in refused
    }
    if max(map(len, characters)) == 1:
        return _make_byte_decoder("".join(characters.get(bytes([code]), "\ufffe") for code in range(256)))
    return _make_code_decoder(charset, characters)


def _yield_codes(first: bytes) -> list[bytes]:
    return [first[:-1] + bytes([last]) for last in range(first[-1], 256)]


def _make_byte_decoder(characters: str) -> Decode:
    """Return the decoder of a set with one byte for each character; U+FFFE is refused."""
    return lambda data: codecs.charmap_decode(data, "strict", characters)[0]


def _make_code_decoder(charset: str, characters: dict[bytes, str]) -> Decode:
    """Return the decoder of a set with codes of several bytes. The first byte determines their number."""
    sizes = {code[0]: len(code) for code in characters}
    longest_first = sorted(set(sizes.values()), reverse=True)
    codes = re.compile(
        b"|".join(
            b"[" + b"".join(re.escape(bytes([lead])) for lead in sizes if sizes[lead] == size) + b"]"
            + b"." * (size - 1)
            for size in longest_first
        ) + b"|.",
        re.DOTALL,
    )  # fmt: skip

    def decode(data: bytes) -> str:
        found = codes.findall(data)
        try:
            return "".join([characters[code] for code in found])
        except KeyError as error:
            at = data.index(error.args[0])
            raise UnicodeDecodeError(charset, data, at, at + 1, "no character has this code") from None

    return decode
