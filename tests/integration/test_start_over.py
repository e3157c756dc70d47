"""docs/how-to/start-over.md, done as it says: after a DDL that stopped a table and a purged log, every row is there again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from rowlock.cli import main
from schemas.findings import START_OVER
from tests.kits.running import Run, running, source_config, target_config, write_config
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

TABLES = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(40) UNIQUE, amount DECIMAL(12,2))",
    "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO accounts VALUES (1, 'ann', 10.5), (2, 'bob', 20), (3, NULL, 0)",
    "INSERT INTO customers VALUES (1, 'ann'), (2, 'bob'), (3, 'x\\0y')",  # PostgreSQL refuses the last one
)
#: While nothing runs. What is not emptied would keep accounts 1 and customer 2, and 'ann' would be in two places.
MISSED = (
    "DELETE FROM accounts WHERE id = 1",
    "UPDATE accounts SET owner = 'ann', note = 'handed over' WHERE id = 2",
    "DELETE FROM customers WHERE id = 2",
    "UPDATE customers SET name = 'xy' WHERE id = 3",
)
AFTERWARDS = (
    "INSERT INTO accounts VALUES (5, 'eve', 1, 'afterwards')",
    "UPDATE accounts SET owner = NULL WHERE id = 2",
    "DELETE FROM customers WHERE id = 1",
)

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "start-over.md"


@dataclass
class System:
    """`db`: the database in each server, and the Kafka prefix. Each target has a pipeline of its name."""

    config: Path
    db: str
    source: MariaDB
    targets: dict[str, PostgreSQL | MySQL]

    def change(self, *statements: str) -> None:
        for statement in statements:
            self.source.execute(statement, database=self.db)

    def rows(self, server: Any) -> dict[str, list[tuple[Any, ...]]] | None:
        """Return all rows of both tables; None while they cannot be read."""
        try:
            return {
                table: [tuple(row) for row in server.execute(f"SELECT * FROM {table} ORDER BY id", database=self.db)]
                for table in ("accounts", "customers")
            }  # fmt: skip
        except Exception:  # noqa: BLE001 - the target has no such table yet
            return None

    def invoke(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words, "-c", str(self.config)])

    def await_equal(self, run: Run) -> None:
        for name, server in self.targets.items():
            until(lambda server=server: self.rows(server) == self.rows(self.source), f"equal in {name}; see {run.log}", 240)  # type: ignore[misc]  # fmt: skip

    def stopped(self) -> list[str]:
        """Return the reasons for which units are stopped, in the order of the targets."""
        found = self.invoke("status", "--output", "json")
        assert found.exit_code in (0, 1), found.output
        units = json.loads(found.stdout)["units"]
        return [unit["stopped"] for unit in units if unit["stopped"]]


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb2: MariaDB, postgres: PostgreSQL, mysql: MySQL, unique: str
) -> Iterator[System]:
    servers: dict[str, PostgreSQL | MySQL] = {"pg": postgres, "my": mysql}
    for server in (mariadb2, *servers.values()):
        server.create_database(unique)
    schemas = {"pg": "public", "my": unique}
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": unique},
        spark={"memory": "512m"},
        sources={"s": source_config(mariadb2, "mariadb", unique)},
        targets={"pg": target_config(postgres, "postgres", unique), "my": target_config(mysql, "mysql", unique)},
        pipelines={
            name: {"sources": ["s"], "target": name, "schema_changes": "stop", "repair": "stop", "routes": [{"from": f"{unique}.*", "to": schemas[name] + ".{table}"}]}
            for name in servers
        },
    )  # fmt: skip
    made = System(config, unique, mariadb2, servers)
    made.change(*TABLES)
    yield made
    for server in (mariadb2, *servers.values()):
        server.drop_database(unique)


@pytest.mark.slow  # a minute
def test_starting_over_brings_every_row_after_a_ddl_and_a_purged_log(system: System, tmp_path: Path) -> None:
    with running(system.config, tmp_path) as run:
        until(lambda: system.rows(system.targets["my"]) == system.rows(system.source), f"the snapshot; see {run.log}", 240)  # fmt: skip
        until(lambda: "customers" in system.invoke("quarantine", "list").stdout, "the refused row is held")
        system.change(
            "ALTER TABLE accounts ADD note VARCHAR(20)", "INSERT INTO accounts VALUES (4, 'dan', 4, 'new')"
        )
        reasons = until(lambda: len(found := system.stopped()) == 2 and found, "both targets' units stop")
        assert all("ADD note" in reason and reason.endswith(START_OVER) for reason in reasons), reasons
        assert run.stop() == 0
    system.change(*MISSED)
    purge(system.source)
    refused(system)
    start_over(system)
    with running(system.config, tmp_path) as run:
        system.await_equal(run)
        system.change(*AFTERWARDS)
        system.await_equal(run)
        assert system.stopped() == []
        assert run.stop() == 0
    verdict = system.invoke("verify", "--settle", "0", "--output", "json")
    assert verdict.exit_code == 0, verdict.output
    assert len(verdict.stdout.splitlines()) == 4
    assert system.invoke("quarantine", "list").stdout == "nothing is held\n"


def purge(server: MariaDB) -> None:
    """Have the server forget where capture stands; it keeps a file until it notices that its reader is gone."""
    server.execute("FLUSH BINARY LOGS")
    last = server.execute("SHOW MASTER STATUS")[0][0]

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        return bool(server.execute("SHOW BINARY LOGS")[0][0] == last)

    until(purged, "the purge")


def refused(system: System) -> None:
    """`check` and `run` say what happened, and name the page."""
    checked = system.invoke("check", "--output", "json")
    assert checked.exit_code == 1
    findings = [each for each in json.loads(checked.stdout)["findings"] if each["level"] == "error"]
    assert ["purged" in each["what"] and each["remedy"].endswith(START_OVER) for each in findings][:1] == [
        True
    ]
    ran = system.invoke("run")
    assert ran.exit_code == 2
    assert START_OVER in ran.output


def start_over(system: System) -> None:
    """Steps 3 and 4 of the page, with the page's own SQL."""
    raw = yaml.safe_load(system.config.read_text())
    raw["kafka"]["prefix"] += "2"
    system.config.write_text(yaml.safe_dump(raw))
    (block,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    statements = [each.strip() for each in block.split(";") if each.strip()]
    assert len(statements) == 6
    for name, server in system.targets.items():
        for statement in statements:
            server.execute(statement.replace("'to-hq'", f"'{name}'"), database=system.db)
