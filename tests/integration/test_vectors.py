"""VECTOR of MySQL 9 and MariaDB 11.8 on its whole way into PostgreSQL, MySQL and MariaDB: from a snapshot,
from the log, and in columns that are added, dropped and changed while rowlock runs."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MySQL, PostgreSQL
from tests.kits.whole_run import WholeRun, whole_run
from tests.servers.debian_mariadb import NewMariaDB

pytestmark = pytest.mark.timeout(900)
PATIENCE_S = 300
SOURCES, TARGETS = ("my", "ma"), ("pg", "my", "ma")


@pytest.fixture
def run(
    tmp_path: Path, unique: str, kafka: Kafka, mysql: MySQL, new_mariadb: NewMariaDB, postgres: PostgreSQL
) -> Iterator[WholeRun]:
    sources = {"my": mysql, "ma": new_mariadb}
    places = {name: "public" if name == "pg" else f"{unique}_t" for name in TARGETS}
    pipelines = {
        name: {
            "sources": [*SOURCES], "target": name, "schema_changes": "evolve", "repair": "copy",
            "routes": [{"from": f"{unique}.*", "to": f"{place}.{{table}}_{{source}}"}],
        }
        for name, place in places.items()
    }  # fmt: skip
    for server in (mysql, new_mariadb):
        server.create_database(f"{unique}_t")
    try:
        with whole_run(tmp_path, unique, kafka, sources, {"pg": postgres, **sources}, pipelines) as made:
            for name in SOURCES:
                made.parts["targets"][name]["database"] = f"{unique}_t"
            made.write_parts()
            yield made
    finally:
        for server in (mysql, new_mariadb):
            server.start()
            server.drop_database(f"{unique}_t")


def draw_vector(draw: random.Random, size: int) -> str:
    """Return a vector as a literal of its bytes, which both servers take."""
    return f"X'{struct.pack(f'<{size}f', *(draw.uniform(-9, 9) for _ in range(size))).hex()}'"


def change_both(run: WholeRun, *statements: str) -> None:
    for source in SOURCES:
        run.change(source, *statements)


def await_equal(run: WholeRun, table: str, *columns: str) -> None:
    """Await that the targets have the source's rows; vectors are compared by their bytes."""
    for source in SOURCES:
        shown = ", ".join(f"HEX({name})" for name in columns)
        rows = [
            (key, *(None if each is None else bytes.fromhex(each) for each in vectors))
            for key, *vectors in run.read_source(source, f"SELECT id, {shown} FROM {table} ORDER BY id")
        ]
        for target in TARGETS:
            run.run.until(
                lambda target=target, rows=rows, source=source: (  # type: ignore[misc]
                    read_target(run, target, f"{table}_{source}", columns) == rows
                ),
                f"{table} of {source} in {target}: {rows}", PATIENCE_S,
            )  # fmt: skip


def read_target(
    run: WholeRun, target: str, table: str, columns: tuple[str, ...]
) -> list[tuple[object, ...]] | None:
    if target == "pg":
        shown = ", ".join(f"{name}::real[]" for name in columns)  # pgvector's type, too
        rows = run.read(target, f"SELECT id, {shown} FROM {table} ORDER BY id")
        return rows and [
            (key, *(None if each is None else struct.pack(f"<{len(each)}f", *each) for each in arrays))
            for key, *arrays in rows
        ]
    shown = ", ".join(f"HEX({name})" for name in columns)
    rows = run.read(target, f"SELECT id, {shown} FROM {run.db}_t.{table} ORDER BY id")
    return rows and [
        (key, *(None if each is None else bytes.fromhex(each) for each in vectors)) for key, *vectors in rows
    ]


def read_types(run: WholeRun, table: str) -> dict[str, str]:
    """Return the types of PostgreSQL's columns, by name."""
    types = (
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        f"WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    return dict(run.read("pg", types) or [])


@pytest.mark.parametrize("extended", [False, True], ids=["arrays", "pgvector"])
def test_vectors_arrive_in_every_target(run: WholeRun, extended: bool) -> None:
    """With pgvector the table of MariaDB's rows is created by rowlock, and the other one was made by hand."""
    draw = random.Random(31)
    if extended:
        server, database = run.target("pg")
        server.execute("CREATE EXTENSION vector", database=database)
        server.execute(
            "CREATE TABLE v_my (id integer PRIMARY KEY, v real[], w real[] NOT NULL)", database=database
        )
    change_both(
        run,
        "CREATE TABLE v (id INT PRIMARY KEY, v VECTOR(3), w VECTOR(768) NOT NULL)",
        *(f"INSERT INTO v VALUES ({n}, {draw_vector(draw, 3)}, {draw_vector(draw, 768)})" for n in range(20)),
        f"INSERT INTO v VALUES (20, NULL, {draw_vector(draw, 768)})",
    )
    run.run.start()
    await_equal(run, "v", "v", "w")
    made = {"v": "vector(3)", "w": "vector(768)"} if extended else {"v": "real[]", "w": "real[]"}
    assert read_types(run, "v_ma") == {"id": "integer", **made}
    change_both(
        run,
        *(
            f"INSERT INTO v VALUES ({n}, {draw_vector(draw, 3)}, {draw_vector(draw, 768)})"
            for n in range(30, 40)
        ),
        f"UPDATE v SET v = {draw_vector(draw, 3)} WHERE id IN (1, 20)",
        "UPDATE v SET v = NULL WHERE id = 2",
        "DELETE FROM v WHERE id IN (3, 31)",
    )
    await_equal(run, "v", "v", "w")
    change_both(
        run,
        "ALTER TABLE v ADD COLUMN x VECTOR(2), DROP COLUMN w",
        f"INSERT INTO v VALUES (50, {draw_vector(draw, 3)}, {draw_vector(draw, 2)})",
    )
    await_equal(run, "v", "v", "x")
    change_both(
        run,
        "ALTER TABLE v MODIFY v VECTOR(4)",
        f"INSERT INTO v VALUES (60, {draw_vector(draw, 4)}, NULL)",
        # MySQL left three numbers, MariaDB added one
        f"UPDATE v SET v = {draw_vector(draw, 4)} WHERE id < 60",
    )
    await_equal(run, "v", "v", "x")
    now = {"v": "vector(4)", "x": "vector(2)"} if extended else {"v": "real[]", "x": "real[]"}
    assert read_types(run, "v_ma") == {"id": "integer", **now}
    assert read_types(run, "v_my") == {"id": "integer", "v": "real[]", "x": now["x"]}
    result = run.invoke("verify")
    assert result.exit_code == 0, result.output


def test_a_short_vector_of_mysql_waits_for_mariadb_alone(run: WholeRun) -> None:
    """MySQL's vectors may have fewer numbers than their column, MariaDB's may not."""
    run.change(
        "my", "CREATE TABLE s (id INT PRIMARY KEY, v VECTOR(3))", "INSERT INTO s VALUES (1, X'0000803F')"
    )
    run.change("my", "INSERT INTO s VALUES (2, X'0000803F0000803F0000803F')")
    run.run.start()
    run.arrives("SELECT id, v FROM s_my ORDER BY id", [(1, [1.0]), (2, [1.0, 1.0, 1.0])], ("pg",))
    run.run.until(
        lambda: run.read("ma", f"SELECT id FROM {run.db}_t.s_my") == [(2,)], "the longer one", PATIENCE_S
    )
    run.change("my", "UPDATE s SET v = X'0000004000000040000000C0' WHERE id = 1")
    run.run.until(
        lambda: run.read("ma", f"SELECT id FROM {run.db}_t.s_my ORDER BY id") == [(1,), (2,)],
        "the corrected one", PATIENCE_S,
    )  # fmt: skip
