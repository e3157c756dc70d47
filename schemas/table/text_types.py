"""Texts of MariaDB's UUID, INET4 and INET6, and of VECTOR: from their bytes in the log, and in the server's
spelling. Pure.

The log has the bytes in the order of the text, without the zero bytes at their end. (Tables store a UUID
in another order, which depends on the version of the server that created them; the log does not.)

The servers' own text of a VECTOR has six digits of each number, which are too few. Here a number is what
`FLOAT` is elsewhere: widened exactly to a double.
"""

from __future__ import annotations

import ipaddress
import math
import re
import struct
from collections.abc import Callable

import msgspec

from schemas.table.model import TextOf

_UUID_DIGITS = re.compile(r"[0-9a-f]{32}")
_MAPPED = "::ffff:"

FLOAT_BYTES = 4
"""Bytes of a number of a VECTOR."""
SIZES: dict[TextOf, int] = {TextOf.UUID: 16, TextOf.INET4: 4, TextOf.INET6: 16}
"""Bytes of a value, if all values have as many."""


def format_uuid(data: bytes) -> str:
    """Return the text of 16 bytes: lower-case, with hyphens."""
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def format_inet4(data: bytes) -> str:
    """Return the text of 4 bytes."""
    return ".".join(map(str, data))


def format_inet6(data: bytes) -> str:
    """Return the text of 16 bytes as MariaDB spells it.

    Other servers spell some addresses differently: MariaDB shortens also a single zero (`1:2:3:4:5:6:7::`),
    and ends a mapped or compatible address with an IPv4 address (`::ffff:1.2.3.4`, `::1.2.3.4`).
    """
    words = [data[at] << 8 | data[at + 1] for at in range(0, 16, 2)]
    start, length = _find_longest_gap(words)
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return ("::" if length == 6 else _MAPPED) + format_inet4(data[12:])
    shown = [f"{word:x}" for word in words]
    if not length:
        return ":".join(shown)
    return f"{':'.join(shown[:start])}::{':'.join(shown[start + length :])}"


def format_vector(data: bytes) -> str:
    """Return the text of numbers of four bytes each. Raises ValueError for bytes that are no vector."""
    if len(data) % FLOAT_BYTES:
        raise ValueError(f"{len(data)} bytes are no vector")
    numbers = struct.unpack(f"<{len(data) // FLOAT_BYTES}f", data)
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a vector has no NaN and no infinity")
    return f"[{','.join(map(repr, numbers))}]"


def parse_vector(text: str) -> bytes:
    """Return the bytes of a vector. Raises ValueError for a text that is none."""
    try:
        numbers = _NUMBERS.decode(text)
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except (msgspec.MsgspecError, OverflowError) as error:
        raise ValueError(f"{text!r} is no vector: {error}") from error


_NUMBERS = msgspec.json.Decoder(list[float])


def _find_longest_gap(words: list[int]) -> tuple[int, int]:
    """Return (start, length) of the longest sequence of zero words, the first one of several."""
    best, start = (0, 0), 0
    for at, word in enumerate([*words, 1]):
        if word:
            best = (start, at - start) if at - start > best[1] else best
            start = at + 1
    return best


TEXT_FORMATTERS: dict[TextOf, Callable[[bytes], str]] = {
    TextOf.UUID: format_uuid,
    TextOf.INET4: format_inet4,
    TextOf.INET6: format_inet6,
    TextOf.VECTOR: format_vector,
}
"""Bytes of a value → its text. Raises ValueError for bytes that are no value."""


def normalize_text(text_of: TextOf, text: str) -> str:
    """Return another spelling of a value in the server's. Raises ValueError for a text that is no value."""
    return TEXT_FORMATTERS[text_of](_PARSERS[text_of](text))


def get_zero_text(text_of: TextOf) -> str | None:
    """Return the value that MariaDB puts into a NOT NULL column without a default; None: MySQL puts another
    one there.
    """
    if text_of not in SIZES:
        return None
    return TEXT_FORMATTERS[text_of](bytes(SIZES[text_of]))


def _parse_uuid(text: str) -> bytes:
    digits = text.replace("-", "").lower()
    if _UUID_DIGITS.fullmatch(digits) is None:
        raise ValueError(f"{text!r} is no UUID")
    return bytes.fromhex(digits)


_PARSERS: dict[TextOf, Callable[[str], bytes]] = {
    TextOf.UUID: _parse_uuid,
    TextOf.INET4: lambda text: ipaddress.IPv4Address(text).packed,
    TextOf.INET6: lambda text: ipaddress.IPv6Address(text).packed,
    TextOf.VECTOR: parse_vector,
}
