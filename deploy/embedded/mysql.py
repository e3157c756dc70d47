"""MySQL 9 from Debian unstable, in a root file system of its own.

MySQL's server is published nowhere that pip or Ivy could fetch it from, so it is installed with
debootstrap: only as root, on a machine with apt settings for a Debian mirror. The mirror is taken from
these.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.server_process import ServerCommand
from deploy.errors import EmbeddedError
from deploy.fetch.cache import MB, cache_dir, ensure_cached
from deploy.fetch.progress import measure_folder_size, watch_process
from deploy.guard.guardian import kill_tree
from deploy.guard.processes import NOBODY_UID, make_temporary_folder, release_process, spawn_process

ROOT = "mysql-9"
_SIZE = 660 * MB
_PACKAGES = "mysql-server-core,mysql-client-core,mysql-common"
_INSIDE = "srv"


class MySQL(MySQLFamily):
    """MySQL 9; runs as the user nobody inside a chroot, so its home is always a folder in there."""

    kind = "MySQL"

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
        if sys.platform != "linux" or os.geteuid() != 0:
            return "MySQL needs root on Linux: it is installed with debootstrap and run in a chroot"
        if (cache_dir() / ROOT).is_dir():
            return None
        if shutil.which("debootstrap") is None:
            return "MySQL needs debootstrap, which is not installed (apt-get install debootstrap)"
        return None if _find_mirror() else "MySQL needs a Debian mirror in apt's settings, and there is none"

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
    return ensure_cached(ROOT, _run_debootstrap, 2 * _SIZE)


def _run_debootstrap(staging: Path) -> None:
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={_PACKAGES}",
        "sid",
        str(staging),
        _find_mirror(),
    ]
    with tempfile.NamedTemporaryFile(prefix="rowlock-debootstrap-", suffix=".log") as log:
        process = spawn_process([*_build_unshare_command(), *command], output=log.file)
        try:
            watch_process("installing MySQL 9", process, _SIZE, lambda: measure_folder_size(staging))
        finally:
            kill_tree(process.pid)
            process.wait()
            release_process(process)
        if process.returncode != 0:
            raise _build_error(Path(log.name))
    shutil.rmtree(staging / "var" / "cache" / "apt", ignore_errors=True)
    _require_version_9(staging)


def _build_unshare_command() -> list[str]:
    """Return the prefix that gives debootstrap its own mount namespace.

    debootstrap mounts /proc inside its root; in that namespace no mount outlives a killed run.
    """
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return ["unshare", "--mount"] if probe.returncode == 0 else []


def _build_error(log: Path) -> EmbeddedError:
    lines = log.read_text(errors="replace").splitlines()
    important = [line for line in lines if line.startswith(("E:", "W:"))] or lines
    seen = "debootstrap failed:" + "".join(f"\n    {line}" for line in important[-8:])
    return EmbeddedError("installing MySQL", seen, "check the network and apt's mirror, then run it again")


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


def _find_mirror() -> str:
    """Return the archive that apt itself uses for Debian; empty if it uses none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    archives = [uri for uri in answer.stdout.split() if not uri.rstrip("/").endswith("-security")]
    return archives[0] if archives else ""
