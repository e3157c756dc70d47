"""The server that the environment names for the tests: what is refused, and which failures are skipped."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from schemas.io.mysql_catalog import read_name_rules
from tests.servers.given_server import explain_unknown_statement, make_given_server

UNKNOWN = pymysql.err.ProgrammingError(1064, "You have an error")


@pytest.mark.parametrize(
    ("what", "value", "seen"),
    [
        ("DSN", "root:x@127.0.0.1:3306", "begins with rowlock_test, not root"),
        ("DSN", "rowlock_test@127.0.0.1", "DSN is user:password@host:port"),
        ("VERSION", "mysql-5.0", "VERSION is one of mysql-5.7.22, "),
        ("VERSION", "mariadb-10.1.23", "VERSION is one of mysql-"),
    ],
)
def test_wrong_server_is_refused(monkeypatch: pytest.MonkeyPatch, what: str, value: str, seen: str) -> None:
    monkeypatch.setenv(f"ROWLOCK_MYSQL_{what}", value)
    with pytest.raises(ValueError, match=seen):
        make_given_server("MySQL")


class Refusing:
    """A connection to a server that knows no statement."""

    def cursor(self, _kind: object) -> None:
        raise UNKNOWN


def fail(*, by_product: bool) -> BaseException:
    connection: Any = Refusing()
    with pytest.raises(pymysql.MySQLError) as refused:
        _ = read_name_rules(connection) if by_product else connection.cursor(None)
    return refused.value


def test_unknown_statement_of_a_test_is_skipped_on_a_given_server_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert explain_unknown_statement(fail(by_product=False)) is None
    monkeypatch.setenv("ROWLOCK_MYSQL_VERSION", "mysql-5.7.22")
    assert explain_unknown_statement(fail(by_product=False)) == "You have an error"
    assert explain_unknown_statement(fail(by_product=True)) is None
    assert explain_unknown_statement(pymysql.err.OperationalError(2013, "lost")) is None
    assert explain_unknown_statement(AssertionError()) is None
