"""The servers of the demo and its configuration file: two branches, a head office, and Kafka between them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
from deploy.errors import EmbeddedError
from deploy.guard.guardian import kill_tree
from deploy.guard.processes import (
    make_temporary_folder,
    release_process,
    spawn_process,
    unregister_folder,
)
from rowlock.demo.bank import DATABASE, DDL
from rowlock.errors import CommandError
from schemas.patience import scale_timeout

BRANCHES = ("north", "south")
OFFICE = "head_office"
# of a server that lives for two minutes, on loopback
PASSWORD = "demo-password"  # noqa: S105 - of a server that lives for two minutes, on loopback
RUN_STOP_TIMEOUT_S = 60.0
PACKAGES = Path(__file__).resolve().parents[2]
"""The folder of this rowlock's packages, from which its processes load them too."""

_CONFIG = """\
# Written by `rowlock demo`.
kafka:
  bootstrap: {bootstrap}
  prefix: demo
state_dir: ./state
spark: {{master: "local[2,4]", memory: 1g}}
sources:
{sources}
targets:
  hq: {{type: postgres, host: 127.0.0.1, port: {port}, user: postgres, password: trust, database: {office}}}
pipelines:
  to-hq:
    sources: [{names}]
    target: hq
    routes:
      - from: {database}.*
        to: public.{{table}}
        add: {{branch: "{{source}}"}}
"""
_SOURCE = """\
  {name}:
    {{type: mariadb, host: 127.0.0.1, port: {port}, user: rowlock, password_file: password,
      tables: ["{db}.*"]}}
"""


@dataclass(frozen=True, slots=True)
class DemoServers:
    """The running servers. `folder`: configuration, state and logs."""

    folder: Path
    kafka: Kafka
    branches: dict[str, MariaDB]
    office: PostgreSQL

    @property
    def config_file(self) -> Path:
        return self.folder / "rowlock.yaml"

    @property
    def log_file(self) -> Path:
        return self.folder / "rowlock.processes.log"

    def keep_log(self) -> str:
        """Copy the log of `rowlock run` to a permanent place, and return a line that names it; ""
        without a log.
        """
        if not self.log_file.exists():
            return ""
        handle, copy = tempfile.mkstemp(prefix="rowlock-demo-", suffix=".log")
        os.close(handle)
        shutil.copyfile(self.log_file, copy)
        return f"The whole log of `rowlock run` is kept in {copy}"


@contextlib.contextmanager
def run_servers() -> Iterator[DemoServers]:
    """Start the servers, end them in any case, and remove the folder, also if this process is killed.

    After a failure the log is kept, as a copy that the message names.
    """
    folder = make_temporary_folder("rowlock-demo-")
    folder.chmod(0o700)  # it contains passwords and the state
    made: DemoServers | None = None
    try:
        kafka, office = Kafka(), PostgreSQL()
        branches = {name: MariaDB(server_id=number, durable=False) for number, name in enumerate(BRANCHES, 1)}
        made = DemoServers(folder, kafka, branches, office)
        with combine_services(kafka, office, *branches.values()):
            _prepare_servers(made)
            yield made
    except Exception as error:
        kept_logs = made.keep_log() if made else ""
        if kept_logs and isinstance(error, CommandError | EmbeddedError):
            raise CommandError(f"{error}\n{kept_logs}") from error
        if kept_logs:
            error.add_note(kept_logs)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        unregister_folder(folder)


def _prepare_servers(made: DemoServers) -> None:
    for server in made.branches.values():
        server.create_database(DATABASE)
        for statement in DDL:
            server.execute(statement, database=DATABASE)
        server.execute(f"CREATE USER rowlock@'%' IDENTIFIED BY '{PASSWORD}'")
        server.execute("GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR ON *.* TO rowlock@'%'")
    made.office.create_database(OFFICE)
    (made.folder / "password").write_text(PASSWORD)
    (made.folder / "password").chmod(0o600)
    lines = [_SOURCE.format(name=name, port=each.port, db=DATABASE) for name, each in made.branches.items()]
    text = _CONFIG.format(
        bootstrap=made.kafka.bootstrap,
        sources="".join(lines).rstrip("\n"),
        port=made.office.port,
        office=OFFICE,
        names=", ".join(made.branches),
        database=DATABASE,
    )
    made.config_file.write_text(text)


@contextlib.contextmanager
def run_rowlock(made: DemoServers) -> Iterator[subprocess.Popen[bytes]]:
    """Run `rowlock run` beside this process, logging to the folder, and stop it cleanly at the end.

    Should this process be killed, it is killed like the servers: with all that it started, and before
    the folder is removed.
    """
    command = [sys.executable, "-m", "rowlock.cli", "run", "-c", str(made.config_file)]
    env = {"PYTHONPATH": str(PACKAGES), "ROWLOCK_LOG": "json"}
    with made.log_file.open("wb") as log:
        process = spawn_process(command, output=log, env=env)
    try:
        yield process
    finally:
        _stop_run(process)


def _stop_run(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(scale_timeout(RUN_STOP_TIMEOUT_S))
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        process.wait()
    release_process(process)
