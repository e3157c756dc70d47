"""`check` and `status`, on servers that answer, import nothing that only the processes of a system need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.command_line import HEAVY_MODULES, find_imported, run_and_list_imports, serve_control
from tests.kits.running import source_config, target_config, write_config
from tests.stands.fake_control import FakeControl


@pytest.fixture(params=["mariadb", "postgres", "kafka"])
def folder(
    request: pytest.FixtureRequest, kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path
) -> Iterator[Path]:
    """Yield a folder with the configuration of a system that has a leader; the parameter is its target."""
    target: dict[str, Any]
    if request.param == "kafka":
        target = {"type": "kafka", "bootstrap": kafka.bootstrap, "prefix": f"{mariadb_db}.out"}
    elif request.param == "postgres":
        server: PostgreSQL = request.getfixturevalue("postgres")
        target = target_config(server, "postgres", request.getfixturevalue("pg_db"))
    else:
        target = target_config(mariadb, "mariadb", mariadb_db)
    mariadb.execute("CREATE TABLE acct (id INT PRIMARY KEY)", database=mariadb_db)
    with serve_control(FakeControl()) as rest:
        write_config(
            tmp_path,
            kafka={"bootstrap": kafka.bootstrap, "prefix": mariadb_db},
            sources={"b1": source_config(mariadb, "mariadb", mariadb_db)},
            targets={"hq": target},
            pipelines={
                "p": {
                    "sources": ["b1"],
                    "target": "hq",
                    "routes": [{"from": f"{mariadb_db}.*", "to": f"{mariadb_db}_t.{{table}}"}],
                }
            },
            coordination={"rest": rest, "coordinators": ["127.0.0.1:1"]},
        )
        yield tmp_path


@pytest.mark.parametrize("words", [("check",), ("check", "--plan"), ("status",)], ids=" ".join)
def test_commands_on_servers_that_answer_import_no_spark_and_no_server(
    words: tuple[str, ...], folder: Path
) -> None:
    ended, modules = run_and_list_imports(*words, "--output", "json", folder=folder)
    assert ended.returncode in {0, 1}, ended.stderr[-3000:]
    assert ended.stdout.startswith('{"version": 1, ')
    assert {"confluent_kafka", "pymysql"} <= modules or words != ("check",)
    assert find_imported(modules, HEAVY_MODULES | {"rowlock.live"}) == set()
