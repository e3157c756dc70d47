"""Values of Debezium that could be another value in another mode of the connector, if the mode is
unknown. Pure.

With schemas on, the schema shows the mode; the source's configuration may state it, too. Otherwise a
value that is valid in another mode as well is refused: bytes that could be hexadecimal, microseconds
that could be milliseconds. Most values are unambiguous.
"""

from __future__ import annotations

import re

_HEX = re.compile(r"(?:[0-9a-f]{4})+\Z")
LONGEST_TIME_MS = 3_020_399_999
"""838:59:59.999, the longest TIME, in milliseconds."""
LATEST_MS = 253_402_300_800_000
"""The end of the year 9999 in milliseconds since 1970: as microseconds that is in January 1978."""

_SCHEMAS_REMEDY = "turn schemas on in the connector's JSON converter (value.converter.schemas.enable), or set in the source's configuration"


def explain_doubtful_bytes(text: str) -> str | None:
    """Return why base64 could be hexadecimal; None: it could not, or it is empty."""
    if _HEX.match(text) is None:
        return None
    return f"it could be base64 or hexadecimal: {_SCHEMAS_REMEDY} `binaries`, which is the connector's binary.handling.mode"


def explain_doubtful_time(value: int, fsp: int) -> str | None:
    """Return why the microseconds of a TIME could be milliseconds; None: they could not."""
    as_ms = abs(value) <= LONGEST_TIME_MS and value % 10 ** max(0, 3 - fsp) == 0
    return _format_unit_doubt() if value and as_ms else None


def explain_doubtful_datetime(value: int, fsp: int) -> str | None:
    """Return why the microseconds of a DATETIME could be milliseconds; None: they could not.

    Up to DATETIME(3), Debezium writes milliseconds anyway.
    """
    return _format_unit_doubt() if fsp > 3 and value and abs(value) < LATEST_MS else None


def _format_unit_doubt() -> str:
    return (
        f"it could count microseconds or milliseconds (time.precision.mode=connect, which loses digits): {_SCHEMAS_REMEDY} "
        "`times: adaptive_time_microseconds` if that is the connector's time.precision.mode"
    )
