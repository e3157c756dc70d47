"""Look-up tables and caches that generated decoders use for dates, times, digits and labels.

Neighbouring rows share days and seconds, so a dictionary with a limited number of entries is faster than
any formatting.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from json import encoder

from schemas.values.mysql import encode_wire_geometry, is_geometry

quote_json_text: Callable[[str], str] = encoder.encode_basestring
"""Returns a string as a JSON string literal. Only `"`, `\\` and control characters are escaped, so UTF-8
carried as latin-1 stays valid as well.
"""

D1 = tuple(f"{i}" for i in range(10))
D2 = tuple(f"{i:02d}" for i in range(100))
D3 = tuple(f"{i:03d}" for i in range(1000))
MAX_SAFE = 2**53
_LIMIT = 100_000


class TextCache(dict[int, str]):
    """int → text, computed by `make` when missing; emptied when full."""

    def __init__(self, make: Callable[[int], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: int) -> str:
        if len(self) >= _LIMIT:
            self.clear()
        text = self[key] = self._make(key)
        return text


def render_big_int(value: int) -> str:
    """Return the JSON of an integer: a string beyond ±2^53."""
    return f"{value}" if -MAX_SAFE <= value <= MAX_SAFE else f'"{value}"'


def encode_base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def encode_geometry(data: bytes) -> str:
    """Return the JSON of a geometry. Raises ValueError for bytes that are none."""
    if not is_geometry(data):
        raise ValueError(f"{len(data)} bytes are no geometry")
    wire = encode_wire_geometry(data)
    return f'{{"wkb":"{wire["wkb"]}","srid":{wire["srid"]}}}'


def _format_date3(raw: int) -> str:
    """Return the text of DATE's 3 bytes: 15 bits year, 4 month, 5 day."""
    return f"{raw >> 9:04d}-{D2[raw >> 5 & 15]}-{D2[raw & 31]}"


def _format_datetime_second(raw: int) -> str:
    """Return the text of DATETIME2's 5 bytes: 1 bit sign, 17 year * 13 + month, 5 day, 5, 6 and 6 h m s."""
    packed = raw - 0x8000000000
    day, clock = packed >> 17, packed & 0x1FFFF
    year, month = divmod(day >> 5, 13)
    return f"{year:04d}-{D2[month]}-{D2[day & 31]} {CLOCK[clock]}"


def _format_clock(raw: int) -> str:
    """Return the text of hours, minutes (6 bits) and seconds (6 bits)."""
    return f"{raw >> 12:02d}:{D2[raw >> 6 & 63]}:{D2[raw & 63]}"


def _format_utc_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _format_old_datetime(raw: int) -> str:
    """Return the text of the old 8-byte DATETIME, the decimal number YYYYMMDDhhmmss."""
    d = f"{raw:014d}"
    return f"{d[:4]}-{d[4:6]}-{d[6:8]} {d[8:10]}:{d[10:12]}:{d[12:]}"


def _format_old_time(raw: int) -> str:
    """Return the text of the old 3-byte TIME, the signed decimal number hhmmss."""
    hours, rest = divmod(abs(raw), 10_000)
    return f"{'-' if raw < 0 else ''}{hours:02d}:{D2[rest // 100]}:{D2[rest % 100]}"


DATE3 = TextCache(_format_date3)
CLOCK = TextCache(_format_clock)
DATETIME_SECOND = TextCache(_format_datetime_second)
UTC_SECOND = TextCache(_format_utc_second)
OLD_DATETIME = TextCache(_format_old_datetime)
OLD_TIME = TextCache(_format_old_time)


class SetNumbers(dict[int, str]):
    """Bit mask of a SET → the JSON of its number, for a SET with `members` labels."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self._members = members

    def __missing__(self, mask: int) -> str:
        if mask >> self._members:
            raise KeyError(f"SET value {mask:#x} has a bit that the definition has no label for")
        if len(self) >= _LIMIT:
            self.clear()
        text = self[mask] = render_big_int(mask)
        return text


class SetLabels(dict[int, str]):
    """Bit mask of a SET → its labels joined by commas, as a JSON string."""

    def __init__(self, members: tuple[str, ...]) -> None:
        super().__init__()
        self._members = members

    def __missing__(self, mask: int) -> str:
        if mask >> len(self._members):
            raise KeyError(f"SET value {mask:#x} has a bit that the definition has no label for")
        if len(self) >= _LIMIT:
            self.clear()
        text = self[mask] = quote_json_text(",".join(m for i, m in enumerate(self._members) if mask >> i & 1))
        return text
