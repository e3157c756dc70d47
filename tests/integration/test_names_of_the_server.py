"""A server that takes names in any case (lower_case_table_names = 1), and tables that do not exist yet when
capture starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB
from tests.capturing import Capturing
from tests.kits.capture import running, watermarks
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def folding() -> Iterator[MariaDB]:
    with MariaDB(durable=False, extra=["--lower-case-table-names=1"]) as server:
        yield server


@pytest.fixture
def capturing(kafka: Kafka, folding: MariaDB, unique: str, tmp_path: Path) -> Iterator[Capturing]:
    folding.create_database(unique)
    yield Capturing(kafka, folding, unique, tmp_path)
    folding.drop_database(unique)


def _ops(capturing: Capturing, table: str) -> list[str]:
    return [event.op for event in capturing.events(table) if event.chunk is None]


def test_statements_in_any_case_concern_the_table(capturing: Capturing) -> None:
    db = capturing.db
    for name in ("c", "d"):
        capturing.change(f"CREATE TABLE {name.upper()} (id INT PRIMARY KEY, v VARCHAR(20))")
    capturing.run(
        "INSERT INTO a VALUES (1, 'x')", "TRUNCATE TABLE A", "INSERT INTO A VALUES (2, 'y')",
        f"ALTER TABLE {db.upper()}.C MODIFY COLUMN v VARCHAR(30) FIRST", "INSERT INTO c VALUES ('z', 1)",
        "SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO D VALUES (1, 'unseen')",
    )  # fmt: skip
    assert _ops(capturing, "a") == ["m", "c", "t", "c"]
    assert capturing.values("c") == {"z"}, "values in their columns"
    assert capturing.notified() == {f"{db}.d"}
    capturing.stopped("d", "statement")


def test_patterns_in_any_case_take_the_table(capturing: Capturing) -> None:
    capturing.run("INSERT INTO a VALUES (1, 'x')", patterns=("A", "B"))
    capturing.run("DROP TABLE A", patterns=("A", "B"))
    assert capturing.values("a") == {"x"}
    capturing.stopped("a", "dropped")


def test_a_schema_that_is_empty_yet(capturing: Capturing) -> None:
    """Its tables are captured when they are created."""
    with running(capturing.config("new*"), "s") as unit:
        until(
            lambda: watermarks(capturing.kafka.bootstrap, capturing.db, "s"),
            f"a start: {unit.output()[-3000:]}",
            200,
        )
        capturing.change(
            "CREATE TABLE New1 (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO NEW1 VALUES (1, 'x')"
        )
        until(lambda: capturing.values("new1") == {"x"}, f"the new table: {unit.output()[-3000:]}", 200)
        assert unit.stop() == 0, unit.output()


def test_what_was_never_there_has_no_stop(capturing: Capturing) -> None:
    capturing.run("DROP TABLE IF EXISTS never_there", patterns=("b",))
    assert capturing.notified() == set()
