"""A whole `rowlock run` under load, with a witness: what the fault tests break and judge.

The load is one writer that changes a small set of keys all the time: inserts, updates, deletes, keys that
move, unique values handed from row to row, in transactions of several rows. Every write takes a greater
`version`, so the witness, which reads the target all the time, can see that a row went back. The judge at
the end is the full comparison of rows.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil
import pymysql
import yaml
from pymysql.constants.ER import NO_SUCH_THREAD

from deploy.embedded.services import MariaDB, MySQL
from deploy.guard.processes import spawn_process
from tests.kits.waiting import until

COLUMNS = "id, version, owner, amount"
DDL = """CREATE TABLE acct (id BIGINT NOT NULL PRIMARY KEY, version BIGINT NOT NULL,
  owner VARCHAR(40) NULL UNIQUE,
         amount DECIMAL(12,2) NOT NULL)"""
KEYS = 60
OWNERS = [f"owner{i}" for i in range(40)]
ACCOUNTS = (DDL, *(f"INSERT INTO acct VALUES ({key}, 0, 'first{key}', 7.5)" for key in range(0, KEYS, 2)))
"""Statements that make the table, with the rows that a snapshot finds."""


class DatabaseServer(Protocol):
    """What a service of deploy.embedded offers here."""

    host: str
    port: int
    user: str

    @property
    def connect(self) -> Callable[..., Any]:
        """What opens a connection to the database that is its first argument."""


def end_readers_of_the_log(server: MariaDB | MySQL) -> None:
    """End the connections that read the log; one that ended by itself since it was listed is no failure."""
    for number, *_ in server.execute(
        "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    ):
        try:
            server.execute(f"KILL {number}")
        except pymysql.err.OperationalError as error:
            if error.args[0] != NO_SUCH_THREAD:
                raise


def rows(
    server: DatabaseServer, database: str, table: str = "acct", extra: str = ""
) -> list[tuple[Any, ...]]:
    """Return all rows of a table in key order."""
    with contextlib.closing(server.connect(database)) as connection:
        return _rows(connection, table, extra)


def _rows(connection: Any, table: str, extra: str = "") -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {COLUMNS} FROM {table} {extra} ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]


class Load(threading.Thread):
    """The writer. `count`: transactions committed; an exception of it is raised by `finish`."""

    def __init__(self, server: DatabaseServer, database: str, seed: int = 1, pause_s: float = 0.002) -> None:
        """`pause_s`: between two transactions; it leaves the two cores something for everybody else."""
        super().__init__(name="load", daemon=True)
        self._pause_s = pause_s
        self._server, self._database, self._random = server, database, random.Random(seed)
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self.count = 0
        self.version = 0

    def run(self) -> None:
        try:
            with contextlib.closing(self._server.connect(self._database)) as connection:
                cursor = connection.cursor()
                while not self._ending.is_set():
                    self._transaction(cursor)
                    self.count += 1
                    self._ending.wait(self._pause_s)
        except BaseException as error:  # noqa: BLE001
            self._error = error

    def _transaction(self, cursor: Any) -> None:
        cursor.execute("BEGIN")
        for _ in range(self._random.randint(1, 6)):
            self._change(cursor)
        cursor.execute("COMMIT")

    def _change(self, cursor: Any) -> None:
        draw, key = self._random.random(), self._random.randrange(KEYS)
        self.version += 1
        if draw < 0.25:
            owner = self._random.choice([*OWNERS, None])
            cursor.execute(
                "UPDATE acct SET owner = NULL, version = %s WHERE owner = %s", (self.version, owner)
            )
            self.version += 1
            cursor.execute("REPLACE INTO acct VALUES (%s, %s, %s, 1.25)", (key, self.version, owner))
        elif draw < 0.4:
            cursor.execute("DELETE FROM acct WHERE id = %s", (key,))
        elif draw < 0.5:
            cursor.execute(
                "UPDATE IGNORE acct SET id = %s, version = %s WHERE id = %s",
                (self._random.randrange(KEYS), self.version, key),
            )
        else:
            cursor.execute(
                "INSERT INTO acct VALUES (%s, %s, NULL, 0) ON DUPLICATE KEY UPDATE amount = amount + 0.01, "
                "version = VALUES(version)",
                (key, self.version),
            )

    def finish(self) -> None:
        self._ending.set()
        self.join(30)
        if self._error:
            raise self._error


class Witness(threading.Thread):
    """Reads the target all the time; `regressions`: (id, version seen before, version seen then)."""

    def __init__(self, server: DatabaseServer, database: str, table: str = "acct") -> None:
        super().__init__(name="witness", daemon=True)
        self._server, self._database, self._table = server, database, table
        self._ending = threading.Event()
        self._seen: dict[int, int] = {}
        self.reads = 0
        self.regressions: list[tuple[int, int, int]] = []

    def run(self) -> None:
        while not self._ending.wait(0.02):
            with (
                contextlib.suppress(Exception),  # the target is down, or the table is not there yet
                contextlib.closing(self._server.connect(self._database)) as connection,
            ):
                while not self._ending.wait(0.02):
                    self._look(_rows(connection, self._table))

    def _look(self, found: list[tuple[Any, ...]]) -> None:
        self.reads += 1
        for key, version, *_ in found:
            if version < self._seen.get(key, version):
                self.regressions.append((key, self._seen[key], version))
            self._seen[key] = version

    def finish(self) -> None:
        self._ending.set()
        self.join(30)


@dataclass(frozen=True)
class Program:
    """An installed rowlock: the `python` of its environment, what its processes find in `env`, and their
    working directory."""

    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None

    def command(self, *words: str) -> list[str]:
        return [self.python, "-m", "rowlock.cli", *words]

    def spawn(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a command that ends with the tests, also where these are killed."""
        with log.open("ab") as output:
            return spawn_process(
                self.command(*words),
                output=output,
                env=self.env,
                cwd=self.cwd,
            )

    def call(self, *words: str, seconds: float = 900) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        env = {**os.environ, **self.env}
        return subprocess.run(
            self.command(*words),
            env=env,
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


HERE = Program()
"""The rowlock of this tree."""


@dataclass
class Run:
    """A `rowlock run` process tree over `config`; it ends with the tests, also where these are killed."""

    config: Path
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)
    program: Program = HERE

    def start(self) -> None:
        self.process = self.program.spawn("run", "-c", str(self.config), log=self.log)

    def stop(self) -> int:
        """Stop cleanly and return the exit code."""
        assert self.process is not None
        self.process.terminate()
        code, self.process = self.process.wait(300), None
        return code

    def kill(self) -> list[psutil.Process]:
        """kill -9 of the supervisor alone; returns what were its descendants."""
        assert self.process is not None
        family = self.family()
        self.process.kill()
        self.process.wait(10)
        self.process = None
        return family

    def kill_and_restart(self) -> None:
        """kill -9 of the supervisor alone, and a start once its descendants have ended by themselves."""
        _, alive = psutil.wait_procs(self.kill(), timeout=120)
        assert alive == [], "kill -9 of the run left processes behind"
        self.start()

    def kill_processes(self, *words: str) -> None:
        """kill -9 of the descendants whose command line has all `words`, once there are any."""
        for process in self.until(lambda: self.find(*words), f"a process with {words}"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command of the same program and configuration to its end."""
        return self.program.call(*words, "-c", str(self.config))

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 180) -> Any:
        """Await `condition` and return its value. Fails after `seconds`, and at once where the run ends by
        itself meanwhile."""

        def look() -> Any:
            code, found = self._find_exit_code(), None
            try:
                found = condition()
            except Exception:
                code = self._find_exit_code()
                if code is None:
                    raise
            if code is not None and not found:
                last = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
                raise AssertionError(f"the run ended with exit code {code}; missing: {what}\n{last}")
            return found

        return until(look, f"{what}; see {self.log}", seconds)

    def _find_exit_code(self) -> int | None:
        """Return the exit code of a run that has ended by itself."""
        return None if self.process is None else self.process.poll()

    def family(self) -> list[psutil.Process]:
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def find(self, *words: str) -> list[psutil.Process]:
        """Return the descendants whose command line has all `words`."""
        return saying(self.family(), *words)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            family = self.family()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
            psutil.wait_procs(family, timeout=10)
        self.process = None


def kill_workers(run: Run) -> None:
    """Kill Spark's Python workers, never their daemon, whose module the JVM's command line names, too."""
    driver = {process.pid for process in run.find("consumer.main")}

    def workers() -> list[psutil.Process]:
        daemons = [p for p in run.find("-m consumer.spark.daemon") if p.ppid() not in driver]
        pids = {p.pid for p in daemons}
        return [p for p in daemons if p.ppid() in pids]

    for worker in run.until(workers, "a Python worker", 600):
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()


def saying(processes: Iterable[psutil.Process], *words: str) -> list[psutil.Process]:
    """Return those of `processes` whose command line has all `words`."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if all(word in " ".join(process.cmdline()) for word in words):
                found.append(process)
    return found


def write_config(folder: Path, **parts: Any) -> Path:
    path = folder / "rowlock.yaml"
    path.write_text(yaml.safe_dump({"state_dir": str(folder / "state"), **parts}))
    return path


def source_config(server: DatabaseServer, kind: str, database: str) -> dict[str, Any]:
    return {
        "type": kind, "host": server.host, "port": server.port, "user": server.user,
        "password": "", "tables": [f"{database}.*"], "snapshot": "initial",
    }  # fmt: skip


def target_config(server: DatabaseServer, kind: str, database: str) -> dict[str, Any]:
    return {
        "type": kind, "host": server.host, "port": server.port, "user": server.user, "password": "",
        "database": database,
    }  # fmt: skip


@contextlib.contextmanager
def running(config: Path, folder: Path) -> Iterator[Run]:
    run = Run(config, folder / "run.log")
    run.start()
    try:
        yield run
    finally:
        run.close()
