"""The table of a requested copy is looked for in Kafka and at the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL
from rowlock.inspect.copied_table import explain_unknown_table
from schemas.config.model import load_config
from tests.kits.capture import source


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
