"""Versions that are refused, what a statement reads, and the words for a driver's error: no server is
needed."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import oracledb
import psycopg
import pymysql
import pytest
from click.testing import CliRunner
from pydantic import SecretStr
from pymysql.constants import CR, ER
from sqlalchemy.exc import NoSuchTableError

from consumer.errors import (
    ConsumerError,
    MissingGrantError,
    RefusedError,
    RowTooLargeError,
    TableMissingError,
    TableTooLargeError,
    TargetConfigError,
    TransientError,
)
from consumer.targets.mysql import connection as mysql_target
from consumer.targets.mysql.errors import CONNECTION_LOST, get_error_class, get_error_code
from consumer.targets.mysql.errors import build_consumer_error as mysql_error
from consumer.targets.oracle.errors import build_consumer_error as oracle_error
from consumer.targets.postgres.connection import PostgresLink
from consumer.targets.postgres.errors import build_connect_error, describe_server_error, parse_sqlstate
from consumer.targets.postgres.errors import build_consumer_error as postgres_error
from consumer.targets.postgres.errors import get_error_class as get_postgres_class
from consumer.targets.shared.inspection import CatalogInspection
from producer.checks import binlog_server
from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.catalog import BINLOG_FLAVOURS
from producer.sources.source_session import source_errors
from rowlock.commands.options import report_command_errors
from rowlock.views import server_versions
from rowlock.views.target import read_known_topics, read_known_units
from schemas.config.model import TargetConfig
from schemas.config.secrets import PlacedSecret
from schemas.errors import ServerConnectError, UnsupportedServerError
from schemas.findings import Finding
from schemas.io import mysql_connection, oracle_connection
from schemas.io.server_errors import (
    OLDEST_POSTGRES,
    OLDEST_SOURCES,
    OLDEST_TARGETS,
    TESTED_SOURCES,
    TESTED_TARGETS,
    UNKNOWN_OBJECT_CODES,
    UNKNOWN_THERE,
    OldestVersions,
    choose_mysql_remedy,
    explain_anonymous_user,
    explain_mysql_version_refusal,
    explain_untested_version,
    explain_version_refusal,
    format_mysql_error,
    name_catalog_read,
    note_read,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("version", "oldest", "needed"),
    [
        ("10.0.38-MariaDB-log", OLDEST_SOURCES, "MariaDB 10.1"),
        ("5.5.5-10.0.38-MariaDB", OLDEST_SOURCES, "MariaDB 10.1"),
        ("5.5.68-MariaDB", OLDEST_SOURCES, "MariaDB 10.1"),
        ("5.6.51", OLDEST_SOURCES, "MySQL 5.7"),
        ("5.6.51", OLDEST_TARGETS, "MySQL 5.7"),
        ("5.5.5-10.1.23-MariaDB", OLDEST_TARGETS, "MariaDB 10.2.2"),
    ],
)
def test_old_version_is_refused(version: str, oldest: OldestVersions, needed: str) -> None:
    refused = explain_mysql_version_refusal(version, oldest)
    assert refused is not None
    assert version.removeprefix("5.5.5-") in refused.what
    assert f"rowlock needs {needed} or later, because " in refused.what
    assert refused.remedy.startswith("upgrade it, ")


@pytest.mark.parametrize(
    "version",
    [
        "5.5.5-10.2.11-MariaDB", "5.5.5-10.11.6-MariaDB-1:10.11.6+maria~deb12", "11.4.5-MariaDB",
        "5.7.17-11-V2.0R540D002-20191226-1152-log", "8.0.33-v24-txsql-22.5.3", "8.0", "", "proxy",
    ],
)  # fmt: skip
def test_supported_or_unknown_version_is_accepted(version: str) -> None:
    assert explain_mysql_version_refusal(version) is None
    assert explain_mysql_version_refusal(version, OLDEST_TARGETS) is None


@pytest.mark.parametrize(
    ("version", "refused"),
    [("11.22", True), ("9.6.24", True), ("12.0", False), ("18.0 (Debian 18.0-1)", False)],
)
def test_postgres_before_12_is_refused(version: str, refused: bool) -> None:
    assert (explain_version_refusal(version, OLDEST_POSTGRES) is not None) is refused


class Opened:
    """A connection that greets with one version, and answers VERSION() with another."""

    host, port, open = "h", 3306, True

    def __init__(self, greeting: str, version: str) -> None:
        self._greeting, self._version = greeting, version
        self.asked = 0

    def get_server_info(self) -> str:
        return self._greeting

    def cursor(self) -> Any:
        self.asked += 1
        cursor = SimpleNamespace(execute=lambda _: None, fetchone=lambda: (self._version,))
        return contextlib.nullcontext(cursor)

    def close(self) -> None:
        self.open = False


def open_with(monkeypatch: pytest.MonkeyPatch, made: Opened) -> Any:
    monkeypatch.setattr(mysql_connection, "_make_connection_class", lambda: lambda **_: made)
    return mysql_connection.open_connection(host="h", port=1, user="u", password="p")


def test_old_server_is_refused_when_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Opened("5.5.5-10.0.38-MariaDB", "10.0.38-MariaDB")
    with pytest.raises(UnsupportedServerError, match=r"h:3306 is MariaDB 10\.0\.38-MariaDB") as refused:
        open_with(monkeypatch, made)
    assert not refused.value.transient
    assert not made.open, "the connection is closed"


def test_proxy_with_an_old_greeting_is_asked_for_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_with(monkeypatch, made := Opened("5.5.30", "8.0.36")) is made
    assert made.open


def test_supported_server_is_not_asked_for_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    open_with(monkeypatch, made := Opened("11.4.5-MariaDB", "?"))
    assert made.asked == 0


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        (
            "SELECT column_name\nFROM information_schema.columns WHERE table_schema = 'x'",
            "information_schema.columns",
        ),
        ("SELECT 1 FROM `performance_schema`.`threads`", "performance_schema.threads"),
        ("SELECT n FROM pg_catalog.pg_class c", "pg_catalog.pg_class"),
        ("SELECT 1 FROM SYS.ALL_TABLES", "SYS.ALL_TABLES"),
        ("SHOW GRANTS", "SHOW GRANTS"),
        ("SELECT @@max_allowed_packet, CURRENT_USER()", "SELECT @@max_allowed_packet, CURRENT_USER()"),
        ("SET SESSION idle_transaction_timeout = 120", "SET SESSION idle_transaction_timeout = 120"),
        ("SELECT `id` FROM `bank`.`acct` WHERE `id` = 'secret FROM mysql.user'", None),
        ("INSERT INTO t VALUES ('secret')", None),
        ("DELETE FROM mysql.t WHERE a = 'secret'", None),
        ("BEGIN", None),
    ],
)
def test_only_questions_about_the_server_are_named(statement: str, read: str | None) -> None:
    assert name_catalog_read(statement) == read


def noted(
    code: int, statement: str, kind: type[pymysql.MySQLError] = pymysql.err.OperationalError
) -> pymysql.MySQLError:
    error = kind(code, "the server's words")
    note_read(error, statement)
    return error


COLUMNS = "SELECT x FROM information_schema.columns"


def test_error_of_a_catalog_read_names_what_was_read() -> None:
    error = noted(1054, COLUMNS)
    assert format_mysql_error(error) == "reading information_schema.columns: the server's words (1054)"
    assert choose_mysql_remedy(error) == UNKNOWN_THERE
    assert "GRANT" in choose_mysql_remedy(noted(1142, COLUMNS))


def test_error_of_a_statement_on_rows_names_nothing() -> None:
    assert format_mysql_error(noted(1054, "SELECT 'secret' FROM t")) == "the server's words (1054)"


def test_capture_translates_every_error_of_the_driver() -> None:
    with (
        pytest.raises(
            SourceRefusedError, match=r"reading information_schema\.columns: .* \(1054\): use a version"
        ),
        source_errors(),
    ):
        raise noted(1054, COLUMNS)
    with pytest.raises(TransientSourceError, match="cannot be reached at the moment"), source_errors():
        raise noted(2013, COLUMNS)
    with pytest.raises(SourceRefusedError, match="too old"), source_errors():
        raise UnsupportedServerError("too old: upgrade")
    with pytest.raises(TransientSourceError, match="no answer"), source_errors():
        raise ServerConnectError("no answer", transient=True)


def test_targets_refuse_what_their_catalog_does_not_know() -> None:
    of_mysql = mysql_error(noted(1193, "SET SESSION idle_transaction_timeout = 120"), "MariaDB at h", "u@h")
    of_postgres = postgres_error(
        psycopg.errors.UndefinedColumn("no collisdeterministic"),
        "PostgreSQL at h",
        "u",
        "SELECT 1 FROM pg_catalog.pg_collation c",
    )
    failed = SimpleNamespace(full_code="ORA-00904", message="ORA-00904: invalid identifier")
    of_oracle = oracle_error(oracledb.DatabaseError(failed), "Oracle at h", "SELECT x FROM SYS.ALL_TAB_COLS")
    for error, read in (
        (of_mysql, "SET SESSION idle_transaction_timeout = 120"),
        (of_postgres, "pg_catalog.pg_collation"),
        (of_oracle, "SYS.ALL_TAB_COLS"),
    ):
        assert type(error) is TargetConfigError
        assert f"reading {read}" in str(error)
        assert str(error).endswith(f": {UNKNOWN_THERE}")


@pytest.mark.parametrize(
    ("message", "state"),
    [
        ('password authentication failed for user "u"', "28P01"),
        ('role "u" does not exist', "28000"),
        ('database "d" does not exist', "3D000"),
        ('permission denied for database "d"', "42501"),
        ('root certificate file "/ca.pem" does not exist', ""),
        ("Passwort-Authentifizierung für Benutzer »u« fehlgeschlagen", ""),
    ],
)
def test_a_login_that_postgres_refuses_is_known_by_its_message(message: str, state: str) -> None:
    failed = f'connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL:  {message}'
    assert parse_sqlstate(failed) == state


def test_an_error_of_connecting_to_postgres_has_the_servers_text_once_and_names_the_password() -> None:
    """libpq has a line for each attempt: with TLS and without, at each address."""
    refused = 'failed: FATAL:  password authentication failed for user "u"'
    at = 'connection to server at "127.0.0.1", port 5432'
    error = psycopg.OperationalError(f"connection failed: {at} {refused}\n{at} {refused}\n")
    target = TargetConfig(
        type="postgres", host="h", user="u", database="d", password=SecretStr("x")
    ).model_copy(update={"password": PlacedSecret("x", "the file hq.password")})
    found = build_connect_error(error, "u@h", target).problem
    assert found.what == f"u@h: {at} {' '.join(refused.split())} (28P01)"
    place = "(read from the file hq.password)"
    assert found.remedy == f"correct the user or the password {place}; see `rowlock docs troubleshoot`"
    second = f"{at.replace('127.0.0.1', '::1')} {refused}"
    error = psycopg.OperationalError(f"connection failed: {at} {refused}\n{second}\n")
    assert build_connect_error(error, "u@h", target).problem.what.count("FATAL") == 2


@pytest.mark.parametrize(
    "explain",
    [
        lambda secret: mysql_connection._explain_connect_error(REFUSED, "u", "h", 1, secret).problem.action,
        lambda secret: (
            binlog_server._build_unread_finding(
                "source s", SimpleNamespace(host="h", port=1, user="u", password=secret), REFUSED
            ).remedy
        ),
        lambda secret: (
            oracle_connection._explain_connect_error(
                oracledb.DatabaseError(SimpleNamespace(full_code="ORA-01017", message="no")),
                SimpleNamespace(host="h", port=1, user="u", database="d", password=secret),
            ).problem.action
        ),
    ],
    ids=["mysql", "source", "oracle"],
)
def test_remedy_of_a_refused_log_in_names_where_the_password_was_read(explain: Any) -> None:
    place = "the environment variable HQ_PASSWORD"
    assert f"correct the user or the password (read from {place})" in explain(PlacedSecret("x", place))
    assert "read from" not in explain(SecretStr("x"))


REFUSED = pymysql.err.OperationalError(1045, "Access denied for user 'u'@'10.0.0.7'")


@pytest.mark.parametrize(
    ("kind", "version", "seen"),
    [
        ("mariadb", "11.4.5-MariaDB-log", None),
        ("mariadb", "5.5.5-11.4.5-MariaDB", None),
        (
            "mariadb",
            "10.6.22-MariaDB-0ubuntu0",
            "MariaDB 10.6.22; rowlock was tested with MariaDB 10.2, 10.5, 10.11, 11.4, 11.8, not with",
        ),
        ("mariadb", "10.11.6-MariaDB-0+deb12u1", None),
        ("mariadb", "11.40.1-MariaDB", "MariaDB 11.40.1;"),
        ("mysql", "9.7.0", None),
        ("mysql", "8.0.36-28", None),
        ("mysql", "8.4.2-2", "MySQL 8.4.2; rowlock was tested with MySQL 5.7, 8.0, 9.7, not"),
        ("postgres", "18.1", None),
        ("postgres", "18beta1", None),
        (
            "postgres",
            "15.10 (Debian 15.10-0+deb12u1)",
            "PostgreSQL 15.10; rowlock was tested with",
        ),
        ("oracle", "19.3", None),
        ("mysql", "", None),
    ],
)
def test_version_that_was_not_tested_is_named_with_the_tested_one(
    kind: str, version: str, seen: str | None
) -> None:
    found = explain_untested_version(TESTED_TARGETS, kind, version)
    assert (found is None) == (seen is None)
    assert found is None or found.what.startswith(f"the server is {seen}")


def test_tested_versions_are_those_of_readme() -> None:
    lines = (Path(__file__).resolve().parents[2] / "README.md").read_text().splitlines()
    for side, tested in (("source", TESTED_SOURCES), ("target", TESTED_TARGETS)):
        line = next(each for each in lines if each.startswith(f"| {side} |"))
        for product, series in tested.values():
            named = re.search(rf"{product} ([\d., and]+)", line)
            assert named is not None
            shown = {tuple(map(int, each.split("."))) for each in re.findall(r"\d+(?:\.\d+)?", named[1])}
            assert shown == set(series)


#: Errors of MySQL that end the connection.
ENDS = [
    ER.SERVER_SHUTDOWN, ER.NORMAL_SHUTDOWN, ER.SHUTDOWN_COMPLETE, ER.ABORTING_CONNECTION,
    ER.NET_READ_ERROR, ER.NET_READ_INTERRUPTED, ER.NET_ERROR_ON_WRITE, ER.NET_WRITE_INTERRUPTED,
    ER.NEW_ABORTING_CONNECTION, CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST, CR.CR_SERVER_LOST_EXTENDED,
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (
            TransientError,
            [
                *ENDS,
                ER.CHECKREAD, ER.DISK_FULL, ER.CON_COUNT_ERROR, ER.RECORD_FILE_FULL,
                ER.TOO_MANY_USER_CONNECTIONS, ER.LOCK_DEADLOCK, ER.USER_LIMIT_REACHED,
                ER.OPTION_PREVENTS_STATEMENT, ER.QUERY_INTERRUPTED, ER.QUERY_TIMEOUT,
            ],
        ),
        (
            RefusedError,
            [
                ER.BAD_NULL_ERROR, ER.INVALID_USE_OF_NULL, ER.NET_PACKET_TOO_LARGE,
                ER.NO_REFERENCED_ROW, ER.ROW_IS_REFERENCED, ER.WARN_NULL_TO_NOTNULL,
                ER.WARN_DATA_OUT_OF_RANGE, ER.WARN_DATA_TRUNCATED, ER.TRUNCATED_WRONG_VALUE,
                ER.INVALID_CHARACTER_STRING, ER.NO_DEFAULT_FOR_FIELD, ER.TRUNCATED_WRONG_VALUE_FOR_FIELD,
                ER.ILLEGAL_VALUE_FOR_TYPE, ER.DATA_TOO_LONG, ER.WRONG_VALUE_FOR_TYPE,
                ER.CANT_CREATE_GEOMETRY_OBJECT,
                ER.DATETIME_FUNCTION_OVERFLOW, ER.ROW_IS_REFERENCED_2, ER.NO_REFERENCED_ROW_2,
                ER.CONSTRAINT_FAILED,
                1713,  # ER_UNDO_RECORD_TOO_BIG
                4078,  # MariaDB's ER_ILLEGAL_PARAMETER_DATA_TYPES2_FOR_OPERATION
            ],
        ),
        (RowTooLargeError, [ER.TOO_BIG_ROWSIZE]),
        (TableMissingError, [ER.NO_SUCH_TABLE]),
        (
            TargetConfigError,
            [
                ER.DBACCESS_DENIED_ERROR, ER.ACCESS_DENIED_ERROR, ER.BAD_DB_ERROR, ER.BAD_FIELD_ERROR,
                ER.PARSE_ERROR, ER.KILL_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR,
                ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.WRONG_TABLE_NAME, ER.UNKNOWN_CHARACTER_SET,
                ER.UNKNOWN_COLLATION, ER.ILLEGAL_HA, ER.OPEN_AS_READONLY, ER.NON_UPDATABLE_TABLE,
                ER.TOO_MANY_KEYS, ER.TOO_MANY_KEY_PARTS, ER.TOO_LONG_KEY, ER.TOO_BIG_FIELDLENGTH,
                ER.TOO_MANY_FIELDS, ER.BLOB_KEY_WITHOUT_LENGTH, ER.TOO_BIG_SCALE, ER.TOO_BIG_PRECISION,
                1709,  # ER_INDEX_COLUMN_TOO_LONG
                1829,  # ER_FK_COLUMN_CANNOT_DROP_CHILD
                3959,  # ER_DEPENDENT_BY_CHECK_CONSTRAINT
            ],
        ),
    ],
)  # fmt: skip
def test_errors_of_mysql_have_the_class_of_their_meaning(kind: type[ConsumerError], codes: list[int]) -> None:
    """Only the number counts: servers give many errors the general SQLSTATE."""
    found = {code: get_error_class(pymysql.err.OperationalError(code, "x")) for code in codes}
    assert found == dict.fromkeys(codes, kind)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("INSERT INTO t VALUES (1)", RowTooLargeError),
        ("DELETE FROM t WHERE `id` = 'CREATE TABLE '", RowTooLargeError),
        ("CREATE TABLE IF NOT EXISTS t (id int)", TableTooLargeError),
        ("ALTER TABLE t ADD COLUMN c int", TableTooLargeError),
    ],
)
def test_a_row_is_not_refused_for_a_limit_of_its_table(statement: str, kind: type[ConsumerError]) -> None:
    error = pymysql.err.OperationalError(ER.TOO_BIG_ROWSIZE, "Row size too large (> 8126)")
    found = mysql_error(error, "MySQL at h", "u@h", statement)
    assert type(found) is kind
    assert found.problem.remedy


def test_a_table_that_mariadb_cannot_create_has_the_class_of_its_reason() -> None:
    columns = pymysql.err.OperationalError(
        ER.CANT_CREATE_TABLE, 'Can\'t create table `t` (errno: 185 "Too many columns")'
    )
    full = pymysql.err.OperationalError(
        ER.CANT_CREATE_TABLE, 'Can\'t create table `t` (errno: 28 "No space left on device")'
    )
    assert [get_error_class(each) for each in (columns, full)] == [TargetConfigError, TransientError]
    assert "fewer columns" in mysql_error(columns, "MariaDB at h", "u@h").problem.remedy


@pytest.mark.parametrize(
    ("state", "kind"), [("54000", RowTooLargeError), ("54001", RefusedError), ("54011", TargetConfigError)]
)
def test_limits_of_postgres_are_of_a_row_but_for_the_columns(state: str, kind: type[ConsumerError]) -> None:
    assert get_postgres_class(psycopg.errors.ProgramLimitExceeded("x"), state) is kind


def test_a_connection_to_mysql_is_given_up_after_errors_that_end_it() -> None:
    assert set(ENDS) - CONNECTION_LOST == set()


def test_an_error_of_mysql_s_driver_without_a_number_is_a_lost_connection() -> None:
    for error in (pymysql.err.InterfaceError(), pymysql.err.InterfaceError("closed")):
        assert get_error_code(error) in CONNECTION_LOST


def test_a_large_packet_of_mysql_has_its_setting_as_remedy() -> None:
    error = pymysql.err.OperationalError(
        ER.NET_PACKET_TOO_LARGE, "Got a packet bigger than 'max_allowed_packet'"
    )
    assert mysql_error(error, "MySQL at h", "u@h").problem.action == "raise max_allowed_packet of the target"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DataError("x"), RefusedError),
        (psycopg.errors.OperationalError("x"), TransientError),
        (psycopg.errors.InternalError_("x"), TransientError),
    ],
)
def test_unknown_errors_of_postgres_are_retried_unless_about_data(
    error: psycopg.Error, kind: type[ConsumerError]
) -> None:
    assert get_postgres_class(error, "XX999") is kind


@pytest.mark.parametrize(
    ("state", "detail", "shown"),
    [
        ("53100", None, "could not write"),
        ("53100", "No space left.", "could not write (No space left.)"),
        ("23505", "Key (id)=(7) exists.", "could not write"),
        ("22003", "Row has 4711.", "could not write"),
    ],
)
def test_detail_of_postgres_is_shown_unless_it_has_values(state: str, detail: str | None, shown: str) -> None:
    diag = SimpleNamespace(message_primary="could not\nwrite", message_detail=detail)
    assert describe_server_error(cast(psycopg.Error, SimpleNamespace(diag=diag)), state) == shown


@pytest.mark.parametrize(
    ("code", "remedy", "transient"),
    [
        (1044, "GRANT it", False),
        (1045, "correct the user or the password", False),
        (1698, "correct the user or the password", False),
        (1049, "the database does not exist", False),
        (1040, "raise max_connections", True),
        (1053, "see the server's message", True),
        (1129, "FLUSH HOSTS", False),
        (3118, "ACCOUNT UNLOCK", False),
        (4151, "ACCOUNT UNLOCK", False),
        (1130, "change the user's host part", False),
        (1203, "raise max_user_connections", True),
        (2003, "nothing answers there", True),
    ],
)
def test_refused_connection_to_mysql_has_a_remedy_and_is_retried_if_it_may_end(
    code: int, remedy: str, transient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_connection, "explain_wrong_service", lambda *_: None)
    error = mysql_connection._explain_connect_error(pymysql.err.OperationalError(code, "x"), "u", "h", 1, "")
    assert remedy in error.problem.action
    assert error.transient is transient


def test_message_of_a_refused_log_in_is_short() -> None:
    """What else may be the cause, and what becomes of the log-in, is on the page that it names."""
    text = "Access denied for user 'rowlock'@'localhost' (using password: YES)"
    error = pymysql.err.OperationalError(1045, text)
    password = PlacedSecret("x", "the file bank.password")
    source: Any = SimpleNamespace(host="127.0.0.1", port=1, user="rowlock", password=password)
    refused = mysql_connection._explain_connect_error(error, "rowlock", "127.0.0.1", 1, password)
    messages = [
        f"rowlock: source bank: {refused}",
        str(binlog_server._build_unread_finding("source s", source, error)),
    ]
    assert [len(each.split()) <= 35 for each in messages] == [True, True], messages
    assert all(each.endswith("; see `rowlock docs troubleshoot`") for each in messages)


@pytest.mark.parametrize(("host", "is_named"), [("localhost", True), ("10.0.0.7", False), ("%", False)])
def test_refused_login_on_the_server_s_own_host_may_be_that_of_an_anonymous_user(
    host: str, is_named: bool
) -> None:
    """A new MariaDB takes ''@'localhost' for rowlock@'%' there, with another password."""
    hint = explain_anonymous_user(f"Access denied for user 'rowlock'@'{host}' (using password: YES)")
    assert ("anonymous user" in hint) is is_named


@pytest.mark.parametrize("code", [1054, 1064, 1109, 1193, 1235, 1305])
def test_codes_of_objects_that_a_server_does_not_know(code: int) -> None:
    assert code in UNKNOWN_OBJECT_CODES


def test_target_s_missing_right_in_a_catalog_read_has_its_grant() -> None:
    error = noted(1142, "SELECT 1 FROM performance_schema.threads")
    error.args = (1142, "SELECT command denied to user 'u'@'h' for table `performance_schema`.`threads`")
    found = mysql_error(error, "MySQL at h", "u@h", "SELECT 1 FROM performance_schema.threads")
    assert isinstance(found, MissingGrantError)


def test_old_postgres_that_refuses_the_session_s_settings_is_named() -> None:
    error = psycopg.OperationalError('FATAL:  unrecognized configuration parameter "jit"')
    assert str(postgres_error(error, "PostgreSQL at h", "u")).endswith(f": {UNKNOWN_THERE}")


@pytest.mark.parametrize(
    "error",
    [
        noted(1054, COLUMNS),
        psycopg.errors.UndefinedColumn("no such column"),
        oracledb.DatabaseError("ORA-00904"),
        NoSuchTableError("t"),
        TransientError("the target is away"),
        SourceRefusedError("the source refuses"),
        ServerConnectError("nothing answers", transient=True),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_of_a_server_ends_a_command_with_a_traceback(error: Exception) -> None:
    @click.command()
    @report_command_errors
    def command() -> None:
        raise error

    result = CliRunner().invoke(command)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    (line,) = result.output.splitlines()
    assert line.startswith("rowlock: ")


def test_fault_of_rowlock_keeps_its_traceback() -> None:
    @click.command()
    @report_command_errors
    def command() -> None:
        raise KeyError("a bug")

    assert isinstance(CliRunner().invoke(command).exception, KeyError)


#: The modules that open connections of a driver, each for all of its side.
_OPENERS = {
    "schemas/io/mysql_connection.py", "schemas/io/oracle_connection.py",
    "consumer/targets/postgres/connection.py", "consumer/targets/shared/inspection.py",
    "deploy/embedded/mariadb.py", "deploy/embedded/postgres.py",
    "rowlock/demo/tries.py",  # types what a person would type into the demo's databases
}  # fmt: skip


_OPENING = {
    "pymysql.connect",
    "psycopg.connect",
    "oracledb.connect",
    "create_engine",
    "_make_connection_class()",
}


def test_connections_are_opened_in_one_module_for_each_driver() -> None:
    """Each of these notes or translates errors: a connection of another origin would raise them raw."""
    opening = set()
    for package in ("schemas", "producer", "consumer", "coordinator", "rowlock", "deploy"):
        for file in (ROOT / package).rglob("*.py"):
            called = {
                ast.unparse(each.func)
                for each in ast.walk(ast.parse(file.read_text()))
                if isinstance(each, ast.Call)
            }
            if called & _OPENING:
                opening.add(file.relative_to(ROOT).as_posix())
    assert opening == _OPENERS


class Store:
    """A target's session whose table of units cannot be read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def read_unit_states(self, _pipeline: str) -> Any:
        raise self._error

    list_unit_topics = read_unit_states


def test_target_without_bookkeeping_has_no_units() -> None:
    session: Any = Store(TableMissingError("hq: Table 'hq.rowlock_unit' doesn't exist (1146)"))
    assert read_known_units(session, "p") == {}
    assert read_known_topics(session, "p") == set()


@pytest.mark.parametrize(
    "error",
    [
        MissingGrantError(
            "SELECT command denied for table 'rowlock_unit'", "GRANT SELECT ON hq.rowlock_unit TO u"
        ),
        TargetConfigError("hq: Unknown column 'ddl' of rowlock_unit (1054): use a supported version"),
        TransientError("the connection is lost"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_units_that_cannot_be_read_are_not_taken_for_none(error: Exception) -> None:
    session: Any = Store(error)
    with pytest.raises(type(error)):
        read_known_units(session, "p")
    with pytest.raises(type(error)):
        read_known_topics(session, "p")


@pytest.mark.parametrize("other", [None, "h:3306 is a Kafka broker"])
def test_check_names_what_answers_in_place_of_a_database(
    monkeypatch: pytest.MonkeyPatch, other: str | None
) -> None:
    monkeypatch.setattr(binlog_server, "explain_wrong_service", lambda *_: other)
    source: Any = SimpleNamespace(host="h", port=3306, user="u")
    error = pymysql.err.OperationalError(CR.CR_CONN_HOST_ERROR, "timed out")
    found = binlog_server._build_unread_finding("source s", source, error)
    assert found.message == (other or "no database answers at h:3306: timed out")
    assert ("start the server" in found.remedy) == (other is None)


def test_check_keeps_what_it_found_before_a_statement_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Finding("error", "source s", "binlog_format is STATEMENT", "SET GLOBAL binlog_format = ROW")

    def on_server(*_: object) -> Iterator[Finding]:
        yield before
        raise noted(1142, COLUMNS)

    monkeypatch.setattr(binlog_server, "open_catalog", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(binlog_server, "_on_server", on_server)
    source: Any = SimpleNamespace(host="h", port=3306, user="u")
    findings, tables = binlog_server.check_binlog_server(source, "source s")
    assert (findings[0], tables) == (before, None)
    assert (
        findings[1].message
        == "h:3306 cannot be used: reading information_schema.columns: the server's words (1142)"
    )
    assert "GRANT" in findings[1].remedy


def test_server_behind_a_proxy_is_judged_by_its_own_version() -> None:
    """The proxy greeted with a supported version: `check` asks the server."""
    session = SimpleNamespace(
        run_query=lambda _: [{"v": "10.0.38-MariaDB"}], flavour=BINLOG_FLAVOURS["mariadb"]
    )
    source: Any = SimpleNamespace(host="h", port=3306, type="mariadb")
    catalog: Any = SimpleNamespace(session=session)
    (found,) = binlog_server._check_flavour(catalog, source, "source s")
    assert "h:3306 is MariaDB 10.0.38-MariaDB, which is too old" in found.message
    assert found.remedy.startswith("upgrade it")


class LostPostgres:
    """A connection of psycopg whose server no longer answers."""

    closed = broken = True

    def add_notice_handler(self, handler: object) -> None:
        pass

    def cursor(self, *_: object) -> object:
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def rollback(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_inspection_gives_the_driver_s_error_to_the_dialect() -> None:
    seen = []

    @contextlib.contextmanager
    def translated(statement: str) -> Iterator[None]:
        seen.append(statement)
        try:
            yield
        except psycopg.Error as error:
            raise TargetConfigError("translated") from error

    inspection = CatalogInspection("postgresql+psycopg", "h:5432", translated)
    with (
        pytest.raises(TargetConfigError, match="translated"),
        inspection.open_inspector(LostPostgres()) as inspector,
    ):
        inspector.has_table("t")
    assert len(seen) == 1


class OpenedPostgres:
    """A connection of psycopg to a server of `version`; `error`: what its first statement meets."""

    closed = False

    def __init__(self, version: str, error: psycopg.Error | None = None) -> None:
        self.info = SimpleNamespace(parameter_status=lambda _: version)
        self._error = error

    def execute(self, _text: str) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed = True


def postgres_link(monkeypatch: pytest.MonkeyPatch, opened: OpenedPostgres) -> PostgresLink:
    monkeypatch.setattr(psycopg, "connect", lambda **_: opened)
    password = SimpleNamespace(get_secret_value=lambda: "p")
    target: Any = SimpleNamespace(host="h", port=5432, user="u", database="d", password=password, tls=None)
    return PostgresLink(target, "test")


def test_postgres_commits_each_statement_outside_of_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that a statement begins unseen would hold its locks until the next commit."""
    link = postgres_link(monkeypatch, opened := OpenedPostgres("18.0"))
    asked: dict[str, Any] = {}
    monkeypatch.setattr(psycopg, "connect", lambda **options: asked.update(options) or opened)
    link.connect()
    assert asked["autocommit"] is True


def test_mysql_user_without_the_database_is_given_a_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    password = SimpleNamespace(get_secret_value=lambda: "p")
    target: Any = SimpleNamespace(host="h", port=3306, user="u", database="d", password=password, tls=None)
    link = mysql_target.MySqlLink(target, mysql_target.FLAVOURS["mysql"], "test")
    refused = [
        pymysql.OperationalError(1044, "Access denied for user 'u'@'%' to database 'd'"),
        pymysql.OperationalError(1045, "Access denied for user 'u'@'%' (using password: YES)"),
    ]

    def refuse(*_: object, **__: object) -> None:
        error = refused.pop(0)
        raise ServerConnectError(error.args[1], "correct user and password", transient=False) from error

    monkeypatch.setattr(mysql_target, "connect_mysql", refuse)
    with pytest.raises(MissingGrantError) as without_database:
        link.connect()
    assert without_database.value.statement.startswith("GRANT ")
    with pytest.raises(TargetConfigError) as denied:
        link.connect()
    assert denied.value.problem.action == "correct user and password"


def test_old_postgres_is_refused_when_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    link = postgres_link(monkeypatch, opened := OpenedPostgres("11.22"))
    with pytest.raises(TargetConfigError, match=r"h:5432 is PostgreSQL 11\.22, which is too old") as refused:
        link.connect()
    assert isinstance(refused.value.__cause__, UnsupportedServerError)
    assert opened.closed


def test_postgres_connection_is_closed_if_its_session_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    link = postgres_link(
        monkeypatch, opened := OpenedPostgres("18.0", psycopg.errors.InsufficientPrivilege("no"))
    )
    with pytest.raises(TargetConfigError):
        link.connect()
    assert opened.closed


def test_mysql_connection_is_closed_if_its_session_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    password = SimpleNamespace(get_secret_value=lambda: "p")
    target: Any = SimpleNamespace(host="h", port=3306, user="u", database="d", password=password, tls=None)
    opened = Opened("9.7.4", "9.7.4")
    monkeypatch.setattr(mysql_target, "connect_mysql", lambda *_, **__: opened)
    link = mysql_target.MySqlLink(target, mysql_target.FLAVOURS["mysql"], "test")

    def refuse() -> None:
        raise TargetConfigError("Unknown system variable")

    monkeypatch.setattr(link, "_prepare_session", refuse)
    with pytest.raises(TargetConfigError, match="Unknown system variable"):
        link.connect()
    assert not opened.open


@pytest.mark.parametrize("cause", [UnsupportedServerError("h:1 is too old", "upgrade it"), None])
def test_only_an_unsupported_version_of_a_target_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch, cause: UnsupportedServerError | None
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TargetConfigError("h:1 is too old", "upgrade it") from cause

    monkeypatch.setattr(server_versions, "open_target", refuse)
    target: Any = SimpleNamespace(type="postgres")
    found = server_versions.explain_unsupported_target(target)
    assert (found is None) is (cause is None)
