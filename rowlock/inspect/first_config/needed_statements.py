"""The SQL statements among the remedies of findings, for an administrator to run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from schemas.findings import Finding

_COMMENT = "-- "
_STATEMENT = re.compile(r"(?:GRANT|SET|ALTER|CREATE) ")
_UP_TO_SEMICOLON = re.compile(r"""((?:[^;'"`]|'[^']*'|"[^"]*"|`[^`]*`)+)(?:;|\Z)""")
_ADVICE = ("…", ", or exclude ", " (MariaDB: ")
"""Texts that only advice has, not a statement to run as it is."""
_RESTART = "restart it"
"""A text of the remedies that begin in the server's configuration."""


def list_needed_statements(findings: Iterable[Finding]) -> list[str]:
    """Return each statement once; what has to be done besides follows as a comment.

    What needs a restart of the server comes first, as a comment: the restart ends what SET GLOBAL has set.
    """
    lines = dict.fromkeys(line for each in findings for line in _split_remedy(each.remedy))
    return sorted(lines, key=lambda line: not line.startswith(_COMMENT))


def _split_remedy(remedy: str) -> list[str]:
    if any(each in remedy for each in _ADVICE):
        return []
    lines, rest = list[str](), remedy
    while _STATEMENT.match(rest) and (statement := _UP_TO_SEMICOLON.match(rest)):
        lines.append(f"{statement[1].rstrip()};")
        rest = rest[statement.end() :].lstrip()
    if lines and rest:
        lines[-1] += f"  {_COMMENT}{rest}"
    if not lines and _RESTART in remedy:
        return [f"{_COMMENT}{remedy}"]
    return lines
