"""MySQL 9 from Debian unstable, in a root file system of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.server_process import ServerCommand
from deploy.errors import EmbeddedError
from deploy.fetch.cache import MB, cache_dir, ensure_cached
from deploy.fetch.debian import explain_no_debian_root, install_debian_root
from deploy.guard.processes import NOBODY_UID, make_temporary_folder

ROOT = "mysql-9"
_SIZE = 660 * MB
_PACKAGES = "mysql-server-core,mysql-client-core,mysql-common"
_INSIDE = "srv"


class MySQL(MySQLFamily):
    """MySQL 9; runs as the user nobody inside a chroot, so its home is always a folder in there."""

    kind = "MySQL"
    log_status = "SHOW BINARY LOG STATUS"

    def __init__(
        self,
        *,
        port: int | None = None,
        extra: Sequence[str] = (),
        min_free: int = 768 * MB,
        server_id: int | None = None,
        durable: bool = True,
        gtid_mode: str = "ON",
    ) -> None:
        super().__init__(port=port, extra=extra, min_free=min_free, server_id=server_id, durable=durable)
        self.gtid_mode = gtid_mode

    @classmethod
    def explain_unavailable(cls) -> str | None:
        """Return why this machine cannot have MySQL; None: it can."""
        return explain_no_debian_root("MySQL", ROOT)

    @classmethod
    def fetch(cls) -> None:
        ensure_mysql_root()

    @classmethod
    def read_version(cls) -> str:
        root = cache_dir() / ROOT
        return _read_version(root) if root.is_dir() and os.geteuid() == 0 else ""

    def _make_temporary_home(self) -> Path:
        home = make_temporary_folder("rowlock-mysql-", ensure_mysql_root() / _INSIDE)
        os.chown(home, NOBODY_UID, NOBODY_UID)
        return home

    def _prepare_data(self) -> ServerCommand:
        return self._build_server_command("--initialize-insecure")

    def _build_command(self) -> list[str | Path]:
        gtid = [f"--gtid-mode={self.gtid_mode}", f"--enforce-gtid-consistency={self.gtid_mode != 'OFF'}"]
        small = ["--table-open-cache=400", "--table-definition-cache=600", "--innodb-redo-log-capacity=128M"]
        inside = f"/{_INSIDE}/{self.home.folder.name}"
        places = ["--mysqlx=OFF", f"--socket={inside}/socket", f"--pid-file={inside}/pid"]
        return self._build_server_command(*places, *self._list_common_options(), *gtid, *small, *self.extra)

    def _build_server_command(self, *options: str) -> list[str | Path]:
        inside = f"/{_INSIDE}/{self.home.folder.name}"
        chroot: list[str | Path] = ["chroot", f"--userspec={NOBODY_UID}:{NOBODY_UID}", ensure_mysql_root()]
        places = (f"--datadir={inside}/data", f"--tmpdir={inside}", "--secure-file-priv=")
        return [*chroot, "/usr/sbin/mysqld", "--no-defaults", *places, *options]


def ensure_mysql_root() -> Path:
    """Return the root file system that contains MySQL, installing it first where needed."""
    root = cache_dir() / ROOT
    if root.is_dir():
        return root
    reason = MySQL.explain_unavailable()
    if reason is not None:
        raise EmbeddedError("this machine", reason, "use MariaDB, or a MySQL server of your own")
    return ensure_cached(ROOT, _install_mysql, 2 * _SIZE)


def _install_mysql(staging: Path) -> None:
    install_debian_root(staging, "MySQL 9", _PACKAGES, _SIZE)
    _require_version_9(staging)


def _read_version(root: Path) -> str:
    """Return the word after `Ver`, for example 9.7.4; empty if the server does not run there."""
    command = ["chroot", str(root), "/usr/sbin/mysqld", "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.partition(" Ver ")[2].partition("-")[0]


def _require_version_9(root: Path) -> None:
    version = _read_version(root)
    if not version.startswith("9."):
        raise EmbeddedError(
            "Debian unstable",
            f"its MySQL is version {version or 'unknown'}, required is 9",
            "tests on MySQL cannot run until deploy/embedded/mysql.py names another suite",
        )
