"""One `rowlock run` from MariaDB over Kafka and Spark into PostgreSQL, a fault under load, and the judgement
of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.running import (
    DDL,
    KEYS,
    Load,
    Run,
    Server,
    Witness,
    rows,
    running,
    source_config,
    target_config,
    write_config,
)
from tests.kits.waiting import until


class System:
    """What a fault may touch, and how to judge afterwards."""

    def __init__(self, run: Run, source: MariaDB, target: PostgreSQL, broker: Kafka, database: str) -> None:
        self.run, self.source, self.target, self.broker, self.database = run, source, target, broker, database

    def equal(self) -> bool:
        try:
            return rows(self.source, self.database) == rows(self.target, self.database)
        except Exception:  # noqa: BLE001 - the target is on its way up
            return False

    def under_load(self, fault: Callable[[], None], seed: int) -> None:
        """Let `fault` happen in the middle of load; afterwards the target is equal, and no row of it was seen
        to go back."""
        witness = Witness(self.target, self.database)
        load = Load(self.source, self.database, seed)
        load.version = (max((row[1] for row in rows(self.source, self.database)), default=0)) + 1
        witness.start()
        load.start()
        try:
            until(lambda: load.count > 100, "load before the fault")
            at_fault = load.count
            fault()
            until(lambda: load.count > at_fault + 300, "load after the fault")
        finally:
            load.finish()
        until(self.equal, f"the target equals the source; see {self.run.log}", 300)
        witness.finish()
        assert witness.reads > 0
        assert witness.regressions == []


@contextlib.contextmanager
def whole_system(
    folder: Path,
    source: MariaDB,
    broker: Kafka,
    target: PostgreSQL,
    database: str,
    ways: tuple[Server, str, Server] | None = None,
) -> Iterator[System]:
    """`ways`: where rowlock finds source, broker (bootstrap) and target, if there is something between."""
    reached, bootstrap, head_office = ways or (source, broker.bootstrap, target)
    source.create_database(database)
    target.create_database(database)
    source.execute(DDL, database=database)
    for key in range(0, KEYS, 2):  # rows for the snapshot
        source.execute("INSERT INTO acct VALUES (%s, 0, %s, 7.5)", (key, f"first{key}"), database=database)
    config = write_config(
        folder,
        kafka={"bootstrap": bootstrap, "prefix": database},
        sources={"branch": source_config(reached, "mariadb", database)},
        targets={"hq": target_config(head_office, "postgres", database)},
        pipelines={
            "to-hq": {
                "sources": ["branch"], "target": "hq", "lanes": 4,
                "routes": [{"from": f"{database}.*", "to": "public.{table}"}],
            }
        },
    )  # fmt: skip
    try:
        with running(config, folder) as run:
            system = System(run, source, target, broker, database)
            until(system.equal, f"the snapshot is applied; see {run.log}", 300)
            yield system
    finally:
        with contextlib.suppress(Exception):
            source.drop_database(database)
            target.drop_database(database)
