"""Changes that a session logs as statements: they stop what they may reach, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka
from tests.capturing import Capturing
from tests.kits.capture import position, running
from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

STATEMENTS = "SET SESSION binlog_format = 'STATEMENT'"
#: A captured table for each way, and what leads there.
WAYS = {
    "direct": "INSERT INTO direct VALUES (1, 'unseen')",
    "viewed": "INSERT INTO a_view VALUES (1, 'unseen')",
    "triggered": "INSERT INTO traced VALUES (1, 'x')",
    "computed": "INSERT INTO uncaptured VALUES (a_function(1), 'x')",
    "selected": "SELECT another_function(1)",
    "joined": "UPDATE uncaptured u JOIN joined j ON u.id = j.id SET j.v = 'unseen'",
    "loaded": "DELETE FROM loaded",
    "called": "CALL a_procedure()",
}
OBJECTS = (
    "CREATE VIEW a_view AS SELECT id, v FROM viewed",
    "CREATE TABLE traced (id INT PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE uncaptured (id INT PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE parent (id INT PRIMARY KEY)",
    (
        "CREATE TRIGGER a_trigger AFTER INSERT ON traced FOR EACH ROW INSERT INTO "
        "triggered VALUES (NEW.id, 'unseen')"
    ),
    (
        "CREATE FUNCTION a_function(x INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA "
        "BEGIN INSERT INTO computed VALUES (x, 'unseen'); RETURN x; END"
    ),
    (
        "CREATE FUNCTION another_function(x INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA "
        "BEGIN INSERT INTO selected VALUES (x, 'unseen'); RETURN x; END"
    ),
    "CREATE PROCEDURE a_procedure() MODIFIES SQL DATA INSERT INTO called VALUES (1, 'unseen')",
)
UNRELATED = (
    "INSERT INTO uncaptured SELECT id + 100, CONCAT(v, 'x') FROM direct",
    "UPDATE uncaptured SET v = REPLACE(v, 'x', 'direct') WHERE id IN (SELECT id FROM viewed)",
    "INSERT INTO uncaptured (id, v) VALUES (200, 'a')",
    "CREATE TEMPORARY TABLE direct_copy AS SELECT * FROM direct",
    "INSERT INTO direct_copy VALUES (7, 'x')",
    "DELETE FROM uncaptured",
    "DELETE FROM parent",
)


@pytest.fixture
def capturing(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> Capturing:
    made = Capturing(kafka, database, db, tmp_path)
    tables = [f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20))" for name in WAYS]
    made.change(*tables, *(f"INSERT INTO {name} VALUES (50, 'x')" for name in WAYS), *OBJECTS)
    return made


def test_each_stops_what_it_reaches_and_nothing_else(capturing: Capturing) -> None:
    captured = ("a", "b", *WAYS)
    capturing.run(STATEMENTS, *UNRELATED, patterns=captured)
    assert capturing.notified() == set()
    capturing.run(STATEMENTS, *WAYS.values(), *UNRELATED, patterns=captured)
    assert capturing.notified() == {f"{capturing.db}.{name}" for name in WAYS}
    for name in WAYS:
        capturing.stopped(name, "statement")
    capturing.run(*(f"REPLACE INTO {name} VALUES (60, 'later')" for name in WAYS), patterns=captured)
    for name in WAYS:
        assert capturing.values(name) == set(), "snapshot: never, and stopped before any row"


def test_a_cascade_reaches_the_child(capturing: Capturing) -> None:
    """MySQL logs what cascades change from 9.6 on, so such a child can be captured; not where a statement is
    logged."""
    if "MariaDB" in type(capturing.database).__name__:
        pytest.skip("a child table cannot be captured there")
    capturing.change("CREATE TABLE child (id INT PRIMARY KEY, v VARCHAR(20), p INT, "
                     "FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)")  # fmt: skip
    capturing.run(
        "INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (1, 'x', 1)", patterns=("b", "child")
    )
    capturing.run(STATEMENTS, "DELETE FROM parent WHERE id = 1", patterns=("b", "child"))
    capturing.stopped("child", "statement")


def _as_user(capturing: Capturing, *rights: str) -> None:
    """Capture as a user with the documented rights, and `rights` on the whole server."""
    root, db = capturing.database, capturing.db
    monitor = "BINLOG MONITOR, SLAVE MONITOR" if "MariaDB" in type(root).__name__ else "REPLICATION CLIENT"
    root.execute(f"CREATE USER '{db}'@'%' IDENTIFIED BY 'p'")
    root.execute(f"GRANT {', '.join(['REPLICATION SLAVE', monitor, *rights])} ON *.* TO '{db}'@'%'")
    root.execute(f"GRANT SELECT ON {db}.* TO '{db}'@'%'")
    capturing.options |= {"user": db, "password": "p"}


def test_the_documented_rights_prove_that_nothing_is_reached(capturing: Capturing, db: str) -> None:
    _as_user(capturing, "TRIGGER", "SHOW VIEW")
    captured = ("a", "b", *WAYS)
    capturing.run(STATEMENTS, *UNRELATED, WAYS["triggered"], WAYS["viewed"], patterns=captured)
    assert capturing.notified() == {f"{db}.triggered", f"{db}.viewed"}
    capturing.database.execute(f"DROP USER '{db}'@'%'")


def test_without_the_rights_everything_is_meant(capturing: Capturing, db: str) -> None:
    """The user may read the tables, and not see what else is there."""
    _as_user(capturing)
    capturing.run("INSERT INTO a VALUES (1, 'x')", patterns=("a", "b"))
    with running(capturing.config("a", "b"), "s") as unit:
        capturing.change(STATEMENTS, "INSERT INTO uncaptured VALUES (1, 'x')")
        until(
            lambda: capturing.notified() == {f"{db}.a", f"{db}.b"}, f"both stop: {unit.output()[-3000:]}", 200
        )
        assert unit.stop() == 0, unit.output()
    record = position(capturing.kafka.bootstrap, db, "s")
    assert "GRANT TRIGGER" in record.stops[f"{db}.a"].reason
    capturing.database.execute(f"DROP USER '{db}'@'%'")
