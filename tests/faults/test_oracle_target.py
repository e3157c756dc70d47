"""A whole `rowlock run` from MySQL and MariaDB into Oracle's dialect on H2, which an installed package brings
as a kind of its own.

Under load the Python workers, both captures, the processes that apply, Spark's JVM and the whole run are
killed (kill -9). The judges: a witness of each table that reads the target all the time and sees no row go
back, the full comparison of rows, `rowlock verify`, and no displaced row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL
from schemas.config.kinds.targets import ENTRY_POINTS
from schemas.config.model import TargetConfig
from tests.kits.apply import ROOT
from tests.kits.running import (
    ACCOUNTS,
    Load,
    Run,
    Witness,
    kill_workers,
    rows,
    running,
    source_config,
    write_config,
)
from tests.kits.waiting import until
from tests.servers.h2_server import PASSWORD, USER, OracleOnH2
from tests.stands.oracle_on_h2 import open_on_h2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]  # two more Sparks
WORD = "oracle-on-h2"


class Reading:
    """The target as tests.kits.running reads it."""

    def __init__(self, service: OracleOnH2) -> None:
        self.host, self.port, self.user = service.host, service.port, USER

    def connect(self, database: str) -> Any:
        server = {
            "host": self.host,
            "port": self.port,
            "user": USER,
            "password": PASSWORD,
            "database": database,
        }
        return open_on_h2(TargetConfig.model_validate({"type": "oracle", **server}))


def installed(place: Path) -> Path:
    about = place / "rowlock_h2-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rowlock-h2\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{WORD} = tests.stands.oracle_on_h2:KIND\n")
    return place


def kill_captures(run: Run) -> None:
    run.until(lambda: len(run.find("producer.main")) >= 2, "a capture for each source")
    run.kill_processes("producer.main")


def kill_appliers(run: Run) -> None:
    run.kill_processes("consumer.main")


def kill_jvm(run: Run) -> None:
    run.kill_processes("java", "org.apache.spark")


FAULTS: tuple[Callable[[Run], None], ...] = (
    kill_appliers, kill_workers, kill_captures, kill_jvm, Run.kill_and_restart, kill_workers, kill_appliers,
)  # fmt: skip


def await_progress(run: Run, loads: list[Load], seen: Callable[[], list[Any]], fault: str) -> None:
    """Await that all loads write more, and that more reaches each table. `fault`: what was done last."""
    counts = [load.count for load in loads]
    until(lambda: all(load.count > n + 200 for load, n in zip(loads, counts, strict=True)), "load")
    before = seen()
    for at in range(len(before)):
        run.until(lambda at=at: seen()[at] != before[at], f"table {at} continues after {fault}", 400)  # type: ignore[misc]


def test_mysql_and_mariadb_into_oracle_under_load_and_kills(
    mysql: MySQL, mysql_db: str, mariadb: MariaDB, mariadb_db: str, kafka: Kafka, oracle: OracleOnH2,
    oracle_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    packages = str(installed(tmp_path / "packages"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((packages, str(ROOT))))
    sources: dict[str, tuple[MySQL | MariaDB, str]] = {"my": (mysql, mysql_db), "ma": (mariadb, mariadb_db)}
    for server, database in sources.values():
        for statement in ACCOUNTS:
            server.execute(statement, database=database)
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": oracle_db},
        sources={
            "my": source_config(mysql, "mysql", mysql_db),
            "ma": source_config(mariadb, "mariadb", mariadb_db),
        },
        targets={"ora": {"type": WORD, "host": oracle.host, "port": oracle.port, "user": USER,
         "password": PASSWORD, "database": oracle_db}},
        pipelines={"p": {"sources": ["my", "ma"], "target": "ora",
         "routes": [{"from": "*.acct", "to": "rowlock.acct_{source}"}]}},
    )  # fmt: skip
    reading = Reading(oracle)

    def applied(name: str) -> list[tuple[Any, ...]]:
        try:
            return rows(reading, oracle_db, f"acct_{name}")
        except Exception:  # noqa: BLE001 - not there yet
            return []

    def equal() -> bool:
        return all(applied(name) == rows(*there) for name, there in sources.items())

    with running(config, tmp_path) as run:
        run.until(equal, "the snapshots are applied", 240)
        witnesses = [Witness(reading, oracle_db, f"acct_{name}") for name in sources]
        loads = [Load(*there) for there in sources.values()]
        for thread in (*witnesses, *loads):
            thread.start()
        try:
            done = "the start"
            for fault in FAULTS:
                await_progress(run, loads, lambda: [applied(name) for name in sources], done)
                fault(run)
                done = fault.__name__
            await_progress(run, loads, lambda: [applied(name) for name in sources], done)
        finally:
            for load in loads:
                load.finish()
        run.until(equal, "the targets equal the sources", 240)
        for witness in witnesses:
            witness.finish()
        assert [witness.regressions for witness in witnesses] == [[], []]
        assert min(witness.reads for witness in witnesses) > 20
        same = run.call("verify")
        assert same.returncode == 0, same.stdout + same.stderr
        assert run.stop() == 0
    for server, database in sources.values():  # nothing runs
        server.execute("UPDATE acct SET version = version + 1", database=database)
    last = run.call("run", "--until-caught-up")
    assert last.returncode == 0, last.stderr[-3000:]
    assert equal()
    assert reading.connect(oracle_db).cursor().execute(
        "SELECT COUNT(*) FROM rowlock_displaced"
    ).fetchall() == [(0,)]
