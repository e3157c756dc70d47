"""A MySQL or MariaDB of the user's for the tests: `make test-mysql DSN=rowlock_test:password@host:port`, and
`make test-mariadb` alike; or one of the versions that the tests can start (`VERSION=mariadb-10.1.23`).

The tests create and drop databases and users, and change global settings, so the user's name must begin with
rowlock_test. A test that stops or restarts its server is skipped on a given one.
"""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, Self

import pymysql
import pytest

from deploy.embedded.mariadb import MySQLFamily
from tests.kits.capture import ROOT
from tests.servers.versions import VERSIONS

_DSN = re.compile(r"(?P<user>[^:/@]+):(?P<password>.*)@(?P<host>[^:@]+):(?P<port>\d+)")


def make_given_server(kind: str) -> MySQLFamily | None:
    """Return the server that the environment names for "MySQL" or "MariaDB", not started; None: it names
    none.

    Raises ValueError with what is wrong.
    """
    if version := os.environ.get(f"ROWLOCK_{kind.upper()}_VERSION"):
        found = VERSIONS.get(version)
        if found is None or not version.startswith(f"{kind.lower()}-"):
            known = ", ".join(each for each in VERSIONS if each.startswith(f"{kind.lower()}-"))
            raise ValueError(f"VERSION is one of {known}, not {version}")
        return found()
    if dsn := os.environ.get(f"ROWLOCK_{kind.upper()}_DSN"):
        return GivenServer(kind, dsn)
    return None


class GivenServer(MySQLFamily):
    """A server that runs already."""

    def __init__(self, kind: str, dsn: str) -> None:
        match = _DSN.fullmatch(dsn)
        if match is None:
            raise ValueError("DSN is user:password@host:port")
        if not match["user"].startswith("rowlock_test"):
            raise ValueError(
                "the tests create and drop databases and users, and change settings: use a server for tests, "
                f"and a user whose name begins with rowlock_test, not {match['user']}"
            )
        self.kind = kind  # type: ignore[misc]
        super().__init__(port=int(match["port"]))
        self.user, self.password, self.host = match["user"], match["password"], match["host"]
        self.home: Any = SimpleNamespace(data=Path("/nowhere"), folder=Path("/nowhere"))
        self.process: Any = SimpleNamespace(resume=lambda: None)
        self._ask_version()

    def _ask_version(self) -> None:
        [(version,)] = self.execute("SELECT VERSION()")
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        if self.kind == "MySQL" and numbers >= (8, 2):
            self.log_status = "SHOW BINARY LOG STATUS"
        self.has_row_metadata = bool(self.execute("SHOW GLOBAL VARIABLES LIKE 'binlog_row_metadata'"))

    def start(self) -> Self:
        return self

    def stop(self) -> NoReturn:
        pytest.skip("the server is a given one, which the tests do not stop")

    restart = kill = stop  # type: ignore[assignment]

    def close(self) -> None: ...


#: The server does not know a statement, a setting, a function or a collation, or refuses it with GTIDs.
_UNKNOWN = frozenset({1064, 1193, 1273, 1305, 1786, 1787, 4161})
_PRODUCT = ("producer", "consumer", "coordinator", "rowlock", "schemas")
_CONNECTION = "schemas/io/mysql_connection.py"


def explain_unknown_statement(error: BaseException | None) -> str | None:
    """Return what a given server does not know of a test's own statement; None: the error is another one, or
    comes from a statement of the product.
    """
    named = any(
        os.environ.get(f"ROWLOCK_{kind}_{what}")
        for kind in ("MYSQL", "MARIADB")
        for what in ("DSN", "VERSION")
    )
    if not (named and isinstance(error, pymysql.MySQLError) and error.args[:1] and error.args[0] in _UNKNOWN):
        return None
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    inside = [file.removeprefix(f"{ROOT}/") for file in files if file.startswith(f"{ROOT}/")]
    if any(
        file.startswith(tuple(f"{each}/" for each in _PRODUCT)) and file != _CONNECTION for file in inside
    ):
        return None
    return str(error.args[-1])


def _main() -> None:
    """End with a message if the environment names no server, or a wrong one."""
    try:
        if not any(make_given_server(kind) for kind in ("MySQL", "MariaDB")):
            raise ValueError("name a server: DSN=user:password@host:port, or VERSION=mysql-8.0.31")
    except (ValueError, pymysql.MySQLError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    _main()
