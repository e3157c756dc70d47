"""Checks that a server with a binlog meets the requirements of capture.

The settings are a table: variable, what is wrong with a value, the statement that fixes it. All findings
are reported at once. A variable that the server does not have is considered right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import pymysql

from producer.checks.log_guards import log_findings, read_facts
from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.catalog import BINLOG_FLAVOURS, Catalog, open_catalog
from producer.sources.grants import CatalogVisibility, list_hidden_objects, list_missing_grants
from producer.sources.protocols import SourceCheckResult
from producer.sources.source_session import source_errors
from producer.sources.survey import ExaminedTable
from schemas.config.model import SourceConfig
from schemas.config.secrets import add_secret_place
from schemas.errors import SchemaError
from schemas.findings import (
    Finding,
    build_error_finding,
    build_no_table_finding,
    merge_findings,
)
from schemas.io.certificates import explain_refused_certificate
from schemas.io.endpoints import MYSQL_SERVER, explain_wrong_service
from schemas.io.refused_logins import CORRECT_LOGIN
from schemas.io.server_errors import (
    TESTED_SOURCES,
    choose_mysql_remedy,
    explain_mysql_version_refusal,
    explain_untested_version,
    format_mysql_error,
    get_noted_read,
)
from schemas.table.left_out import LeftOutColumns
from schemas.table.online_ddl import TableName, find_tool_tables

_ACCESS_DENIED = frozenset({1045, 1044, 1698})
_UNREACHABLE = frozenset({2003, 2005, 2013})


class _Setting(NamedTuple):
    """A required setting. `wrong`: whether a value is wrong. `servers`: "mysql", "mariadb" or both."""

    variable: str
    wrong: Callable[[str], bool]
    why: str
    remedy: str
    servers: tuple[str, ...] = ("mysql", "mariadb")


def _make_differs_check(expected: str) -> Callable[[str], bool]:
    return lambda value: value.upper() != expected


def _make_equals_check(refused: str) -> Callable[[str], bool]:
    return lambda value: value.upper() == refused


_FILE = "the server's configuration ([mysqld] of my.cnf)"
_KEEP = "and set it in the server's configuration"
_RECONNECT = f"{_KEEP}; and reconnect the clients (sessions keep their own value)"

REQUIRED_SETTINGS: tuple[_Setting, ...] = (
    _Setting("log_bin", _make_equals_check("OFF"), "there is no binary log to capture",
     f"write log_bin = binlog into {_FILE} and restart it"),
    _Setting(
        "binlog_format", _make_differs_check("ROW"), "only ROW logs what changed",
        f"SET GLOBAL binlog_format = ROW; {_RECONNECT}",
    ),
    _Setting(
        "binlog_row_image", _make_differs_check("FULL"), "before and after images must be whole",
        f"SET GLOBAL binlog_row_image = FULL; {_RECONNECT}",
    ),
    _Setting(
        "binlog_row_value_options", lambda value: value != "", "partial JSON images lose updates",
        f"SET GLOBAL binlog_row_value_options = ''; {_RECONNECT}",
    ),
    _Setting(
        "gtid_mode", _make_differs_check("ON"),
        "without GTIDs nothing shows which transactions a SELECT of the snapshot has seen",
        "SET GLOBAL enforce_gtid_consistency = ON; SET GLOBAL gtid_mode = OFF_PERMISSIVE; "
        f"SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = ON; {_KEEP}",
        ("mysql",),
    ),
    _Setting("server_id", _make_equals_check("0"), "a server without an id serves no binlog",
     f"SET GLOBAL server_id = 1; {_KEEP}"),
)  # fmt: skip


#: Errors of connecting and of reading the catalog. RuntimeError: PyMySQL lacks a package for the
#: server's authentication.
_NOT_READ = (pymysql.MySQLError, SchemaError, RuntimeError, OSError)


def check_binlog_server(source: SourceConfig, place: str) -> SourceCheckResult:
    """Return everything that is wrong with the server and its tables. `place`: of findings."""
    findings: list[Finding] = []
    try:
        with closing(open_catalog(source)) as catalog:
            findings.extend(_on_server(catalog, source, place))
            return SourceCheckResult(findings, _select_tables(catalog, source)[0])
    except _NOT_READ as error:
        return SourceCheckResult([*findings, _build_unread_finding(place, source, error)], None)


def require_server(source: SourceConfig, place: str) -> None:
    """Raise SourceRefusedError with all errors of the server, or TransientSourceError if it cannot be
    reached now.

    Tables that cannot be captured are not errors here: they are left out, and listed in every watermark.
    """
    try:
        catalog = open_catalog(source)
    except _NOT_READ as error:
        finding = _build_unread_finding(place, source, error)
        code = error.args[0] if error.args else 0
        lasts = code in _ACCESS_DENIED or explain_refused_certificate(error) is not None
        if lasts or not isinstance(error, pymysql.MySQLError):
            raise SourceRefusedError.from_problem(merge_findings([finding])) from error
        raise TransientSourceError.from_problem(merge_findings([finding])) from error
    with closing(catalog), source_errors():
        findings = _list_server_findings(catalog, source, place)
    errors = [each for each in findings if each.level == "error"]
    if errors:
        raise SourceRefusedError.from_problem(merge_findings(errors))


# --- the server


def _on_server(catalog: Catalog, source: SourceConfig, place: str) -> Iterator[Finding]:
    other = list(_check_flavour(catalog, source, place))
    if other:  # it does not know the queries for the configured kind
        yield from other
        return
    yield from _as_configured(catalog, source, place)
    yield from _check_tables(catalog, source, place)
    visibility = CatalogVisibility.from_grants(catalog.server.read_grants(), catalog.session.flavour.rights)
    for finding in list_hidden_objects(visibility, source, catalog.server.read_privileges()):
        yield Finding("warning", place, *finding)


def _list_server_findings(catalog: Catalog, source: SourceConfig, place: str) -> list[Finding]:
    """Return what is wrong with the server itself, without its tables."""
    return list(_check_flavour(catalog, source, place)) or list(_as_configured(catalog, source, place))


def _as_configured(catalog: Catalog, source: SourceConfig, place: str) -> Iterator[Finding]:
    """Check a server of the configured kind."""
    yield from check_server_settings(catalog.server.read_variables(), source, place)
    missing = list_missing_grants(catalog.server.read_grants(), catalog.server.rights, source)
    for finding in missing:
        yield Finding("error", place, *finding)
    yield from log_findings(read_facts(catalog), place)


def _check_flavour(catalog: Catalog, source: SourceConfig, place: str) -> Iterator[Finding]:
    version = str(catalog.session.run_query("SELECT VERSION() AS v")[0]["v"])
    if not catalog.session.flavour.is_of(version):
        detected = next(flavour.type for flavour in BINLOG_FLAVOURS.values() if flavour.is_of(version))
        yield Finding(
            "error",
            place,
            f"the server is {version}, configured is type: {source.type}",
            f"set `type` to {detected}",
        )
    elif (
        refused := explain_mysql_version_refusal(version)
    ) is not None:  # a proxy greeted with another version
        yield Finding("error", place, f"{source.host}:{source.port} {refused.what}", refused.remedy)


def check_server_settings(variables: dict[str, str], source: SourceConfig, place: str) -> Iterator[Finding]:
    """Check the server's variables. Pure."""
    for setting in REQUIRED_SETTINGS:
        value = variables.get(setting.variable)
        if source.type not in setting.servers or value is None or not setting.wrong(value):
            continue
        if setting.variable == "gtid_mode" and source.snapshot == "never":
            continue
        shown = value or "''"
        yield Finding("error", place, f"{setting.variable} is {shown}: {setting.why}", setting.remedy)
    if (
        untested := explain_untested_version(TESTED_SOURCES, source.type, variables.get("version", ""))
    ) is not None:
        yield Finding("warning", place, untested.what, untested.remedy)
    metadata = variables.get("binlog_row_metadata", "FULL")
    if metadata.upper() != "FULL":
        yield Finding(
            "warning", place,
            f"binlog_row_metadata is {metadata}: only with FULL does the log contain names, labels and keys "
            "of columns, with which capture detects a definition that does not fit the rows",
            f"SET GLOBAL binlog_row_metadata = FULL; {_KEEP}",
        )  # fmt: skip


def _check_tables(catalog: Catalog, source: SourceConfig, place: str) -> Iterator[Finding]:
    names, of_tool = _select_tables(catalog, source)
    if not names:
        yield build_no_table_finding(place, source.tables)
    for (db, table), owner in sorted(of_tool.items()):
        yield Finding(
            "warning", f"{place}, table {db}.{table}",
            ("the table is not captured, because its name is that of a table in which gh-ost or "
f"pt-online-schema-change alters {owner[0]}.{owner[1]}"),
            ("no action if it is such a table; otherwise write its full name in `tables:`, or see "
"`online_ddl`"),
        )  # fmt: skip
    examined = catalog.tables.examine_tables(names)
    for name, surveyed in examined.items():
        if surveyed.problem is not None:
            yield build_error_finding(f"{place}, table {name[0]}.{name[1]}", surveyed.problem)
    yield from _check_left_out_columns(catalog.tables.left_out, examined, place)
    for pattern in source.tables:
        if not pattern.startswith("!") and names and not catalog.tables.list_table_names([pattern]):
            yield build_no_table_finding(place, [pattern])


def _check_left_out_columns(
    left_out: LeftOutColumns, examined: Mapping[TableName, ExaminedTable], place: str
) -> Iterator[Finding]:
    """Check that the tables have the columns that `columns:` names."""
    tables = [each.table for each in examined.values() if each.problem is None and each.table is not None]
    unread = [name for name, each in examined.items() if each.problem is not None]
    for pattern, column in left_out.yield_unknown(tables, unread):
        what = (
            f"no table that {pattern!r} decides about has a column {column}"
            if column
            else f"{pattern!r} decides about no captured table"
        )
        yield Finding(
            "warning", f"{place}, columns", f"{what}: it leaves nothing out",
            "correct the name, or remove it from `columns:`",
        )  # fmt: skip


def _select_tables(
    catalog: Catalog, source: SourceConfig
) -> tuple[list[TableName], dict[TableName, TableName]]:
    """Return the tables to capture, and those left out as tables of tools, each with the table that the
    tool alters.
    """
    names = catalog.tables.list_table_names(source.tables)
    patterns = catalog.tables.names.fold_patterns(source.tables)
    left_out = find_tool_tables(names, source.online_ddl.names, patterns, set(names))
    return [name for name in names if name not in left_out], left_out


def _build_unread_finding(place: str, source: SourceConfig, error: Exception) -> Finding:
    """Return the finding about a server that cannot be reached, or a catalog that cannot be read."""
    if isinstance(error, SchemaError):
        return build_error_finding(place, error.problem)
    code = error.args[0] if error.args else 0
    text = error.args[1] if len(error.args) > 1 else str(error)
    at = f"{source.host}:{source.port}"
    if code in _ACCESS_DENIED and get_noted_read(error) is None:
        return Finding(
            "error", place, f"{at} refuses user {source.user}: {text}",
            add_secret_place(CORRECT_LOGIN, source.password),
        )  # fmt: skip
    if (remedy := explain_refused_certificate(error)) is not None:
        return Finding("error", place, f"{at}: a certificate is refused: {text}", remedy)
    if code in _UNREACHABLE or not isinstance(code, int):
        if (other := explain_wrong_service(source.host, source.port, MYSQL_SERVER)) is not None:
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
    return Finding(
        "error", place, f"{at} cannot be used: {format_mysql_error(error)}", choose_mysql_remedy(error)
    )
