"""Whole product: `partitions: keep`. Rows of a dropped partition stay in each target through a copy of the
whole table, and `verify` counts them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.whole_run import Rows, WholeRun, build_pg_and_my_pipelines, whole_run

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]

TARGETS = ("pg", "my")
HISTORY: Rows = [(1, 1), (2, 2)]


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, unique: str
) -> Iterator[WholeRun]:
    pipelines = build_pg_and_my_pipelines(unique, partitions="keep")
    targets = {"pg": postgres, "my": mysql}
    with whole_run(tmp_path, unique, kafka, {"ma": mariadb}, targets, pipelines) as made:
        made.change(
            "ma",
            "CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
            "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (100))",
            "INSERT INTO p VALUES (1, 1), (2, 2), (11, 1)",
        )
        yield made


def listed(system: WholeRun, target: str) -> Rows | None:
    return system.read(target, "SELECT row_key FROM rowlock_kept ORDER BY row_key")


def verified(system: WholeRun) -> list[tuple[int, dict[str, Any]]]:
    """Return the exit code of `verify` with the object of each table."""
    result = system.invoke("verify", "--output", "json")
    return [(result.exit_code, json.loads(line)) for line in result.stdout.splitlines()]


def test_a_dropped_partition_stays_in_the_targets_for_ever(system: WholeRun) -> None:
    query = "SELECT id, v FROM p ORDER BY id"
    system.run.start()
    system.arrives(query, [*HISTORY, (11, 1)])
    system.change("ma", "ALTER TABLE p DROP PARTITION p0", "INSERT INTO p VALUES (12, 1)")
    for target in TARGETS:
        system.run.until(
            lambda target=target: listed(system, target) == [("[1]",), ("[2]",)],  # type: ignore[misc]
            f"{target} lists the removed rows",
            400,
        )
    for target in TARGETS:  # a copy deletes it: what the source never had is no history
        server, database = system.target(target)
        server.execute("INSERT INTO p VALUES (50, 50)", database=database)
    copied = system.invoke("copy", f"{system.db}.p", "--source", "ma", "--wait")
    assert copied.exit_code == 0, copied.output
    system.arrives(query, [*HISTORY, (11, 1), (12, 1)])
    found = verified(system)
    assert [(code, each["kept"], each["equal"]) for code, each in found] == [(0, 2, True)] * 2

    system.change("ma", "INSERT INTO p VALUES (2, 22)")
    system.arrives(query, [(1, 1), (2, 22), (11, 1), (12, 1)])
    assert [listed(system, target) for target in TARGETS] == [[("[1]",)]] * 2
    system.change("ma", "DELETE FROM p WHERE id = 2", "TRUNCATE TABLE p", "INSERT INTO p VALUES (13, 1)")
    system.arrives(query, [(1, 1), (13, 1)])
    assert [(code, each["kept"]) for code, each in verified(system)] == [(0, 1)] * 2
    assert system.run.stop() == 0
