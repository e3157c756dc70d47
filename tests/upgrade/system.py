"""A system that two versions run in turn: MariaDB into PostgreSQL, and MySQL into MySQL, each with its
situations.

Every source is read through a proxy that stalls each connection within the second chunk of `big`, so that a
snapshot ends only when the test lets it. The target's `narrow` takes fewer characters than the source's, so
that rows of it are quarantined.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pymysql

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.families import family, send
from tests.kits.running import (
    DDL,
    DatabaseServer,
    Load,
    Program,
    Run,
    source_config,
    target_config,
    write_config,
)
from tests.kits.waiting import until
from tests.servers.proxy import Stall, TcpProxy

BIG_ROWS, CHUNK = 24_000, 2_000
WIDTH = 6
"""Characters that `narrow.note` takes in the targets."""
TABLES = {
    "acct": "id, version, owner, amount",
    "typed": "id, kind, tags, at, data, price",
    "big": "id, pad",
    "altered": "*",
    "narrow": "id, note",
}
"""Tables, and what is compared of each."""
_TABLES_DDL = (
    DDL,
    (
        "CREATE TABLE typed (id INT PRIMARY KEY, kind ENUM('a', 'b', 'c') NULL, tags "
        "SET('x', 'y', 'z') NULL, at DATETIME(3) NULL, data VARBINARY(20) NULL, price "
        "DECIMAL(20, 5) NULL) CHARACTER SET utf8mb4"
    ),
    "CREATE TABLE big (id INT PRIMARY KEY, pad VARCHAR(250) CHARACTER SET utf8mb4)",
    "CREATE TABLE altered (id INT PRIMARY KEY, note VARCHAR(20) CHARACTER SET utf8mb4)",
    "CREATE TABLE narrow (id INT PRIMARY KEY, note VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL)",
)
Rows = list[tuple[Any, ...]]


@dataclass
class Route:
    """A source, and the target of its rows; `name` is that of both, and of the pipeline between them."""

    name: str
    kind: str
    source: MariaDB | MySQL
    database: str
    target_kind: str
    target: PostgreSQL | MySQL
    target_database: str
    proxy: TcpProxy
    load: Load

    def change(self, *statements: str) -> None:
        for statement in statements:
            self.source.execute(statement, database=self.database)

    def source_rows(self, table: str) -> Rows:
        return rows(self.source, self.database, table)

    def target_rows(self, table: str) -> Rows | None:
        """Return the rows of a table; None: it is not there yet."""
        with contextlib.suppress(psycopg.errors.UndefinedTable, pymysql.err.ProgrammingError):
            return rows(self.target, self.target_database, table)
        return None

    def is_equal(self, table: str) -> bool:
        return self.target_rows(table) == self.source_rows(table)

    def copied(self) -> int:
        """Return how many rows of `big` have arrived."""
        return len(self.target_rows("big") or ())

    def waits_for_the_lock(self) -> bool:
        """Whether a statement waits for the target's `altered`."""
        if isinstance(self.target, PostgreSQL):
            waiting = (
                "SELECT 1 FROM pg_locks JOIN pg_class ON pg_class.oid = relation WHERE NOT granted "
                "AND relname = 'altered' AND mode = 'AccessExclusiveLock'"
            )
        else:
            waiting = (
                "SELECT 1 FROM information_schema.processlist WHERE state = 'Waiting for table metadata "
                f"lock' AND db = '{self.target_database}'"
            )
        return bool(self.target.execute(waiting, database=self.target_database))

    def has_column(self, column: str) -> bool:
        """Whether the target's `altered` has a column."""
        schema = "public" if isinstance(self.target, PostgreSQL) else self.target_database
        return bool(
            self.target.execute(
                "SELECT 1 FROM information_schema.columns WHERE table_name = 'altered' AND "
                "column_name = %s AND table_schema = %s",
                (column, schema),
                database=self.target_database,
            )
        )

    def is_altering(self, column: str) -> bool:
        """Whether an ALTER that adds a column has begun in the target and has not ended. PostgreSQL shows no
        begin: there the mark is part of its transaction."""
        marked = "SELECT 1 FROM rowlock_unit WHERE ddl IS NOT NULL"
        begun = isinstance(self.target, PostgreSQL) or self.target.execute(
            marked, database=self.target_database
        )
        return bool(begun) and not self.has_column(column)

    @contextlib.contextmanager
    def locked_target(self) -> Iterator[None]:
        """Read the target's `altered` in a transaction that stays open: no statement can change the table."""
        connection = self.target.connect(self.target_database, autocommit=False)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT COUNT(*) FROM altered")
                cursor.fetchall()
                yield
        finally:
            connection.close()


def rows(server: DatabaseServer, database: str, table: str) -> Rows:
    """Return the rows of a table in key order, with the columns in the order of their names where all are
    compared."""
    with contextlib.closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {TABLES[table]} FROM {table} ORDER BY id")
        names = [str(each[0]) for each in cursor.description]
        order = (
            range(len(names)) if TABLES[table] != "*" else sorted(range(len(names)), key=names.__getitem__)
        )
        return [tuple(_plain(row[at]) for at in order) for row in cursor.fetchall()]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


@dataclass
class UpgradedRun:
    """Two routes, and the version that runs them now. `log`: of all of them."""

    config: Path
    routes: tuple[Route, ...]
    log: Path
    run: Run | None = field(default=None)

    def start(self, program: Program) -> None:
        self.run = Run(self.config, self.log, program=program)
        self.run.start()

    def kill(self) -> None:
        """kill -9 of every process at once."""
        assert self.run is not None
        assert self.run.process is not None
        kill_all(self.run.process.pid)
        self.run.process.wait(60)

    def stop(self) -> None:
        """Stop cleanly; the chunk that stalls at the proxy fails, for capture waits for its end."""
        assert self.run is not None
        assert self.run.process is not None
        self.run.process.terminate()
        for route in self.routes:
            route.proxy.close_connections()
        assert self.run.process.wait(300) == 0, self.log

    def close(self) -> None:
        if self.run is not None:
            self.run.close()
        for route in self.routes:
            route.proxy.close()

    def each(self, condition: Callable[[Route], object], what: str, seconds: float = 300) -> None:
        """Await a condition of every route."""
        for route in self.routes:
            until(lambda route=route: condition(route), f"{route.name}: {what}; see {self.log}", seconds)  # type: ignore[misc]

    def equal(self, *tables: str) -> None:
        """Await that the targets have the sources' rows."""
        for table in tables:
            self.each(lambda route: route.is_equal(table), f"the rows of {table}")  # noqa: B023

    def change(self, *statements: str) -> None:
        for route in self.routes:
            route.change(*statements)

    def is_in_the_middle(self) -> bool:
        """Whether some chunks of each `big` have arrived, and not all."""
        return all(0 < route.copied() < BIG_ROWS for route in self.routes)

    # commands of either version

    def held(self, program: Program) -> list[dict[str, Any]]:
        """Return the quarantine: of each entry the fields that every version has."""
        shown = self.asked(program, "quarantine", "list", "--output", "json")
        names = ("pipeline", "topic", "table", "key", "offset", "part", "event")
        return [{name: each[name] for name in names} for each in shown["held"]]

    def asked(self, program: Program, *words: str) -> dict[str, Any]:
        """Return the JSON of a command."""
        done = program.call(*words, "-c", str(self.config))
        assert done.returncode in (0, 1), done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def resolve(self, program: Program, how: str, *words: str) -> int:
        """Retry or skip what is held; return the exit code."""
        done = program.call("quarantine", how, *words, "-c", str(self.config))
        assert done.returncode in (0, 1), done.stderr
        return done.returncode


def kill_all(pid: int) -> None:
    """kill -9 of a process and all that it has started; returns once they have ended."""
    processes = family(pid)
    send(processes, signal.SIGKILL)
    psutil.wait_procs(processes[1:], timeout=60)


def configuration(folder: Path, kafka: Kafka, routes: tuple[Route, ...], database: str) -> Path:
    def source(route: Route) -> dict[str, Any]:
        return {**source_config(route.source, route.kind, route.database), "port": route.proxy.port}

    def pipeline(route: Route) -> dict[str, Any]:
        schema = "public" if route.target_kind == "postgres" else route.target_database
        to = [{"from": f"{route.database}.*", "to": f"{schema}.{{table}}"}]
        return {
            "sources": [route.name],
            "target": route.name,
            "lanes": 4,
            "schema_changes": "evolve",
            "routes": to,
        }

    return write_config(
        folder,
        kafka={"bootstrap": kafka.bootstrap, "prefix": database},
        spark={"memory": "512m"},
        sources={route.name: source(route) for route in routes},
        targets={
            route.name: target_config(route.target, route.target_kind, route.target_database)
            for route in routes
        },
        pipelines={route.name: pipeline(route) for route in routes},
    )


@contextlib.contextmanager
def system(
    kafka: Kafka, mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, database: str, folder: Path
) -> Iterator[UpgradedRun]:
    """Make the tables and the first rows, at the sources and of `narrow` at the targets; nothing runs yet."""
    there = f"{database}_t"
    routes = tuple(
        Route(name, kind, source, database, target_kind, target, place, _proxy(source),
        Load(source, database, pause_s=0.05))
        for name, kind, source, target_kind, target, place in (
            ("ma", "mariadb", mariadb, "postgres", postgres, database),
            ("my", "mysql", mysql, "mysql", mysql, there),
        )
    )  # fmt: skip
    places = [(mariadb, database), (mysql, database), (postgres, database), (mysql, there)]
    made = UpgradedRun(configuration(folder, kafka, routes, database), routes, folder / "run.log")
    for server, name in places:
        server.create_database(name)
    try:
        made.change(*_TABLES_DDL, _numbers(), *_FIRST_ROWS)
        for route in routes:
            route.target.execute(
                f"CREATE TABLE narrow (id INT PRIMARY KEY, note VARCHAR({WIDTH}) NOT NULL)",
                database=route.target_database,
            )
        yield made
    finally:
        made.close()
        for server, name in places:
            server.drop_database(name)


_FIRST_ROWS = (
    (
        "INSERT INTO typed VALUES (1, 'a', 'x,z', '2026-01-02 03:04:05.678', x'00ff', -12345.67890), "
        "(2, NULL, '', NULL, NULL, NULL), (3, 'c', NULL, '1000-01-01 00:00:00', '', 0)"
    ),
    "INSERT INTO altered VALUES (1, 'first')",
    "INSERT INTO narrow VALUES (1, 'fits'), (20, 'moves')",
)


def _proxy(source: MariaDB | MySQL) -> TcpProxy:
    return TcpProxy(source.port, stall=Stall(b"~row~", CHUNK + CHUNK // 2))


def _numbers() -> str:
    digit = "(SELECT 0 n UNION ALL " + " UNION ALL ".join(f"SELECT {n}" for n in range(1, 10)) + ")"
    powers = " + ".join(f"d{at}.n * {10**at}" for at in range(5))
    joined = ", ".join(f"{digit} d{at}" for at in range(5))
    return (
        f"INSERT INTO big SELECT id, CONCAT('~row~', id, REPEAT('.', 60)) FROM (SELECT {powers} AS id FROM "
        f"{joined}) numbers WHERE id < {BIG_ROWS}"
    )
