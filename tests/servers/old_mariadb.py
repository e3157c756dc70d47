"""MariaDB 10.1.23 and 10.2.11, from jars of the same kind as the demo's MariaDB.

Their binaries want libaio.so.1, which current systems lack: it is in the jar.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.server_process import ServerCommand
from deploy.embedded.service import as_root
from deploy.fetch.downloads import OLD_MARIADBS, fetch_mariadb_home

VERSIONS = tuple(group.partition("-")[2] for group in OLD_MARIADBS)


class OldMariaDB(MySQLFamily):
    """A MariaDB of one of VERSIONS."""

    kind = "MariaDB"
    has_row_metadata = False

    def __init__(self, version: str) -> None:
        super().__init__(durable=False)
        self._group = f"mariadb-{version}"
        self.process.environment["LD_LIBRARY_PATH"] = str(find_libaio(self._group))

    def start(self) -> Self:
        if not self.running:
            super().start()
            # Anonymous users would come before `user@'%'` on this host.
            self.execute("DELETE FROM mysql.user WHERE user = ''")
            self.execute("FLUSH PRIVILEGES")
        return self

    def _prepare_data(self) -> ServerCommand:
        base = fetch_mariadb_home(self._group)
        script = next(base.glob("*/mysql_install_db"))  # in bin before 10.2
        places = (f"--basedir={base}", f"--datadir={self.home.data}", f"--tmpdir={self.home.folder}")
        options = ("--auth-root-authentication-method=normal", "--skip-name-resolve", "--force")
        return [script, "--no-defaults", *places, *options, *list_user_options()]

    def _build_command(self) -> list[str | Path]:
        base = fetch_mariadb_home(self._group)
        options = [*self._list_common_options(), "--skip-ssl", *self.extra]
        return [
            base / "bin" / "mysqld",
            "--no-defaults",
            *list_user_options(),
            *self._list_places(base),
            *options,
        ]


def find_libaio(group: str = OLD_MARIADBS[0]) -> Path:
    """Return the folder with libaio.so.1."""
    return fetch_mariadb_home(group) / "libs"


def list_user_options() -> list[str]:
    return ["--user=root"] if as_root() else []
