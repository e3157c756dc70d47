"""The changes that an administrator has to make on the servers: statements, and one block for a file.

`check` and `init` print it below their findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowlock.inspect.first_config.needed_statements import (
    NeededSetting,
    list_needed_settings,
    list_needed_statements,
)
from rowlock.inspect.scopes import FindingScope, ScopedFinding
from schemas.config.model import Config
from schemas.findings import Finding

_FILES = (
    "Debian's MariaDB reads the files *.cnf in /etc/mysql/mariadb.conf.d/, where a new one can be added; "
    "MySQL reads my.cnf"
)


def format_needed_changes(config: Config, scoped: Sequence[ScopedFinding]) -> list[str]:
    """Return the lines about all servers of a configuration."""
    servers = [("source", each) for each in config.sources] + [("target", each) for each in config.targets]
    return [
        line
        for side, name in servers
        for line in _yield_needed_changes(f"{side} {name}", _list_own_findings(side, name, scoped))
    ]


def _list_own_findings(side: str, name: str, scoped: Sequence[ScopedFinding]) -> list[Finding]:
    """Return the findings about one server. A source, a target and a pipeline may have the same name."""
    whole = FindingScope.SOURCE if side == "source" else FindingScope.TARGET
    return [
        each.finding
        for each in scoped
        if each.name == name
        and (
            each.scope is whole
            or (each.scope is FindingScope.TABLE and each.finding.place.startswith(f"{side} "))
        )
    ]


def _yield_needed_changes(place: str, findings: Sequence[Finding]) -> Iterator[str]:
    for level, verb in (("error", "needs"), ("warning", "should get")):
        if found := list_needed_statements(each for each in findings if each.level == level):
            yield f"{place} {verb}, from an administrator:"
            yield from _indent_lines(found)
    if settings := list_needed_settings(findings):
        yield from _yield_settings(place, settings)


def _yield_settings(place: str, settings: Sequence[NeededSetting]) -> Iterator[str]:
    waiting = [each.variable for each in settings if not each.statements]
    restart = f", and restart the server, because {', '.join(waiting)} needs it" if waiting else ""
    yield f"{place}: write this into the server's configuration file{restart}. {_FILES}:"
    yield from _indent_lines(_yield_file_lines(settings))
    if not waiting:
        yield f"{place}: no restart is needed, because these statements have the same effect at once:"
        yield from _indent_lines(statement for each in settings for statement in each.statements)


def _yield_file_lines(settings: Sequence[NeededSetting]) -> Iterator[str]:
    yield "[mysqld]"
    yield from (f"{each.variable} = {each.value}" for each in settings if each.is_required)
    if recommended := [each for each in settings if not each.is_required]:
        yield "# recommended:"
        yield from (f"{each.variable} = {each.value}" for each in recommended)


def _indent_lines(lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    return (f"  {each}" for each in lines)
