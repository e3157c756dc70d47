"""`spark.master: spark://…`: the work of `rowlock run` is done by the executors of a standalone cluster on
its own machine, where rowlock is installed. tests/faults/test_spark_executors.py has hosts of their own.

What could break there and not in `local[N,4]`: the streams of slots whose processes are not the agent's
descendants, and settings that have to reach an executor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.cluster import Addresses
from tests.kits.running import (
    ACCOUNTS,
    DDL,
    KEYS,
    Load,
    Run,
    Witness,
    rows,
    running,
    saying,
    source_config,
    target_config,
    write_config,
)
from tests.kits.schemas_strategies import TABLE, bound_rows
from tests.kits.waiting import until
from tests.kits.whole_way import change, create_everything, insert_everything, texts, update_everything
from tests.servers.spark_cluster import Master, Worker, spark_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Master, Worker]]:
    with spark_cluster(tmp_path) as members:
        yield members


@pytest.fixture
def run(
    cluster: tuple[Master, Worker], kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL,
    mariadb_db: str, pg_db: str, tmp_path: Path,
) -> Iterator[Run]:  # fmt: skip
    """`rowlock run` with the cluster as its Spark, over a source that has rows for the snapshot."""
    create_everything(mariadb, mariadb_db)
    change(mariadb, mariadb_db, *map(insert_everything, bound_rows(TABLE)))
    change(mariadb, mariadb_db, *ACCOUNTS)
    addresses = Addresses(1)
    token = tmp_path / "executor-token"
    token.write_text("the executors' token")
    config = write_config(
        tmp_path,
        coordination={**addresses.config,
         "listen": addresses.grpc[0]},  # other runs of this machine stay apart
        spark={
            "master": cluster[0].url, "memory": "512m", "driver": {"host": "127.0.0.1"}, "insecure": True,
            "executor_token_file": str(token), "python": sys.executable,
        },
        kafka={"bootstrap": kafka.bootstrap, "prefix": mariadb_db},
        sources={"branch": source_config(mariadb, "mariadb", mariadb_db)},
        targets={"hq": target_config(postgres, "postgres", pg_db)},
        pipelines={
            "to-hq": {
                "sources": ["branch"], "target": "hq", "lanes": 4,
                "routes": [{"from": f"{mariadb_db}.*", "to": "public.{table}"}],
            }
        },
    )  # fmt: skip
    with running(config, tmp_path) as started:
        yield started


def test_executors_of_a_standalone_cluster_apply_every_row(
    run: Run, cluster: tuple[Master, Worker], mariadb: MariaDB, postgres: PostgreSQL, mariadb_db: str,
    pg_db: str
) -> None:  # fmt: skip
    master, worker = cluster
    witness, load = Witness(postgres, pg_db), Load(mariadb, mariadb_db)
    arrives(run, mariadb, mariadb_db, postgres, pg_db, "acct", "everything")
    witness.start()
    load.start()
    try:
        change_everything(mariadb, mariadb_db)
        make_fresh(mariadb, mariadb_db)
        until(lambda: load.count > 300, "load while the executors work")
        run.until(
            lambda: writers(worker, postgres), f"an executor's session in the target; see {worker.home.log}"
        )
        (app,) = master.state["activeapps"]
        assert [each["appid"] for each in worker.state["executors"]] == [app["id"]]
        assert run.find("-m consumer.spark.daemon") == [], "the driver has Python workers of its own"
    finally:
        load.finish()
    arrives(run, mariadb, mariadb_db, postgres, pg_db, "acct", "everything", "fresh")
    witness.finish()
    assert witness.reads > 0
    assert witness.regressions == []
    assert run.stop() == 0
    until(lambda: not worker.family(), "the executors end with the run")
    assert master.state["activeapps"] == []


def change_everything(source: MariaDB, database: str) -> None:
    """Rows of all types through the log: inserted, given the values of other rows, deleted."""
    bounds = bound_rows(TABLE)
    turned = [(row[0], *other[1:]) for row, other in zip(bounds, reversed(bounds), strict=True)]
    change(source, database, *map(insert_everything, bound_rows(TABLE, 2000)))
    change(source, database, *map(update_everything, turned), apart=False)
    change(source, database, "DELETE FROM everything WHERE id % 5 = 0")


def make_fresh(source: MariaDB, database: str) -> None:
    """A table that appears while the executors work."""
    change(
        source,
        database,
        DDL.replace("acct", "fresh"),
        # Not copied from acct: that would wait for the load's locks, and may be chosen as a deadlock's
        # victim.
        *(f"INSERT INTO fresh VALUES ({key}, 0, 'fresh{key}', 7.5)" for key in range(KEYS)),
        "UPDATE fresh SET amount = amount + 1, version = version + 1 WHERE id % 3 = 0",
        "DELETE FROM fresh WHERE id % 3 = 1",
        "INSERT INTO fresh VALUES (1000, 1, 'not in acct', 0.01)",
    )


def arrives(
    run: Run, source: MariaDB, database: str, target: PostgreSQL, target_database: str, *tables: str
) -> None:
    """Await that the target has the rows of `tables` as the source has them now, all of them."""
    for table in tables:
        expected = found(source, database, table)
        assert expected, f"nothing to compare in {table}"
        run.until(
            lambda table=table, expected=expected: found(target, target_database, table) == expected,  # type: ignore[misc]
            f"{table} equal",
        )


def found(server: MariaDB | PostgreSQL, database: str, table: str) -> list[Any] | None:
    """Return all rows of a table; None while it is not there."""
    read = texts if table == "everything" else rows
    try:
        return read(server, database, table)
    except psycopg.errors.UndefinedTable:
        return None


def writers(worker: Worker, target: PostgreSQL) -> set[int]:
    """Return the Python processes of `worker`'s executors that hold a connection to the target."""
    python = {
        process.pid
        for executor in worker.executors()
        for process in saying(executor.children(recursive=True), "-m consumer.spark.daemon")
    }
    sessions = (
        each for each in psutil.net_connections("tcp") if each.raddr and each.raddr.port == target.port
    )
    return {each.pid for each in sessions if each.pid in python}
