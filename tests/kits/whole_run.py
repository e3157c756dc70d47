"""A `rowlock run` between real servers, as a test of the whole product writes, reads and asks it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from click.testing import Result

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.command_line import invoke
from tests.kits.running import Run, source_config, target_config, write_config
from tests.servers.debian_mariadb import NewMariaDB

Source = MySQL | MariaDB | NewMariaDB
Target = MySQL | MariaDB | NewMariaDB | PostgreSQL
Rows = list[tuple[Any, ...]]
KINDS: dict[type[Target], str] = {
    MySQL: "mysql",
    MariaDB: "mariadb",
    NewMariaDB: "mariadb",
    PostgreSQL: "postgres",
}
PATIENCE_S = 400
"""The machine may be busy."""


@dataclass
class WholeRun:
    """A run, its sources and its targets, each by its name. `db`: the database in every server, and the Kafka
    prefix."""

    db: str
    sources: Mapping[str, Source]
    targets: Mapping[str, Target]
    run: Run
    parts: dict[str, Any] = field(default_factory=dict)
    """The configuration; a change of it takes effect after `write_parts`."""

    @property
    def config(self) -> Path:
        return self.run.config

    def write_parts(self) -> None:
        write_config(self.config.parent, **self.parts)

    def target(self, name: str) -> tuple[Target, str]:
        """Return the server and the database there."""
        return self.targets[name], self.db

    def change(self, source: str, *statements: str) -> None:
        """Run statements at a source, each in a transaction of its own."""
        for statement in statements:
            self.sources[source].execute(statement, database=self.db)

    def read_source(self, source: str, query: str) -> Rows:
        return [tuple(row) for row in self.sources[source].execute(query, database=self.db)]

    def read(self, target: str, query: str) -> Rows | None:
        """Return the rows of `query` in a target; None while it, or the table, is not there."""
        server, database = self.target(target)
        try:
            return [tuple(row) for row in server.execute(query, database=database)]
        except (psycopg.Error, pymysql.MySQLError):
            return None

    def arrives(
        self, query: str, rows: Rows, targets: Iterable[str] = (), seconds: float = PATIENCE_S
    ) -> None:
        """Await that `query` gives `rows` in each target."""
        for target in targets or self.targets:
            self.run.until(
                lambda target=target: self.read(target, query) == rows,  # type: ignore[misc]
                f"{query}: {rows} in {target}",
                seconds,
            )

    def invoke(self, *words: str, config: Path | None = None) -> Result:
        result = invoke(config or self.config, *words)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def status(self) -> dict[str, Any]:
        result = self.invoke("status", "--output", "json")
        assert result.exit_code in (0, 1), result.output
        seen: dict[str, Any] = json.loads(result.stdout)
        return seen

    def topic(self, source: str, table: str) -> str:
        return f"{self.db}.{source}.{self.db}.{table}"

    def unit(self, pipeline: str, source: str, table: str) -> dict[str, Any] | None:
        """Return a unit of `status`."""
        which, units = (pipeline, self.topic(source, table)), self.status()["units"]
        return next((each for each in units if (each["pipeline"], each["topic"]) == which), None)

    def await_state(
        self, what: str, look: Callable[[], dict[str, Any] | None], *states: str
    ) -> dict[str, Any]:
        """Await that `look` finds one of `states`, and return what it found."""
        last: dict[str, Any] = {}

        def is_there() -> bool:
            last.clear()
            last.update(look() or {})
            return last.get("state") in states

        try:
            self.run.until(is_there, what, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {last}") from None
        return last


def make_parts(
    db: str,
    kafka: Kafka,
    sources: Mapping[str, Source],
    targets: Mapping[str, Target],
    pipelines: dict[str, Any],
) -> dict[str, Any]:
    """Return a configuration with every table of `db` in the sources, and `db` in the targets."""
    return {
        "kafka": {"bootstrap": kafka.bootstrap, "prefix": db},
        "spark": {"memory": "512m"},
        "sources": {name: source_config(each, KINDS[type(each)], db) for name, each in sources.items()},
        "targets": {name: target_config(each, KINDS[type(each)], db) for name, each in targets.items()},
        "pipelines": pipelines,
    }


def build_pg_and_my_pipelines(db: str, **route: str) -> dict[str, Any]:
    """Return a pipeline from the source `ma` to each of the targets `pg` and `my`. `route`: more options of
    their routes."""
    return {
        target: {
            "sources": ["ma"],
            "target": target,
            "routes": [{"from": f"{db}.*", "to": f"{schema}.{{table}}", **route}],
        }
        for target, schema in (("pg", "public"), ("my", db))
    }


@contextlib.contextmanager
def whole_run(
    folder: Path,
    db: str,
    kafka: Kafka,
    sources: Mapping[str, Source],
    targets: Mapping[str, Target],
    pipelines: dict[str, Any],
) -> Iterator[WholeRun]:
    """Make the databases and the configuration of a run that is not started; at the end it is killed, and
    they are dropped."""
    parts = make_parts(db, kafka, sources, targets, pipelines)
    run = Run(write_config(folder, **parts), folder / "run.log")
    servers = {id(each): each for each in (*sources.values(), *targets.values())}.values()
    for server in servers:
        server.create_database(db)
    try:
        yield WholeRun(db, sources, targets, run, parts)
    finally:
        run.close()
        for server in servers:
            server.drop_database(db)
