"""The table of a requested copy, and each table that is followed, is looked for at the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL
from rowlock.inspect.copied_table import explain_unknown_table
from rowlock.inspect.missing_tables import map_missing_findings
from schemas.config.model import load_config
from tests.kits.capture import running, source, watermarks
from tests.kits.waiting import until


@pytest.mark.parametrize("server", ["mariadb", "mysql"])
def test_only_a_table_of_the_source_can_be_copied(
    request: pytest.FixtureRequest, tmp_path: Path, kafka: Kafka, unique: str, server: str
) -> None:
    database: MariaDB | MySQL = request.getfixturevalue(server)
    database.execute(f"CREATE DATABASE {unique}")
    database.execute(f"CREATE TABLE {unique}.acct (id INT PRIMARY KEY)")
    file = tmp_path / "c.yaml"
    settings = {"bootstrap": kafka.bootstrap, "prefix": unique}
    file.write_text(json.dumps({"kafka": settings, "sources": {"b1": source(database, [f"{unique}.*"])}}))
    config = load_config(file)
    assert explain_unknown_table(config, "b1", (unique, "acct")) is None
    problem = explain_unknown_table(config, "b1", (unique, "acc"))
    assert problem is not None
    assert str(problem) == (
        f"source b1 has no table {unique}.acc: did you mean '{unique}.acct'?; otherwise give the source's "
        "user SELECT on the table"
    )


@pytest.mark.parametrize("server", ["mariadb", "mysql"])
def test_a_dropped_table_is_named_by_check_and_cannot_be_copied(
    request: pytest.FixtureRequest, tmp_path: Path, kafka: Kafka, unique: str, server: str
) -> None:
    database: MariaDB | MySQL = request.getfixturevalue(server)
    database.execute(f"CREATE DATABASE {unique}")
    for table in ("acct", "closed"):
        database.execute(f"CREATE TABLE {unique}.{table} (id INT PRIMARY KEY)")
    target = {"type": "postgres", "host": "h", "user": "u", "password": "p", "database": "d"}
    route = {"from": f"{unique}.*", "to": "public.{table}"}
    parts = {
        "kafka": {"bootstrap": kafka.bootstrap, "prefix": unique},
        "state_dir": str(tmp_path / "state"),
        "sources": {"b1": source(database, [f"{unique}.*"])},
        "targets": {"hq": target},
        "pipelines": {"p": {"sources": ["b1"], "target": "hq", "routes": [route]}},
    }
    (file := tmp_path / "c.yaml").write_text(json.dumps(parts))
    config = load_config(file)
    with running(file, "b1") as unit:
        until(
            lambda: [w for w in watermarks(kafka.bootstrap, unique, "b1") if not w.snapshot_pending],
            "the start",
        )
        assert map_missing_findings(config, []) == {"b1": []}
        assert explain_unknown_table(config, "b1", (unique, "closed")) is None
        database.execute(f"DROP TABLE {unique}.closed")
        until(lambda: [w for w in watermarks(kafka.bootstrap, unique, "b1") if w.stops], "the stop")
        assert unit.stop() == 0, unit.output()
    [found] = map_missing_findings(config, [])["b1"]
    assert (found.level, found.place) == ("warning", f"source b1, table {unique}.closed")
    problem = explain_unknown_table(config, "b1", (unique, "closed"))
    assert problem is not None
    assert (problem.what, problem.action) == (found.message, found.remedy)
    assert "DROP TABLE" in problem.what
    assert "or create it again" in problem.action
    assert "`rowlock reload`" in problem.action
    assert explain_unknown_table(config, "b1", (unique, "closed"), must_exist=False) is None
    database.execute(f"CREATE TABLE {unique}.closed (id INT PRIMARY KEY)")
    assert explain_unknown_table(config, "b1", (unique, "closed")) is None
    database.drop_database(unique)
