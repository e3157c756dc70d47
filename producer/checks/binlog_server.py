"""Is a server with a binlog as capture needs it?

The settings are a table: variable, what is wrong with a value, the statement that fixes it. Everything wrong is said at
once. A variable that the server does not have is as it should be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import pymysql

from producer.checks.log_guards import log_findings, read_facts
from producer.errors import SourceRefusedError, TransientSourceError
from producer.flavours.known import FLAVOURS
from producer.source import SourceCheck
from producer.sources.catalog import Catalog, open_catalog
from producer.sources.grants import Sight, hidden, missing_grants
from producer.sources.source_errors import source_errors
from schemas.config.model import SourceConfig
from schemas.errors import SchemaError
from schemas.findings import Finding, no_table_yet, refusal, seen_and_remedy
from schemas.io.endpoints import MYSQL, blamed
from schemas.io.server_errors.mysql import error_text, noted_read, remedy_of
from schemas.io.server_errors.versions import mysql_family_refusal
from schemas.table.online_ddl import TableName, of_tools

_ACCESS_DENIED = frozenset({1045, 1044, 1698})
_UNREACHABLE = frozenset({2003, 2005, 2013})


class _Setting(NamedTuple):
    """`wrong` tells whether a value is; `servers`: "mysql", "mariadb" or both."""

    variable: str
    wrong: Callable[[str], bool]
    why: str
    remedy: str
    servers: tuple[str, ...] = ("mysql", "mariadb")


def _is_not(wanted: str) -> Callable[[str], bool]:
    return lambda value: value.upper() != wanted


def _is(refused: str) -> Callable[[str], bool]:
    return lambda value: value.upper() == refused


_RECONNECT = "and reconnect the clients (sessions keep their own value)"

SETTINGS: tuple[_Setting, ...] = (
    _Setting("log_bin", _is("OFF"), "there is no binary log to capture", "start the server with --log-bin=binlog"),
    _Setting(
        "binlog_format", _is_not("ROW"), "only ROW logs what changed",
        f"SET GLOBAL binlog_format = ROW; {_RECONNECT}",
    ),
    _Setting(
        "binlog_row_image", _is_not("FULL"), "before and after images must be whole",
        f"SET GLOBAL binlog_row_image = FULL; {_RECONNECT}",
    ),
    _Setting(
        "binlog_row_value_options", lambda value: value != "", "partial JSON images lose updates",
        f"SET GLOBAL binlog_row_value_options = ''; {_RECONNECT}",
    ),
    _Setting(
        "gtid_mode", _is_not("ON"), "without GTIDs nothing says which transactions a SELECT of the snapshot has seen",
        "SET GLOBAL enforce_gtid_consistency = ON; then gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE and ON, step by step",
        ("mysql",),
    ),
    _Setting("server_id", _is("0"), "a server without an id serves no binlog", "SET GLOBAL server_id = 1;"),
)  # fmt: skip


#: What connecting and reading the catalog raise; a RuntimeError: PyMySQL lacks a package for the server's authentication.
_NOT_READ = (pymysql.MySQLError, SchemaError, RuntimeError, OSError)


def check_server(source: SourceConfig, place: str) -> SourceCheck:
    """Return everything that is wrong with the server and its tables. `place`: of findings."""
    findings: list[Finding] = []
    try:
        with closing(open_catalog(source)) as catalog:
            findings.extend(_on_server(catalog, source, place))
            return SourceCheck(findings, _selected(catalog, source)[0])
    except _NOT_READ as error:
        return SourceCheck([*findings, _unread(place, source, error)], None)


def require_server(source: SourceConfig, place: str) -> None:
    """Raise SourceRefusedError with all errors of the server (TransientSourceError if it cannot be reached just now).

    Tables that cannot be captured are not errors here: they are left out, and said in every watermark.
    """
    try:
        catalog = open_catalog(source)
    except _NOT_READ as error:
        finding = _unread(place, source, error)
        code = error.args[0] if error.args else 0
        if code in _ACCESS_DENIED or not isinstance(error, pymysql.MySQLError):
            raise SourceRefusedError(refusal([finding])) from error
        raise TransientSourceError(refusal([finding])) from error
    with closing(catalog), source_errors():
        findings = _server_findings(catalog, source, place)
    errors = [each for each in findings if each.level == "error"]
    if errors:
        raise SourceRefusedError(refusal(errors))


# --- the server


def _on_server(catalog: Catalog, source: SourceConfig, place: str) -> Iterator[Finding]:
    other = list(_flavour(catalog, source, place))
    if other:  # it does not answer what the configured kind is asked
        yield from other
        return
    yield from _as_configured(catalog, source, place)
    yield from _tables(catalog, source, place)
    for finding in hidden(Sight.of(catalog.server.grants(), catalog.session.flavour.rights), source):
        yield Finding("warning", place, *finding)


def _server_findings(catalog: Catalog, source: SourceConfig, place: str) -> list[Finding]:
    """Return what is wrong with the server itself, tables aside."""
    return list(_flavour(catalog, source, place)) or list(_as_configured(catalog, source, place))


def _as_configured(catalog: Catalog, source: SourceConfig, place: str) -> Iterator[Finding]:
    """Judge a server of the configured kind."""
    yield from settings_findings(catalog.server.variables(), source, place)
    missing = missing_grants(catalog.server.grants(), catalog.session.flavour.rights, source)
    for finding in missing:
        yield Finding("error", place, *finding)
    if not missing:  # else the server does not answer what is asked
        yield from log_findings(read_facts(catalog), place)


def _flavour(catalog: Catalog, source: SourceConfig, place: str) -> Iterator[Finding]:
    version = str(catalog.session.query("SELECT VERSION() AS v")[0]["v"])
    if not catalog.session.flavour.is_of(version):
        wanted = next(flavour.type for flavour in FLAVOURS.values() if flavour.is_of(version))
        yield Finding(
            "error",
            place,
            f"the server is {version}, configured is type: {source.type}",
            f"set `type` to {wanted}",
        )
    elif (refused := mysql_family_refusal(version)) is not None:  # a proxy greeted with another version
        yield Finding("error", place, *seen_and_remedy(f"{source.host}:{source.port} {refused}"))


def settings_findings(variables: dict[str, str], source: SourceConfig, place: str) -> Iterator[Finding]:
    """Judge the server's variables; pure."""
    for setting in SETTINGS:
        value = variables.get(setting.variable)
        if source.type not in setting.servers or value is None or not setting.wrong(value):
            continue
        if setting.variable == "gtid_mode" and source.snapshot == "never":
            continue
        shown = value or "''"
        yield Finding("error", place, f"{setting.variable} is {shown}: {setting.why}", setting.remedy)
    metadata = variables.get("binlog_row_metadata", "FULL")
    if metadata.upper() != "FULL":
        yield Finding(
            "warning", place,
            f"binlog_row_metadata is {metadata}: only with FULL the log says names, labels and keys of columns, so that a definition that "
            "does not fit the rows is refuted by the log itself",
            "SET GLOBAL binlog_row_metadata = FULL",
        )  # fmt: skip


def _tables(catalog: Catalog, source: SourceConfig, place: str) -> Iterator[Finding]:
    names, of_tool = _selected(catalog, source)
    if not names:
        yield no_table_yet(place, source.tables)
    for (db, table), owner in sorted(of_tool.items()):
        yield Finding(
            "warning", f"{place}, table {db}.{table}",
            f"it is left out as one in which gh-ost or pt-online-schema-change alters {owner[0]}.{owner[1]}",
            "nothing, if it is; else name it in `tables:` as it is, or see `online_ddl`",
        )  # fmt: skip
    for name, surveyed in catalog.tables.survey(names).items():
        if surveyed.reason is not None:
            message, remedy = seen_and_remedy(surveyed.reason)
            yield Finding("error", f"{place}, table {name[0]}.{name[1]}", message, remedy)
    for pattern in source.tables:
        if not pattern.startswith("!") and names and not catalog.tables.table_names([pattern]):
            yield no_table_yet(place, [pattern])


def _selected(catalog: Catalog, source: SourceConfig) -> tuple[list[TableName], dict[TableName, TableName]]:
    """Return the tables to capture, and those left out as tables of tools, each with the one that it is of."""
    names = catalog.tables.table_names(source.tables)
    patterns = catalog.tables.names.patterns(source.tables)
    left_out = of_tools(names, source.online_ddl.names, patterns, set(names))
    return [name for name in names if name not in left_out], left_out


def _unread(place: str, source: SourceConfig, error: Exception) -> Finding:
    """Return the finding about a server that cannot be reached, or whose catalog cannot be read."""
    if isinstance(error, SchemaError):
        return Finding("error", place, *seen_and_remedy(str(error)))
    code = error.args[0] if error.args else 0
    text = error.args[1] if len(error.args) > 1 else str(error)
    at = f"{source.host}:{source.port}"
    if code in _ACCESS_DENIED and noted_read(error) is None:
        return Finding(
            "error", place, f"{at} refuses user {source.user}: {text}",
            "correct user and password in the configuration, or create the user (docs/how-to/source-setup.md)",
        )  # fmt: skip
    if code in _UNREACHABLE or not isinstance(code, int):
        if (other := blamed(source.host, source.port, MYSQL)) is not None:
            return Finding(
                "error",
                place,
                other,
                "correct host and port; if they are right, see whether the server hangs",
            )
        return Finding(
            "error",
            place,
            f"no database answers at {at}: {text}",
            "correct host and port, start the server, open the firewall",
        )
    return Finding("error", place, f"{at} cannot be used: {error_text(error)}", remedy_of(error))
