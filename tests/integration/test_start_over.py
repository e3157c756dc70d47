"""docs/how-to/start-over.md, done as written: after a DDL that stopped a table and a purged log, every row is
there again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from schemas.findings import START_OVER
from tests.kits.waiting import until
from tests.kits.whole_run import Source, Target, WholeRun, whole_run

pytestmark = pytest.mark.timeout(1200)

TABLES = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(40) UNIQUE, amount DECIMAL(12,2))",
    "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO accounts VALUES (1, 'ann', 10.5), (2, 'bob', 20), (3, NULL, 0)",
    "INSERT INTO customers VALUES (1, 'ann'), (2, 'bob'), (3, 'x\\0y')",  # PostgreSQL refuses the last one
)
#: While nothing runs. What is not emptied would keep accounts 1 and customer 2, and 'ann' would be in two
#: places.
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


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb2: MariaDB, postgres: PostgreSQL, mysql: MySQL, unique: str
) -> Iterator[WholeRun]:
    """Each target has a pipeline of its name."""
    pipelines = {
        name: {"sources": ["s"], "target": name, "schema_changes": "stop", "repair": "stop",
        "routes": [{"from": f"{unique}.*", "to": place + ".{table}"}]}
        for name, place in {"pg": "public", "my": unique}.items()
    }  # fmt: skip
    targets: dict[str, Target] = {"pg": postgres, "my": mysql}
    with whole_run(tmp_path, unique, kafka, {"s": mariadb2}, targets, pipelines) as made:
        made.change("s", *TABLES)
        yield made


def await_equal(system: WholeRun, targets: Iterable[str] = ()) -> None:
    for table in ("accounts", "customers"):
        query = f"SELECT * FROM {table} ORDER BY id"
        system.arrives(query, system.read_source("s", query), targets)


def stopped(system: WholeRun) -> list[str]:
    """Return the reasons for which units are stopped, in the order of the targets."""
    return [unit["stopped"] for unit in system.status()["units"] if unit["stopped"]]


@pytest.mark.slow  # a minute
def test_starting_over_brings_every_row_after_a_ddl_and_a_purged_log(system: WholeRun) -> None:
    system.run.start()
    await_equal(system, ["my"])
    system.run.until(
        lambda: "customers" in system.invoke("quarantine", "list").stdout, "the refused row is held"
    )
    system.change(
        "s", "ALTER TABLE accounts ADD note VARCHAR(20)", "INSERT INTO accounts VALUES (4, 'dan', 4, 'new')"
    )
    reasons = system.run.until(
        lambda: len(found := stopped(system)) == 2 and found, "both targets' units stop"
    )
    remedy = f"then rowlock copy {system.db}.accounts"
    assert all("ADD note" in reason and reason.endswith(remedy) for reason in reasons), reasons
    assert system.run.stop() == 0
    system.change("s", *MISSED)
    purge(system.sources["s"])
    refused(system)
    start_over(system)
    system.run.start()
    await_equal(system)
    system.change("s", *AFTERWARDS)
    await_equal(system)
    assert stopped(system) == []
    assert system.run.stop() == 0
    verdict = system.invoke("verify", "--settle", "0", "--output", "json")
    assert verdict.exit_code == 0, verdict.output
    assert len(verdict.stdout.splitlines()) == 4
    assert system.invoke("quarantine", "list").stdout == "nothing is held\n"


def purge(server: Source) -> None:
    """Have the server purge the log at capture's position; it keeps a file until it notices that its reader
    has disconnected."""
    server.execute("FLUSH BINARY LOGS")
    last = server.execute("SHOW MASTER STATUS")[0][0]

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        return bool(server.execute("SHOW BINARY LOGS")[0][0] == last)

    until(purged, "the purge")


def refused(system: WholeRun) -> None:
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


def start_over(system: WholeRun) -> None:
    """Steps 3 and 4 of the page, with the page's own SQL."""
    system.parts["kafka"]["prefix"] += "2"
    system.write_parts()
    (block,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    statements = [each.strip() for each in block.split(";") if each.strip()]
    assert len(statements) == 7
    for name, server in system.targets.items():
        for statement in statements:
            server.execute(statement.replace("'to-hq'", f"'{name}'"), database=system.db)
