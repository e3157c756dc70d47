"""MySQL 5.7.22, 8.0.15 and 8.0.31, from the jars in which test libraries pack them.

Their binaries want libaio.so.1, which is in the jar of an old MariaDB.
"""

from __future__ import annotations

from pathlib import Path

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.server_process import ServerCommand
from deploy.fetch.downloads import OLD_MYSQLS, fetch_mysql_home
from tests.servers.old_mariadb import find_libaio, list_user_options

VERSIONS = tuple(group.partition("-")[2] for group in OLD_MYSQLS)


class OldMySQL(MySQLFamily):
    """A MySQL of one of VERSIONS, with GTIDs."""

    kind = "MySQL"

    def __init__(self, version: str) -> None:
        super().__init__(durable=False)
        self._group = f"mysql-{version}"
        self.has_row_metadata = self._is_8 = not version.startswith("5.")
        self.process.environment["LD_LIBRARY_PATH"] = str(find_libaio())

    def _prepare_data(self) -> ServerCommand:
        return self._build_server_command("--initialize-insecure")

    def _build_command(self) -> list[str | Path]:
        options = [
            *self._list_common_options(),
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--table-open-cache=400",
            *(["--mysqlx=OFF"] if self._is_8 else []),
            *self.extra,
        ]
        return self._build_server_command(*options)

    def _build_server_command(self, *options: str) -> list[str | Path]:
        base = fetch_mysql_home(self._group)
        return [
            base / "bin" / "mysqld",
            "--no-defaults",
            *list_user_options(),
            *self._list_places(base),
            *options,
        ]
