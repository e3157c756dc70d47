"""A whole run whose configuration is changed while it runs."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.whole_run import WholeRun, whole_run

PATIENCE_S = 420


class ReloadedRun(WholeRun):
    """A run from the MariaDBs b1 and b2 into the PostgreSQL hq, whose configuration is edited."""

    def pg(self, statement: str) -> list[Any]:
        return self.targets["hq"].execute(statement, database=self.db)

    def equal(self, table: str, target: str, source: str = "b1") -> bool:
        """Whether source and target have the same rows, all of them."""
        there = self.read_source(source, f"SELECT id, name FROM {table} ORDER BY id")
        return there == self.read("hq", f"SELECT id, name FROM {target} ORDER BY id")

    def flows(self, table: str, target: str, source: str = "b1") -> None:
        """Write a row more and see all rows arrive."""
        [(last,)] = self.read_source(source, f"SELECT max(id) FROM {table}")
        self.change(source, f"INSERT INTO {table} VALUES ({last + 1}, '{secrets.token_hex(4)}')")
        self.run.until(lambda: self.equal(table, target, source), f"rows of {table} in {target}", PATIENCE_S)

    def write(self, change: Callable[[dict[str, Any]], None]) -> None:
        change(self.parts)
        self.write_parts()

    def hang_up(self) -> None:
        assert self.run.process is not None
        self.run.process.send_signal(signal.SIGHUP)

    def epochs(self) -> dict[str, int]:
        """The assignments of the units that replicate."""
        found = json.loads(self.invoke("units", "list", "--output", "json").stdout)["units"]
        return {each["unit"]: each["epoch"] for each in found if each["state"] == "replicating"}

    def events(self, what: str, config: Path | None = None) -> list[dict[str, Any]]:
        found = json.loads(self.invoke("events", "--last", "1000", "--output", "json", config=config).stdout)
        return [each["about"] for each in found["events"] if each["what"] == what]

    def reloads(self) -> int:
        return len(self.events("configuration in force"))


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, mariadb: MariaDB, mariadb2: MariaDB,
    postgres: PostgreSQL
) -> Iterator[ReloadedRun]:  # fmt: skip
    db = f"reload{secrets.token_hex(4)}"
    pipelines = {
        "p": {"sources": ["b1"], "target": "hq", "lanes": 2,
         "routes": [{"from": f"{db}.one", "to": "public.{table}"}]},
        "q": {"sources": ["b2"], "target": "hq", "lanes": 1,
         "routes": [{"from": f"{db}.*", "to": "public.q_{table}"}]},
    }  # fmt: skip
    branches = {"b1": mariadb, "b2": mariadb2}
    with whole_run(
        tmp_path_factory.mktemp("reload"), db, kafka, branches, {"hq": postgres}, pipelines
    ) as whole:
        made = ReloadedRun(**vars(whole))
        made.write(lambda raw: raw["sources"]["b1"].update(tables=[f"{db}.one"]))
        for source, table in (("b1", "one"), ("b1", "two"), ("b2", "other")):
            made.change(
                source,
                f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(40) UNIQUE)",
                f"INSERT INTO {table} VALUES (1, 'lucy'), (2, 'émile'), (3, NULL)",
            )
        made.run.start()
        made.flows("one", "public.one")
        made.flows("other", "public.q_other", "b2")
        yield made


def by_command(system: ReloadedRun) -> None:
    answer = system.invoke("reload")
    assert answer.exit_code == 0, answer.output
