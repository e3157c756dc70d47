"""`rowlock init` on real servers: what it reads of them, and the statements that it prints, as they are."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.embedded.services import Kafka
from rowlock.cli import main
from schemas.config.model import load_config
from schemas.io.refused_logins import REFUSED_LOGINS
from tests.kits.targets import Target, fresh
from tests.kits.terminal import Terminal

pytestmark = pytest.mark.timeout(240)
TABLES = (
    "CREATE TABLE acct (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE)",
    "CREATE TABLE `my.tab``le` (id INT PRIMARY KEY)",
    "CREATE TABLE audit (what TEXT)",
    "INSERT INTO acct VALUES (1, 'ann'), (2, 'ben')",
)
PASSWORD = "p@ss/w:rd"
ENCODED = "p%40ss%2Fw%3Ard"


@dataclass
class FirstHour:
    """Two servers, and users of them that may only log in."""

    source: Any
    database: str
    target: Target
    user: str
    kafka: Kafka
    folder: Path

    def url(self, side: str, user: str = "", password: str = ENCODED, scheme: str = "") -> str:
        server = self.source if side == "source" else self.target.service
        kind = type(server).__name__.lower()
        login = f"{user or self.user}:{password}" if user or self.user else server.user
        database = self.database if side == "source" else self.target.database
        return f"{scheme or kind}://{login}@127.0.0.1:{server.port}/{database}"

    def init(self, source: str, target: str, *words: str) -> Result:
        file = str(self.folder / "rowlock.yaml")
        options = ["--yes", "--force", "--kafka", self.kafka.bootstrap, "-c", file]
        return CliRunner().invoke(main, ["init", source, target, *options, *words])

    def run_statements(self, output: str) -> int:
        """Run the printed GRANTs as an administrator; return how many there were."""
        found = re.findall(
            r"^(source|target) .*, from an administrator:\n((?:  .*\n)+)", output, re.MULTILINE
        )
        lines = [(side, each.strip()) for side, block in found for each in block.splitlines()]
        grants = [(side, each) for side, each in lines if each.startswith("GRANT ")]
        for side, each in grants:
            self.source.execute(each) if side == "source" else self.target.sql(each)
        return len(grants)

    def list_objects(self) -> tuple[list[Any], list[Any]]:
        """Return the tables and views of both databases."""
        query = "SELECT table_schema, table_name FROM information_schema.tables ORDER BY 1, 2"
        return self.source.execute(query), self.target.sql(query)


@pytest.fixture
def first(request: pytest.FixtureRequest, kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[FirstHour]:
    kind, target_kind = request.param
    source, database, user = request.getfixturevalue(kind), f"{unique}_s", f"{unique}_u"
    with fresh(target_kind, request) as target:
        source.create_database(database)
        for statement in TABLES:
            source.execute(statement, database=database)
        source.execute(f"CREATE USER `{user}`@`%` IDENTIFIED BY '{PASSWORD}'")
        if target.kind == "postgres":
            target.sql(f'REVOKE ALL ON DATABASE "{target.database}" FROM PUBLIC')
            target.sql(f"CREATE ROLE \"{user}\" LOGIN PASSWORD '{PASSWORD}'")
        elif target.service is not source:
            target.sql(f"CREATE USER `{user}`@`%` IDENTIFIED BY '{PASSWORD}'")
        yield FirstHour(source, database, target, user, kafka, tmp_path)
        source.drop_database(database)
        source.execute(f"DROP USER `{user}`@`%`")
        if target.kind == "postgres":
            target.sql(f'DROP OWNED BY "{user}" CASCADE')
            target.sql(f'DROP ROLE "{user}"')
        elif target.service is not source:
            target.sql(f"DROP USER `{user}`@`%`")


PAIRS = [("mariadb", "postgres"), ("mysql", "mariadb"), ("mysql", "mysql"), ("mariadb", "mysql")]


@pytest.mark.parametrize("first", PAIRS, indirect=True, ids="-".join)
def test_printed_statements_are_all_that_is_missing(first: FirstHour) -> None:
    source, target = first.url("source"), first.url("target")
    before, rounds = first.list_objects(), 0
    while (result := first.init(source, target)).exit_code == 1:
        rounds += 1
        assert first.run_statements(result.stdout), result.stdout
        assert rounds < 4, result.stdout
    assert (result.exit_code, rounds > 0) == (0, True), result.output
    assert PASSWORD not in result.output
    checked = CliRunner().invoke(main, ["check", "-c", str(first.folder / "rowlock.yaml")])
    assert checked.exit_code == 0, checked.output
    assert first.list_objects() == before, "init changes nothing"
    config = load_config(first.folder / "rowlock.yaml", {})
    [read] = config.sources.values()
    assert read.type == type(first.source).__name__.lower()
    assert read.tables == [f"{first.database}.*", f"!{first.database}.audit"]
    assert "copies 2 tables" in result.stdout
    assert "neither a primary key" in " ".join(result.stdout.split())


@pytest.mark.parametrize("first", PAIRS, indirect=True, ids="-".join)
def test_printed_statements_create_a_user_that_does_not_exist(first: FirstHour) -> None:
    new = f"{first.user}n"
    urls = [first.url(side, new) for side in ("source", "target")]
    try:
        for _ in range(6):
            if (result := first.init(*urls)).exit_code == 0:
                break
            if result.exit_code == 2:
                assert "it refuses user" in result.stdout, result.output
                create_user(first, result.stdout)
                REFUSED_LOGINS._logins.clear()  # the next `init` is another process
            else:
                assert first.run_statements(result.stdout), result.stdout
        assert result.exit_code == 0, result.output
        # tests before this one may have left some
        assert re.search(r"; it has (no|already [\d,]+) topics? with the prefix rowlock", result.stdout)
    finally:
        first.source.execute(f"DROP USER IF EXISTS `{new}`@`%`")
        if first.target.kind == "postgres":
            first.target.sql(f'DROP OWNED BY "{new}" CASCADE')
            first.target.sql(f'DROP ROLE "{new}"')
        else:
            first.target.sql(f"DROP USER IF EXISTS `{new}`@`%`")


def create_user(first: FirstHour, output: str) -> None:
    """Run the printed statements as an administrator."""
    [(side, block)] = re.findall(r"^(source|target) .*still missing:\n((?:  .*\n)+)", output, re.MULTILINE)
    for each in block.splitlines():
        statement = each.partition(";")[0].strip().replace("'PASSWORD'", f"'{PASSWORD}'")
        first.source.execute(statement) if side == "source" else first.target.sql(statement)


@pytest.mark.parametrize("first", PAIRS[:2], indirect=True, ids="-".join)
def test_users_with_all_rights_get_no_statement(first: FirstHour) -> None:
    before = first.list_objects()
    root, owner = first.source.user, first.target.service.user
    result = first.init(first.url("source", root, "", "mysql"), first.url("target", owner, ""))
    assert result.exit_code == 0, result.output
    assert "GRANT" not in result.stdout
    assert first.list_objects() == before
    [read] = load_config(first.folder / "rowlock.yaml", {}).sources.values()
    assert read.type == type(first.source).__name__.lower(), "the server answers which make it is"


@pytest.mark.parametrize("first", PAIRS[:1], indirect=True, ids="-".join)
def test_kafka_is_a_target_too(first: FirstHour) -> None:
    result = first.init(
        first.url("source", first.source.user, ""), f"kafka://{first.kafka.bootstrap}/{first.user}"
    )
    assert result.exit_code == 0, result.output
    [pipeline] = load_config(first.folder / "rowlock.yaml", {}).pipelines.values()
    assert [each.to for each in pipeline.routes] == [f"{first.user}.{{table}}"]


@pytest.mark.parametrize("first", PAIRS[:1], indirect=True, ids="-".join)
def test_a_terminal_asks_again_for_a_mistyped_password(first: FirstHour) -> None:
    urls = [first.url(side).replace(f":{ENCODED}@", "@") for side in ("source", "target")]
    options = ["--kafka", first.kafka.bootstrap, "-c", str(first.folder / "rowlock.yaml")]
    with Terminal([sys.executable, "-m", "rowlock.cli", "init", *urls, *options], {}) as seen:
        for number, answer in enumerate(["mistyped", PASSWORD, PASSWORD], 1):
            seen.until(lambda text, n=number: text.count("Password of") == n, f"question {number}")
            seen.type(f"{answer}\n".encode())
        assert seen.end() == 1, "rights are missing"
        assert seen.text.count("type the password again") == 1
        assert "mistyped" not in seen.text
    [source] = load_config(first.folder / "rowlock.yaml", {}).sources.values()
    assert source.password.get_secret_value() == PASSWORD


@pytest.mark.parametrize("first", PAIRS[:1], indirect=True, ids="-".join)
def test_servers_that_cannot_be_used_are_named(first: FirstHour) -> None:
    source, target = first.url("source"), first.url("target")
    at = f"source {first.database}: cannot connect to the database as {first.user}@127.0.0.1:"
    for urls, seen in [
        ((source.replace(ENCODED, "wrong"), target), at),
        ((source.replace(f":{first.source.port}/", ":1/"), target), f"{at}1: "),
        ((source, f"{target.rpartition('/')[0]}/nosuch"), 'database "nosuch" does not exist'),
        (
            (source, target.replace(f":{first.target.service.port}/", ":1/")),
            f"target {first.target.database}: ",
        ),
        (
            (source, target.replace(f":{first.target.service.port}/", f":{first.source.port}/")),
            "answers a MySQL or MariaDB server, not a PostgreSQL server: correct host and port of the target",
        ),
    ]:
        result = first.init(*urls)
        assert result.exit_code == 2, result.output
        assert seen in result.stderr, result.output
        assert list(first.folder.iterdir()) == []
