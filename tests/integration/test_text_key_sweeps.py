"""Whole product: rows of a dropped partition of a table whose key is a text in several forms leave each
target, while rows are written, and written again in another case, and processes are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.running import kill_workers
from tests.kits.whole_run import Rows, WholeRun, build_pg_and_my_pipelines, whole_run

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]

ROWS = 20_000
TARGETS = ("pg", "my")
NAMES = (
    "ELT(1 + seq MOD 5, CONCAT('Ünal ', seq), CONCAT('b', seq), CONCAT('B ', seq), seq, CONCAT('a-', seq))"
)
QUERY = "SELECT id, k, v FROM p ORDER BY id, v"


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, unique: str
) -> Iterator[WholeRun]:
    pipelines = build_pg_and_my_pipelines(unique)
    targets = {"pg": postgres, "my": mysql}
    with whole_run(tmp_path, unique, kafka, {"ma": mariadb}, targets, pipelines) as made:
        made.change(
            "ma",
            "CREATE TABLE p (id INT, k VARCHAR(30) COLLATE utf8mb4_general_ci, v INT, PRIMARY KEY (k, id)) "
            f"PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN ({ROWS // 2}), PARTITION p1 VALUES "
            f"LESS THAN ({4 * ROWS}))",
            f"INSERT INTO p SELECT seq, {NAMES}, 1 FROM seq_0_to_{ROWS - 1}",
        )
        yield made


def has_debt(system: WholeRun, target: str) -> bool:
    rows = system.read(target, "SELECT definition FROM rowlock_unit")
    return rows is None or any('"removed":{' in str(row[0]) for row in rows)


def test_removed_rows_with_keys_of_text_leave_the_targets(system: WholeRun) -> None:
    system.run.start()
    count = "SELECT count(*) FROM p"
    system.arrives(count, [(ROWS,)])
    system.change("ma", "ALTER TABLE p DROP PARTITION p0")
    for target in TARGETS:
        system.run.until(lambda target=target: has_debt(system, target), "the debt", 400)  # type: ignore[misc]
    for number in range(60):  # some of them while the table is compared
        again, later = number * 7, ROWS // 2 + number * 5
        system.change(
            "ma",
            f"INSERT INTO p SELECT seq, UPPER({NAMES}), 2 FROM seq_{again}_to_{again}",
            f"UPDATE p SET k = LOWER(k), v = 3 WHERE id = {later}",
            f"DELETE FROM p WHERE id = {later + 1}",
        )
        if number == 5:
            system.run.kill_processes("consumer.main")
        if number == 40:
            kill_workers(system.run)
    for target in TARGETS:
        system.run.until(
            lambda target=target: not has_debt(system, target),  # type: ignore[misc]
            f"the end of the debt in {target}",
            400,
        )
    expected: Rows = system.read_source("ma", QUERY)
    system.arrives(QUERY, expected)
    assert len(expected) == ROWS // 2
    assert system.run.stop() == 0
