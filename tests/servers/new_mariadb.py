"""MariaDB 11.8 from Debian unstable, which has VECTOR: in a root file system of its own."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.server_process import ServerCommand
from deploy.errors import EmbeddedError
from deploy.fetch.cache import MB, ensure_cached
from deploy.fetch.debian import explain_no_debian_root, install_debian_root
from deploy.guard.processes import NOBODY_UID, make_temporary_folder

ROOT = "mariadb-11.8"
_SIZE = 280 * MB
_PACKAGES = "mariadb-server-core,mariadb-client-core"  # the latter has what the script of the former runs
_INSIDE = "srv"


class NewMariaDB(MySQLFamily):
    """MariaDB 11.8; runs as the user nobody inside a chroot, so its home is always a folder in there."""

    kind = "MariaDB"

    @classmethod
    def fetch(cls) -> None:
        _ensure_root()

    def _make_temporary_home(self) -> Path:
        home = make_temporary_folder("rowlock-mariadb-", _ensure_root() / _INSIDE)
        os.chown(home, NOBODY_UID, NOBODY_UID)
        return home

    def _prepare_data(self) -> ServerCommand:
        options = ("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
        return self._build_inner_command("/usr/bin/mariadb-install-db", *options, "--force")

    def _build_command(self) -> list[str | Path]:
        inside = self._get_inner_home()
        places = [f"--socket={inside}/socket", f"--pid-file={inside}/pid", "--skip-ssl"]
        return self._build_inner_command("/usr/sbin/mariadbd", *places, *self._list_common_options())

    def _build_inner_command(self, program: str, *options: str) -> list[str | Path]:
        inside = self._get_inner_home()
        chroot: list[str | Path] = ["chroot", f"--userspec={NOBODY_UID}:{NOBODY_UID}", _ensure_root()]
        return [*chroot, program, "--no-defaults", f"--datadir={inside}/data", f"--tmpdir={inside}", *options]

    def _get_inner_home(self) -> str:
        return f"/{_INSIDE}/{self.home.folder.name}"


def _ensure_root() -> Path:
    if (reason := explain_no_debian_root("MariaDB 11.8", ROOT)) is not None:
        raise EmbeddedError("this machine", reason, "use a MariaDB server of your own")
    return ensure_cached(ROOT, _install, 2 * _SIZE)


def _install(staging: Path) -> None:
    install_debian_root(staging, "MariaDB 11.8", _PACKAGES, _SIZE)
