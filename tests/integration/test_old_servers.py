"""Servers of versions that rowlock does not support: refused in one sentence, by every command, as source and
as target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from rowlock.cli import main
from tests.kits.running import source_config, target_config, write_config

#: Command line → exit code. (`check` has findings; the others are errors, but for `status`, which shows the
#: rest.)
COMMANDS = {
    "check --output json": 1,
    "check --plan": 2,
    "run": 2,
    "run --until-caught-up": 2,
    "verify": 2,
    "status --output json": 1,
    "copy {db}.acct": 2,
}


def configured(folder: Path, kafka: Kafka, prefix: str, source: Any, target: Any) -> Path:
    """Return the configuration of one source and one target. No run serves REST beside another."""
    return write_config(
        folder,
        kafka={"bootstrap": kafka.bootstrap, "prefix": prefix},
        sources={"branch": source},
        targets={"hq": target},
        pipelines={
            "p": {
                "sources": ["branch"],
                "target": "hq",
                "routes": [{"from": "*.acct", "to": f"{target['database']}.{{table}}"}],
            }
        },
        coordination={"rest": "127.0.0.1:0", "listen": "127.0.0.1:0"},
    )


def invoke(config: Path, line: str) -> Result:
    result = CliRunner().invoke(main, [*line.split(), "-c", str(config)])
    assert result.exception is None or isinstance(result.exception, SystemExit), (line, result.exception)
    assert "Traceback" not in result.output, (line, result.output)
    return result


def sentences(line: str, result: Result) -> list[str]:
    """Return what a command reports of servers: of `check` and `status` from their JSON, so that no table
    breaks a line."""
    if line.startswith("check --output"):
        return [
            f"{each['place']}: {each['what']}: {each['remedy']}"
            for each in json.loads(result.stdout)["findings"]
        ]
    if line.startswith("status"):
        found = json.loads(result.stdout)
        sources = [f"source {each['name']}: {each['reason']}: {each['remedy']}" for each in found["sources"]]
        return [*sources, *found["problems"]]
    return result.output.splitlines()


def assert_refused_by_every_command(config: Path, db: str, place: str, version: str, needed: str) -> None:
    for template, code in COMMANDS.items():
        line = template.format(db=db)
        result = invoke(config, line)
        mine = [each for each in sentences(line, result) if version in each]
        assert result.exit_code == code, (line, result.output)
        assert mine, (line, result.output)
        assert all(f"rowlock needs {needed} or later" in each and "upgrade it" in each for each in mine), (
            line,
            mine,
        )
        assert any(place in each for each in mine), (line, mine)


def make_table(server: MySQLFamily, db: str) -> None:
    server.create_database(db)
    server.execute("CREATE TABLE acct (id INT PRIMARY KEY, s SET('a', 'b'))", database=db)
    server.execute("INSERT INTO acct VALUES (1, 'a')", database=db)


@pytest.mark.parametrize("version", ["mariadb-10.1.23"], indirect=True)
def test_old_mariadb_is_refused_as_target(
    version: MySQLFamily, kafka: Kafka, mariadb: MariaDB, mariadb_db: str, unique: str, tmp_path: Path
) -> None:
    mariadb.execute("CREATE TABLE acct (id INT PRIMARY KEY, v INT)", database=mariadb_db)
    hq = f"{unique}_hq"
    version.create_database(hq)
    [(shown,)] = version.execute("SELECT VERSION()")
    source = source_config(mariadb, "mariadb", mariadb_db)
    config = configured(tmp_path, kafka, unique, source, target_config(version, "mariadb", hq))
    assert_refused_by_every_command(config, mariadb_db, "target hq", f"MariaDB {shown}", "MariaDB 10.2.2")
    assert not version.execute("SHOW TABLES", database=hq), "nothing is made there"


@pytest.mark.parametrize(
    ("side", "shown", "oldest"),
    [
        ("source", "5.6.51", "MySQL 5.7"),
        ("target", "5.6.51", "MySQL 5.7"),
        ("source", "10.0.38-MariaDB", "MariaDB 10.1"),
    ],
)
def test_server_older_than_any_here_is_refused(
    kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, pg_db: str, unique: str, tmp_path: Path,
    side: str, shown: str, oldest: str,
) -> None:  # fmt: skip
    """A MariaDB that gives itself out as this version."""
    product = oldest.partition(" ")[0]
    kind = product.lower()
    with MariaDB(durable=False, extra=[f"--version={shown}"]) as old:
        new = mariadb if side == "target" else old
        make_table(new, unique)
        try:
            source = source_config(new, "mariadb" if side == "target" else kind, unique)
            old.create_database(f"{unique}_hq")
            postgres_hq = target_config(postgres, "postgres", pg_db)
            target = target_config(old, kind, f"{unique}_hq") if side == "target" else postgres_hq
            config = configured(tmp_path, kafka, unique, source, target)
            assert_refused_by_every_command(config, unique, side, f"{product} {shown}", oldest)
        finally:
            new.drop_database(unique)
