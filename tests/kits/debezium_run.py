"""A running system fed by Debezium's records of a real MariaDB."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from schemas.io.mysql_catalog import read_table
from schemas.io.mysql_connection import connect_mysql
from schemas.values.mysql import make_select_row_converter, select_list
from tests.kits.command_line import invoke
from tests.kits.debezium import Connector, Values


@dataclass
class DebeziumRun:
    """`connectors`: by table. `sent`: how much of each one's records is in Kafka."""

    db: str
    kafka: Kafka
    source: MariaDB
    target: PostgreSQL
    config: Path
    connectors: dict[str, Connector] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    def table(self, name: str, ddl: str, *, schemas: bool) -> None:
        self.source.execute(ddl, database=self.db)
        with contextlib.closing(self.connect()) as conn:
            found = read_table(conn, self.db, name)
        self.connectors[name] = Connector(found, name=f"{self.db}.b1", schemas=schemas)
        self.sent[name] = 0

    def connect(self) -> Any:
        return connect_mysql("127.0.0.1", self.source.port, "root", "", self.db)

    def rows(self, name: str) -> dict[Any, Values]:
        """Return the source's rows by key, as wire values."""
        table = self.connectors[name].table
        with contextlib.closing(self.connect()) as conn, conn.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(select_list(table))} FROM `{name}`")
            convert = make_select_row_converter(table)
            found = [dict(zip(table.column_names, convert(row), strict=True)) for row in cursor.fetchall()]
        return {row["id"]: row for row in found}

    def change(self, name: str, statement: str, *, moved: tuple[Any, Any] | None = None) -> None:
        """Change the source, and have its connector write of it. `moved`: the key of a row before and
        after."""
        before = self.rows(name)
        self.source.execute(statement, database=self.db)
        after, debezium = self.rows(name), self.connectors[name]
        if moved is not None:
            debezium.update(before[moved[0]], after[moved[1]])
            return
        for key in before.keys() - after.keys():
            debezium.delete(before[key])
        for key in before.keys() & after.keys():
            if before[key] != after[key]:
                debezium.update(before[key], after[key])
        if added := [after[key] for key in after.keys() - before.keys()]:
            debezium.insert(*added)

    def send(self) -> None:
        """Write to Kafka what the connectors have, tombstones too."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "enable.idempotence": True})
        for name, debezium in self.connectors.items():
            for record in debezium.records[self.sent[name] :]:
                producer.produce(f"{self.db}.b1.{self.db}.{name}", record, b'{"id":0}')
            self.sent[name] = len(debezium.records)
        assert producer.flush(60) == 0

    def configure(self, change: Callable[[dict[str, Any]], None] = lambda _: None) -> Path:
        raw: dict[str, Any] = {
            "kafka": {"bootstrap": self.kafka.bootstrap, "prefix": self.db},
            "state_dir": str(self.config.parent / "state"),
            "spark": {"memory": "512m"},
            "sources": {
                "b1": {
                    "type": "mariadb", "events": "debezium", "host": "127.0.0.1", "port": self.source.port,
                    "user": self.db, "password": "only reads",
                    "tables": [f"{self.db}.*", f"!{self.db}.other"],
                }
            },
            "targets": {
                "hq": {
                    "type": "postgres", "host": "127.0.0.1", "port": self.target.port, "user": "postgres",
                    "password": "x", "database": self.db,
                }
            },
            "pipelines": {
                "p": {
                    "sources": ["b1"], "target": "hq", "lanes": 3,
                    "routes": [{"from": f"{self.db}.*", "to": "public.{table}",
                     "add": {"branch": "{source}"}}],
                }
            },
        }  # fmt: skip
        change(raw)
        self.config.write_text(yaml.safe_dump(raw))
        return self.config

    def verdicts(self) -> dict[str, tuple[int, bool]]:
        """Compare every row of source and target; table → (rows, whether `verify` finds them equal)."""
        result = invoke(self.config, "verify", "--output", "json", "--settle", "0")
        found = [json.loads(line) for line in result.stdout.splitlines()]
        return {each["source_table"].partition(".")[2]: (each["rows"], each["equal"]) for each in found}

    def current(self) -> set[str]:
        """Return the tables whose topics are applied up to their ends."""
        status = json.loads(invoke(self.config, "status", "--output", "json").stdout)
        units = [unit for unit in status["units"] if unit["offset"] >= 0 and not unit["lag_events"]]
        assert not any(unit["stopped"] for unit in status["units"]), status
        return {unit["topic"].rpartition(".")[2] for unit in units}


@pytest.fixture
def system(
    tmp_path: Path, unique: str, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[DebeziumRun]:
    for server in (mariadb, postgres):
        server.create_database(unique)
    mariadb.execute(f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'only reads'")
    mariadb.execute(f"GRANT SELECT ON {unique}.* TO '{unique}'@'%'")
    yield DebeziumRun(unique, kafka, mariadb, postgres, tmp_path / "c.yaml")
    mariadb.execute(f"DROP USER '{unique}'@'%'")
    for server in (mariadb, postgres):
        server.drop_database(unique)


def create_topics(system: DebeziumRun, *tables: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": system.kafka.bootstrap})
    names = [f"{system.db}.b1.{system.db}.{table}" for table in tables]
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(60)
