"""MariaDBs from Debian's suites, each in a root file system of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.server_process import ServerCommand
from deploy.errors import EmbeddedError
from deploy.fetch.cache import MB, ensure_cached
from deploy.fetch.debian import explain_no_debian_root, install_debian_root
from deploy.guard.processes import NOBODY_UID, make_temporary_folder

_SIZE = 280 * MB
_INSIDE = "srv"


class DebianMariaDB(MySQLFamily):
    """A MariaDB of a suite; runs as the user nobody inside a chroot, so its home is a folder in there."""

    kind = "MariaDB"
    suite: ClassVar[str]
    series: ClassVar[str]
    packages: ClassVar[str] = "mariadb-server-core,mariadb-client-core"
    """The latter has what the script of the former runs."""

    @classmethod
    def fetch(cls) -> None:
        cls._ensure_root()

    @classmethod
    def _ensure_root(cls) -> Path:
        name, root = f"MariaDB {cls.series}", f"mariadb-{cls.series}"
        if (reason := explain_no_debian_root(name, root)) is not None:
            raise EmbeddedError("this machine", reason, "use a MariaDB server of your own")
        return ensure_cached(
            root,
            lambda staging: install_debian_root(staging, name, cls.packages, _SIZE, cls.suite),
            2 * _SIZE,
        )

    def _make_temporary_home(self) -> Path:
        home = make_temporary_folder("rowlock-mariadb-", self._ensure_root() / _INSIDE)
        os.chown(home, NOBODY_UID, NOBODY_UID)
        return home

    def _prepare_data(self) -> ServerCommand:
        options = ("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
        return self._build_inner_command("/usr/bin/mariadb-install-db", *options, "--force")

    def _build_command(self) -> list[str | Path]:
        inside = self._get_inner_home()
        places = [f"--socket={inside}/socket", f"--pid-file={inside}/pid", "--skip-ssl"]
        return self._build_inner_command(
            "/usr/sbin/mariadbd", *places, *self._list_common_options(), *self.extra
        )

    def _build_inner_command(self, program: str, *options: str) -> list[str | Path]:
        inside = self._get_inner_home()
        chroot: list[str | Path] = ["chroot", f"--userspec={NOBODY_UID}:{NOBODY_UID}", self._ensure_root()]
        return [*chroot, program, "--no-defaults", f"--datadir={inside}/data", f"--tmpdir={inside}", *options]

    def _get_inner_home(self) -> str:
        return f"/{_INSIDE}/{self.home.folder.name}"


class NewMariaDB(DebianMariaDB):
    """The MariaDB of Debian unstable, which has VECTOR."""

    suite, series = "sid", "11.8"


class BookwormMariaDB(DebianMariaDB):
    """The MariaDB of Debian 12."""

    suite, series = "bookworm", "10.11"


class BullseyeMariaDB(DebianMariaDB):
    """The MariaDB of Debian 11."""

    suite, series = "bullseye", "10.5"
    packages = "mariadb-server-core-10.5,mariadb-client-core-10.5"
