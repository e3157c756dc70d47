"""MariaDB as Debian installs it on this machine: another version than the embedded one."""

from __future__ import annotations

import re
import shutil
import subprocess

from deploy.embedded.mariadb import MariaDB
from deploy.embedded.server_process import ServerCommand
from deploy.embedded.service import as_root

_SERVER = "/usr/sbin/mariadbd"


class LocalMariaDB(MariaDB):
    """The server in /usr/sbin."""

    @classmethod
    def fetch(cls) -> None: ...

    @classmethod
    def read_version(cls) -> str:
        """Return its version; "": it is not installed."""
        if shutil.which(_SERVER) is None:
            return ""
        shown = subprocess.run([_SERVER, "--version"], check=True, capture_output=True, text=True).stdout
        found = re.search(r"Ver ([\d.]+)-MariaDB", shown)
        return found[1] if found else ""

    def _prepare_data(self) -> ServerCommand:
        options = ("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
        places = (f"--datadir={self.home.data}", f"--tmpdir={self.home.folder}")
        return ["mariadb-install-db", "--no-defaults", *places, *options, *_build_user_option()]

    def _build_command(self) -> ServerCommand:
        places = [
            f"--datadir={self.home.data}",
            f"--tmpdir={self.home.folder}",
            f"--socket={self.home.folder}/socket",
            f"--pid-file={self.home.folder}/pid",
        ]
        small = ["--skip-ssl", "--table-open-cache=400", "--open-files-limit=4096", "--key-buffer-size=1M"]
        common = [*self._list_common_options(), *small, *self.extra]
        return [_SERVER, "--no-defaults", *_build_user_option(), *places, *common]


def _build_user_option() -> list[str]:
    return ["--user=root"] if as_root() else []
