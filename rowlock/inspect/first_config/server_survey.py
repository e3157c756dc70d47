"""Reads the servers of a first configuration: their make and version, and the source's tables. Nothing is
written.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from consumer.errors import MissingGrantError
from producer.errors import CaptureError
from producer.sources.catalog import BINLOG_FLAVOURS
from producer.sources.known import load_source_database
from producer.sources.protocols import SourceDatabase
from producer.sources.survey import MISSING
from rowlock.errors import CommandError
from rowlock.inspect.first_config.needed_statements import has_needed_changes
from rowlock.inspect.first_config.server_url import ServerUrl
from rowlock.inspect.first_config.table_choice import ListedTable, TableList
from rowlock.views.source import estimate_tables
from rowlock.views.target import explain_wrong_target, target_session
from schemas.config.model import Config
from schemas.errors import SchemaError
from schemas.findings import merge_findings
from schemas.io.endpoints import read_mysql_greeting
from schemas.io.mysql_connection import connect_mysql
from schemas.table.names import format_table_text


class SurveyedServer(NamedTuple):
    """A server that answers."""

    url: ServerUrl
    """With the make that the server has."""
    version: str = ""
    """"": it was not read."""


def detect_make(place: str, url: ServerUrl, password: str) -> SurveyedServer:
    """Connect to a MySQL or MariaDB and return which of them it is; other servers are not asked.

    `place`: "source NAME" or "target NAME". Raises CommandError.
    """
    if url.kind not in BINLOG_FLAVOURS:
        return SurveyedServer(url)
    try:
        connection = connect_mysql(url.host, url.real_port, url.user, password)
    except SchemaError as error:
        raise CommandError.wrap_error(place, error) from error
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        [(version,)] = cursor.fetchall()
    return SurveyedServer(replace(url, kind=_find_make(version)), version)


def correct_make(url: ServerUrl) -> ServerUrl:
    """Return the URL with the make that the server's greeting names, which needs no log-in."""
    if url.kind not in BINLOG_FLAVOURS:
        return url
    version = read_mysql_greeting(url.host, url.real_port)
    return replace(url, kind=_find_make(version)) if version else url


def _find_make(version: str) -> str:
    return next(flavour.type for flavour in BINLOG_FLAVOURS.values() if flavour.is_of(version))


def require_target(config: Config, name: str) -> None:
    """Connect to a target. Raises CommandError, but not for rights, which `check` reports with the GRANT."""
    try:
        with target_session(config.targets[name], name, "init"):
            pass
    except CommandError as error:
        if isinstance(error.__cause__, MissingGrantError):
            return
        if (problem := explain_wrong_target(config.targets[name], error.__cause__)) is not None:
            raise CommandError.from_problem(problem.add_place(f"target {name}")) from error
        raise


def read_source(config: Config, name: str) -> TableList:
    """Return the tables that the patterns of a source select. Raises CommandError if it cannot be read."""
    database = load_source_database(config, name)
    try:
        found = database.check_source()
        if found.tables is None and not has_needed_changes(found.findings):
            problem = merge_findings([each for each in found.findings if each.level == "error"])
            raise CommandError.from_problem(problem)
        return TableList(()) if found.tables is None else _list_tables(config, name, database, found.tables)
    except CaptureError as error:
        raise CommandError.wrap_error(f"source {name}", error) from error
    finally:
        database.close()


def _list_tables(
    config: Config, name: str, database: SourceDatabase, names: list[tuple[str, str]]
) -> TableList:
    sizes = estimate_tables(config.sources[name], name, names)
    examined = database.tables.examine_tables(names)
    tables = [
        ListedTable(each, *sizes.get(format_table_text(*each), (0, 0)), problem=examined[each].problem)
        for each in names
        if examined.get(each, MISSING) != MISSING
    ]
    return TableList(tuple(tables), database.tables.names)
