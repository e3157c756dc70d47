"""The SQL statements and settings among the remedies of findings, for an administrator. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas.findings import Finding

_COMMENT = "-- "
_STATEMENT = re.compile(r"(?:GRANT|SET|ALTER|CREATE) ")
_UP_TO_SEMICOLON = re.compile(r"""((?:[^;'"`]|'[^']*'|"[^"]*"|`[^`]*`)+)(?:;|\Z)""")
_ADVICE = ("…", ", or exclude ")
"""Texts that only advice has, not a statement to run as it is."""
_RESTART = "restart it"
"""A text of the remedies that begin in the server's configuration."""
_SET_GLOBAL = re.compile(r"SET GLOBAL (\w+) = ([^;]+);")
_KEEP = re.compile(r"and set it in the server's configuration(?:; |$)")
"""A text of the remedies whose setting the server's configuration must have, too."""
_WRITE = re.compile(r"write (\w+) = (\S+) into the server's configuration")
"""The beginning of remedies whose setting takes effect only at a restart."""


class NeededSetting(NamedTuple):
    """A variable of a MySQL or MariaDB server that has a wrong value."""

    variable: str
    value: str
    statements: tuple[str, ...]
    """They set it in the running server; (): only a restart does."""
    is_required: bool
    """Whether capture or apply does not start without it."""


def list_needed_statements(findings: Iterable[Finding]) -> list[str]:
    """Return each statement once, but none of a setting; what has to be done besides follows as a comment.

    What needs a restart of the server comes first, as a comment.
    """
    needed = (each.remedy for each in findings if not _list_settings(each))
    lines = dict.fromkeys(line for remedy in needed for line in _split_remedy(remedy))
    return sorted(lines, key=lambda line: not line.startswith(_COMMENT))


def list_needed_settings(findings: Iterable[Finding]) -> list[NeededSetting]:
    """Return each variable once, those that are required first."""
    found = [setting for each in findings for setting in _list_settings(each)]
    settings = dict[str, NeededSetting]()
    for each in sorted(found, key=lambda setting: not setting.is_required):
        settings.setdefault(each.variable, each)
    return list(settings.values())


def has_needed_changes(findings: Sequence[Finding]) -> bool:
    """Return whether any of the findings has a statement or a setting as its remedy."""
    return bool(list_needed_statements(findings) or list_needed_settings(findings))


def _list_settings(finding: Finding) -> list[NeededSetting]:
    is_required = finding.level == "error"
    if written := _WRITE.match(finding.remedy):
        return [NeededSetting(written[1], written[2], (), is_required)]
    if not _KEEP.search(finding.remedy):
        return []
    settings = dict[str, NeededSetting]()
    for line in _split_remedy(_KEEP.sub("", finding.remedy)):
        if statement := _SET_GLOBAL.match(line):
            variable, value = statement.groups()
            earlier = settings[variable].statements if variable in settings else ()
            settings[variable] = NeededSetting(variable, value, (*earlier, line), is_required)
    return list(settings.values())


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
