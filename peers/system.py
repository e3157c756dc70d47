"""The servers, and for each batch of cases one real `rowlock run` from MariaDB and MySQL into the chosen
targets."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka.admin import AdminClient

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from peers.delayed_log import DelayedLog
from peers.judge import Place
from peers.rounds import Ends
from rowlock.errors import CommandError
from rowlock.inspect.caught_up import CaughtUpGoal
from rowlock.views.kafka import KafkaView
from schemas.config.model import Config, load_config
from schemas.values.mysql import quote_name
from schemas.values.postgres import quote_pg
from schemas.wire.position import parse_binlog_file_number
from tests.kits.running import Run, source_config, target_config
from tests.kits.waiting import until

KINDS = {"postgres": PostgreSQL, "mysql": MySQL, "mariadb": MariaDB}
Server = PostgreSQL | MySQL | MariaDB


@dataclass
class Servers:
    """`sources` and `targets` by kind: a target is never a source's own server."""

    kafka: Kafka
    sources: dict[str, MySQL | MariaDB]
    targets: dict[str, Server]

    @classmethod
    def of(cls, sources: list[str], targets: list[str]) -> Servers:
        quiet = ["--skip-log-bin", "--max-connections=400"]
        made: dict[str, Server] = {}
        for kind in targets:
            if kind == "postgres":
                made[kind] = PostgreSQL(
                    extra=["-c", "synchronous_commit=off", "-c", "fsync=off", "-c", "max_connections=400"]
                )
            else:
                made[kind] = (MySQL if kind == "mysql" else MariaDB)(durable=False, extra=quiet)
        own = ["--max-connections=600"]
        return cls(
            Kafka(),
            {k: (MySQL if k == "mysql" else MariaDB)(durable=False, extra=own) for k in sources},
            made,
        )

    @property
    def all(self) -> list[Any]:
        return [self.kafka, *self.sources.values(), *self.targets.values()]


@dataclass
class Options:
    """`source`, `pipeline`: settings that are added to each source's and each pipeline's. `keys`: see
    rounds.Played."""

    behind: int = 0
    keys: bool = False
    source: Mapping[str, Any] = field(default_factory=dict)
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    patience_s: float = 1200


@dataclass
class Batch:
    """One run. `prefix`: of its topics, and of all its databases' names."""

    servers: Servers
    prefix: str
    folder: Path
    options: Options
    run: Run
    config: Config
    delays: dict[str, DelayedLog]
    view: KafkaView

    def ends(self) -> Ends:
        return {name: end_of_log(server) for name, server in self.servers.sources.items()}

    def release(self, ends: Ends) -> None:
        for name, delay in self.delays.items():
            delay.hold(ends[name])

    def read(self, ends: Ends) -> None:
        """Await that capture says that all before `ends` is in Kafka."""
        for name, end in ends.items():
            seen = f"{name} captured up to {end}; see {self.run.log}"
            until(lambda name=name, end=end: self._captured(name) >= end, seen, self.options.patience_s)  # type: ignore[misc]

    def _captured(self, name: str) -> tuple[int, int]:
        found = self.view.read_watermark(name)
        if found is None:
            return (0, 0)
        mark = found[1]
        return parse_binlog_file_number(mark.file), mark.position[2]

    def caught_up(self) -> str:
        """Wait until all that can arrive has arrived. Returns rowlock's error, or that time ran out; "":
        everything has arrived."""
        for delay in self.delays.values():
            delay.hold(None)
        goal = CaughtUpGoal(self.config)
        deadline = time.monotonic() + self.options.patience_s
        while time.monotonic() < deadline:
            try:
                if goal():
                    return ""
            except CommandError as error:
                return str(error)
            time.sleep(0.5)
        return f"not within {self.options.patience_s:.0f} s"

    def spoil(self, place: Place) -> None:
        """Delete one row from a target table, without rowlock."""
        server, schema = self.servers.targets[place.pipeline], f"{place.source}_{place.db}"
        if isinstance(server, PostgreSQL):
            table = f"{quote_pg(schema)}.{quote_pg(place.table)}"
            statement = f"DELETE FROM {table} WHERE ctid = (SELECT min(ctid) FROM {table})"
            server.execute(statement, database=f"{self.prefix}_t")
        else:
            server.execute(f"DELETE FROM {quote_name(schema)}.{quote_name(place.table)} LIMIT 1")


def configuration(
    servers: Servers, prefix: str, folder: Path, ports: Mapping[str, int], options: Options
) -> dict[str, Any]:
    sources = {
        name: {
            **source_config(server, name, prefix),
            "tables": [f"{prefix}*.*"],
            "port": ports.get(name, server.port),
            **options.source,
        }
        for name, server in servers.sources.items()
    }
    return {
        "state_dir": str(folder / "state"),
        "spark": {"memory": "2g"},
        "kafka": {"bootstrap": servers.kafka.bootstrap, "prefix": prefix},
        "sources": sources,
        "targets": {
            name: target_config(server, name, f"{prefix}_t") for name, server in servers.targets.items()
        },
        "pipelines": {
            name: {
                "sources": list(sources), "target": name, "lanes": 2,
                "routes": [{"from": f"{prefix}*.*", "to": "{source}_{db}.{table}"}],
                **options.pipeline,
            }
            for name in servers.targets
        },
    }  # fmt: skip


@contextlib.contextmanager
def batch(servers: Servers, prefix: str, folder: Path, options: Options) -> Iterator[Batch]:
    """A run that captures nothing yet; afterwards its databases and topics are gone."""
    folder.mkdir(parents=True)
    delays = {name: _delayed(server) for name, server in servers.sources.items()} if options.behind else {}
    raw = configuration(servers, prefix, folder, {n: each.port for n, each in delays.items()}, options)
    file = folder / "rowlock.yaml"
    file.write_text(yaml.safe_dump(raw))
    for server in servers.targets.values():
        server.create_database(f"{prefix}_t")
    run = Run(file, folder / "run.log")
    config = load_config(file)
    view = KafkaView(config.kafka)
    made = Batch(servers, prefix, folder, options, run, config, delays, view)
    try:
        run.start()
        for name in servers.sources:
            until(lambda name=name: made._captured(name) > (0, 0), f"capture of {name}; see {run.log}", 300)  # type: ignore[misc]
        yield made
    finally:
        run.close()
        for delay in delays.values():
            delay.close()
        view.close()
        _forget(servers, prefix)
        shutil.rmtree(folder / "state", ignore_errors=True)


def _delayed(server: MySQL | MariaDB) -> DelayedLog:
    return DelayedLog(server.host, server.port, lambda: end_of_log(server))


def end_of_log(server: MySQL | MariaDB) -> tuple[int, int]:
    statement = "SHOW BINARY LOG STATUS" if isinstance(server, MySQL) else "SHOW MASTER STATUS"
    (file, position, *_), *_ = server.execute(statement)
    return parse_binlog_file_number(str(file)), int(position)


def _forget(servers: Servers, prefix: str) -> None:
    for server in [*servers.sources.values(), *servers.targets.values()]:
        if isinstance(server, PostgreSQL):
            server.drop_database(f"{prefix}_t")
            continue
        for (name,) in server.execute("SELECT schema_name FROM information_schema.schemata"):
            if prefix in str(name):
                with contextlib.suppress(Exception):
                    server.drop_database(str(name))
    admin = AdminClient({"bootstrap.servers": servers.kafka.bootstrap, "log_level": 0})
    topics = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for future in admin.delete_topics(topics).values() if topics else ():
        with contextlib.suppress(Exception):
            future.result()
