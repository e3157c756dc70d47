"""Names what a statement reads of a server's catalog or settings, for error messages. Pure.

Statements on rows are never named, because their texts may contain values.
"""

from __future__ import annotations

import re

_NAMED_CHARACTERS = 80
_FIRST_FROM = re.compile(r"\bFROM\s+(\S+)", re.IGNORECASE)
_CATALOG = re.compile(r"(?:information_schema|performance_schema|mysql|pg_catalog|SYS)\.\w+", re.IGNORECASE)
_SETTING = re.compile(r"SHOW\b|SET\s+SESSION\b", re.IGNORECASE)

#: The remedy if a server does not know a column, view, statement or setting that rowlock uses.
UNKNOWN_THERE = "use a version of the server that rowlock supports (README.md, Support matrix)"


def name_catalog_read(statement: str) -> str | None:
    """Return the view that a SELECT reads first, or the beginning of another statement about the
    server.

    None if the statement is about rows.
    """
    text = " ".join(statement.split())
    if _SETTING.match(text):
        return text[:_NAMED_CHARACTERS]
    if text[:6].upper() != "SELECT":
        return None
    origin = _FIRST_FROM.search(text)
    if origin is None:
        return text[:_NAMED_CHARACTERS]
    view = _CATALOG.match(re.sub(r'[`"]', "", origin[1]))
    return view[0] if view else None
