"""Servers of versions that rowlock does not support: refused in one sentence, by every command, as source and
as target."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from rowlock.cli import main
from tests.kits.documented_user import PASSWORD, documented_statements
from tests.kits.running import source_config, target_config, write_config
from tests.servers.old_mariadb import VERSIONS, OldMariaDB

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


@contextlib.contextmanager
def documented_user_of(server: OldMariaDB, name: str, db: str) -> Iterator[dict[str, str]]:
    """Make the documented user, with the rights as these versions name them; yields its part of a
    configuration."""
    for statement in documented_statements("MariaDB"):
        mine = statement.replace("'rowlock'", f"'{name}'").replace("…", PASSWORD).replace("`bank`", f"`{db}`")
        server.execute(mine.replace("BINLOG MONITOR, SLAVE MONITOR", "REPLICATION CLIENT"))
    server.execute("DELETE FROM mysql.user WHERE user = ''")  # they would win over 'rowlock'@'%' on this host
    server.execute("FLUSH PRIVILEGES")
    try:
        yield {"user": name, "password": PASSWORD}
    finally:
        server.execute(f"DROP USER '{name}'@'%'")


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


def make_table(server: OldMariaDB | MariaDB, db: str) -> None:
    server.create_database(db)
    server.execute("CREATE TABLE acct (id INT PRIMARY KEY, s SET('a', 'b'))", database=db)
    server.execute("INSERT INTO acct VALUES (1, 'a')", database=db)


@pytest.mark.parametrize("old_mariadb", VERSIONS, indirect=True)
def test_old_mariadb_is_refused_as_source(
    old_mariadb: OldMariaDB, kafka: Kafka, postgres: PostgreSQL, pg_db: str, unique: str, tmp_path: Path
) -> None:
    make_table(old_mariadb, unique)
    [(version,)] = old_mariadb.execute("SELECT VERSION()")
    with documented_user_of(old_mariadb, unique, unique) as user:
        source = source_config(old_mariadb, "mariadb", unique) | user
        config = configured(tmp_path, kafka, unique, source, target_config(postgres, "postgres", pg_db))
        assert_refused_by_every_command(
            config, unique, "source branch", f"MariaDB {version}", "MariaDB 10.10"
        )


@pytest.mark.parametrize("old_mariadb", VERSIONS, indirect=True)
def test_old_mariadb_is_refused_as_target(
    old_mariadb: OldMariaDB, kafka: Kafka, mariadb: MariaDB, mariadb_db: str, unique: str, tmp_path: Path
) -> None:
    mariadb.execute("CREATE TABLE acct (id INT PRIMARY KEY, v INT)", database=mariadb_db)
    hq = f"{unique}_hq"
    old_mariadb.create_database(hq)
    [(version,)] = old_mariadb.execute("SELECT VERSION()")
    source = source_config(mariadb, "mariadb", mariadb_db)
    config = configured(tmp_path, kafka, unique, source, target_config(old_mariadb, "mariadb", hq))
    assert_refused_by_every_command(config, mariadb_db, "target hq", f"MariaDB {version}", "MariaDB 10.10")
    assert not old_mariadb.execute("SHOW TABLES", database=hq), "nothing is made there"


@pytest.mark.parametrize("version", ["5.7.44-log", "8.0.12"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_old_mysql_is_refused(
    kafka: Kafka,
    mariadb: MariaDB,
    postgres: PostgreSQL,
    pg_db: str,
    unique: str,
    tmp_path: Path,
    side: str,
    version: str,
) -> None:
    """A MariaDB that gives itself out as this version: no such MySQL can be installed here."""
    with MariaDB(durable=False, extra=[f"--version={version}"]) as old:
        new = mariadb if side == "target" else old
        make_table(new, unique)
        try:
            source = source_config(new, "mariadb" if side == "target" else "mysql", unique)
            old.create_database(f"{unique}_hq")
            postgres_hq = target_config(postgres, "postgres", pg_db)
            target = target_config(old, "mysql", f"{unique}_hq") if side == "target" else postgres_hq
            config = configured(tmp_path, kafka, unique, source, target)
            assert_refused_by_every_command(config, unique, side, f"MySQL {version}", "MySQL 8.0.13")
        finally:
            new.drop_database(unique)
