"""COMPRESSED columns of MariaDB on their whole way into PostgreSQL, MySQL and MariaDB: from a snapshot, from
the log, and compressed or unpacked by a statement while rowlock runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.whole_way import TARGETS, WholeWay, whole_way

pytestmark = pytest.mark.timeout(900)
PATIENCE_S = 300


@pytest.fixture
def way(
    tmp_path: Path, kafka: Kafka, mysql: MySQL, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[WholeWay]:
    with whole_way(tmp_path, kafka, mysql, mariadb, postgres) as made:
        for pipeline in made.parts["pipelines"].values():
            pipeline.pop("schema_changes", None)
            pipeline.pop("repair", None)
        made.write_parts()
        yield made


def await_equal(way: WholeWay) -> None:
    columns = way.sources["ma"].execute(
        f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{way.db}' "
        "AND table_name = 'packed' ORDER BY ordinal_position"
    )
    shown = ", ".join(name for (name,) in columns)
    rows = way.sources["ma"].execute(f"SELECT {shown} FROM packed ORDER BY id", database=way.db)
    for target in TARGETS:
        way.run.until(
            lambda target=target: way.read(target, f"SELECT {shown} FROM packed_ma ORDER BY id") == rows,  # type: ignore[misc]
            f"rows in {target}", PATIENCE_S,
        )  # fmt: skip


def test_compressed_columns_arrive_in_every_target(way: WholeWay) -> None:
    way.change(
        "ma",
        "CREATE TABLE packed (id INT PRIMARY KEY, v VARCHAR(200) COMPRESSED, "
        "t TEXT CHARACTER SET gbk COMPRESSED DEFAULT 'x', b BLOB COMPRESSED, p TEXT)",
        "INSERT INTO packed VALUES (1, REPEAT('é', 200), REPEAT('王', 999), REPEAT('ab', 999), 'p'), "
        "(2, '', '', '', ''), (3, NULL, DEFAULT, NULL, NULL), (4, 'é', '王', 'b', REPEAT('p', 999))",
    )
    way.run.start()
    await_equal(way)
    way.change(
        "ma",
        "INSERT INTO packed SELECT id + 10, v, t, b, p FROM packed",
        "UPDATE packed SET v = REPEAT('v', 199), t = NULL, b = REPEAT('b', 3000) WHERE id = 11",
        "DELETE FROM packed WHERE id = 12",
    )
    await_equal(way)
    way.change(
        "ma",
        "ALTER TABLE packed MODIFY p TEXT COMPRESSED, MODIFY v VARCHAR(200), "
        "ADD COLUMN n VARCHAR(300) COMPRESSED NOT NULL DEFAULT 'né'",
        "UPDATE packed SET p = REPEAT('q', 999), n = REPEAT('n', 300) WHERE id IN (1, 13)",
        "INSERT INTO packed (id, v, n) VALUES (20, REPEAT('w', 200), 'n')",
        "ALTER TABLE packed DROP COLUMN b",
    )
    await_equal(way)
    found = way.verify()
    assert found
    assert all(each["equal"] for each in found.values()), found
