"""Where the benchmarks play: services, a folder, configurations, and what every part of `make bench` uses of
them."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bench import workload
from bench.kit import Figures, Topics, Tree, tree, wait
from consumer.spark.query import DAEMON_ENV
from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL, Service, combine_services
from tests.kits.assigned import daemons_of

SOURCE_DB = "bench"
TOPIC = f"bench.branch.{SOURCE_DB}.{workload.TABLE}"


class Bench:
    """The services, the folder and the figures of one run."""

    def __init__(
        self, folder: Path, kafka: Kafka, source: MariaDB, targets: dict[str, Any], events: int
    ) -> None:
        self.folder, self.kafka, self.source, self.targets, self.events = (
            folder,
            kafka,
            source,
            targets,
            events,
        )
        self.figures = Figures()
        self.topics = Topics(kafka.bootstrap)
        self.transaction = 0
        self.copied_rows = self.swept_rows = 0

    def config(self, name: str, target: str = "postgres", prefix: str = "bench", tables: str = "*") -> Path:
        """Write a configuration `name`.yaml with one pipeline to `target`."""
        server = self.targets[target]
        path = self.folder / f"{name}.yaml"
        content = {
            "kafka": {"bootstrap": self.kafka.bootstrap, "prefix": prefix},
            "state_dir": str(self.folder / name),
            "sources": {"branch": {**_place(self.source), "type": "mariadb",
             "tables": [f"{SOURCE_DB}.{tables}"]}},
            "targets": {"hq": {**_place(server), "type": target, "database": name}},
            "pipelines": {
                "p": {
                    "sources": ["branch"], "target": "hq", "lanes": 4,
                    "routes": [{"from": f"{SOURCE_DB}.*", "to": _schema(target, name) + ".{table}"}],
                }
            },
        }  # fmt: skip
        path.write_text(yaml.safe_dump(content))
        with contextlib.suppress(Exception):
            server.drop_database(name)
        server.create_database(name)
        return path

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def load(self, events: int) -> None:
        """Make `events` row events at the source."""
        with contextlib.closing(self.source.connect(SOURCE_DB)) as connection, connection.cursor() as cursor:
            self.transaction = workload.run(cursor, events, self.transaction)


def _place(server: Any) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": ""}


def _schema(target: str, database: str) -> str:
    return "public" if target == "postgres" else database


def capture_all(bench: Bench) -> None:
    """Let capture run until nothing more comes: the snapshot, and what was written behind it."""
    config = bench.config("capture")
    with tree(
        "producer.main", "--config", str(config), "--source", "branch", "--detached", log=bench.log("capture")
    ):
        wait(lambda: bench.topics.end_connection(TOPIC) > 0, "the first definition and snapshot")
        bench.load(bench.events)
        end = -1
        while end < (end := bench.topics.end_connection(TOPIC)):
            time.sleep(3)


@contextlib.contextmanager
def rowlock_run(bench: Bench, name: str, config: Path) -> Iterator[Tree]:
    """`rowlock run` as a user starts it."""
    with tree("rowlock.cli", "run", "-c", str(config), log=bench.log(name)) as ours:
        yield ours


@contextlib.contextmanager
def stock_run(bench: Bench, name: str, config: Path) -> Iterator[Tree]:
    """The same with PySpark's own daemon of Python workers, and no other difference."""
    env = {DAEMON_ENV: "pyspark.daemon"}
    with tree("rowlock.cli", "run", "-c", str(config), log=bench.log(name), env=env) as stock:
        yield stock
        assert daemons_of(stock.members()) == {"pyspark.daemon"}, "nothing was compared"


@contextlib.contextmanager
def benches(events: int) -> Iterator[Bench]:
    kafka, source = Kafka(), MariaDB(durable=False)
    targets: dict[str, Service] = {"postgres": PostgreSQL()}
    if MySQL.explain_unavailable() is None:
        targets["mysql"] = MySQL(durable=False, extra=["--skip-log-bin"])
    with (
        tempfile.TemporaryDirectory(prefix="rowlock-bench-") as folder,
        combine_services(kafka, source, *targets.values()),
    ):
        source.create_database(SOURCE_DB)
        with contextlib.closing(source.connect(SOURCE_DB)) as connection, connection.cursor() as cursor:
            workload.prepare(cursor)
        yield Bench(Path(folder), kafka, source, targets, events)
