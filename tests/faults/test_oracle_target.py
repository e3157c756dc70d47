"""A whole `rowlock run` from MySQL and MariaDB into Oracle's dialect on H2, which an installed package brings as a kind of its own.

Under load the process that applies is killed twice. The judges: a witness that reads the target all the time and sees no row go back, and at
the end the full comparison of rows.
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
from tests.apply_kit import ROOT
from tests.h2_server import PASSWORD, USER, OracleOnH2
from tests.oracle_on_h2 import open_on_h2
from tests.running import DDL, KEYS, Load, Run, Witness, rows, running, source_config, write_config
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # one more Spark
WORD = "oracle-on-h2"


class Reading:
    """The target as tests.running reads it."""

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
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{WORD} = tests.oracle_on_h2:KIND\n")
    return place


def killed_in_the_middle(run: Run, loads: list[Load], seen: Callable[[], list[Any]]) -> None:
    """Kill the process that applies once there was some load, and await that every table goes on."""
    counts = [load.count for load in loads]
    until(lambda: all(load.count > n + 300 for load, n in zip(loads, counts, strict=True)), "load")
    for process in run.find("consumer.main"):
        process.kill()
    before = seen()
    until(lambda: all(a != b for a, b in zip(seen(), before, strict=True)), f"it goes on; see {run.log}")


def test_mysql_and_mariadb_into_oracle_under_load_and_kills(
    mysql: MySQL, mysql_db: str, mariadb: MariaDB, mariadb_db: str, kafka: Kafka, oracle: OracleOnH2, oracle_db: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    packages = str(installed(tmp_path / "packages"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((packages, str(ROOT))))
    sources: dict[str, tuple[MySQL | MariaDB, str]] = {"my": (mysql, mysql_db), "ma": (mariadb, mariadb_db)}
    for server, database in sources.values():
        server.execute(DDL, database=database)
        for key in range(0, KEYS, 2):  # rows for the snapshot
            server.execute(
                "INSERT INTO acct VALUES (%s, 0, %s, 7.5)", (key, f"first{key}"), database=database
            )
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": oracle_db},
        sources={
            "my": source_config(mysql, "mysql", mysql_db),
            "ma": source_config(mariadb, "mariadb", mariadb_db),
        },
        targets={"ora": {"type": WORD, "host": oracle.host, "port": oracle.port, "user": USER, "password": PASSWORD, "database": oracle_db}},
        pipelines={"p": {"sources": ["my", "ma"], "target": "ora", "routes": [{"from": "*.acct", "to": "rowlock.acct_{source}"}]}},
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
        until(equal, f"the snapshots are applied; see {run.log}", 240)
        witnesses = [Witness(reading, oracle_db, f"acct_{name}") for name in sources]
        loads = [Load(*there) for there in sources.values()]
        for thread in (*witnesses, *loads):
            thread.start()
        try:
            for _ in range(2):
                killed_in_the_middle(run, loads, lambda: [applied(name) for name in sources])
        finally:
            for load in loads:
                load.finish()
        until(equal, f"the targets equal the sources; see {run.log}", 240)
        for witness in witnesses:
            witness.finish()
        assert [witness.regressions for witness in witnesses] == [[], []]
        assert min(witness.reads for witness in witnesses) > 20
        assert run.stop() == 0
    assert reading.connect(oracle_db).cursor().execute(
        "SELECT COUNT(*) FROM rowlock_displaced"
    ).fetchall() == [(0,)]
