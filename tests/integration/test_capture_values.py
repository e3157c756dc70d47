"""Images, values and rows that capture cannot take stop their table, or go into the event marked; nothing
else is affected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MySQL
from schemas.wire.event import Undecodable
from tests.capturing import Capturing
from tests.kits.capture import replay, running
from tests.kits.waiting import until


def judged(capturing: Capturing, cause: str) -> None:
    """`a` stopped behind its first row, whatever came later; `b` in the same transactions went on."""
    assert capturing.values("a") == {"before"}
    capturing.stopped("a", cause)
    assert capturing.notified() == {f"{capturing.db}.a"}
    assert {"same", "later"} <= capturing.values("b")
    replay(capturing.events("b"))


LATER = (
    "INSERT INTO a VALUES (7, 'later')", "INSERT INTO b VALUES (7, 'later')",
)  # fmt: skip


def test_a_minimal_image_stops_its_table_only(capturing: Capturing) -> None:
    capturing.run("INSERT INTO a VALUES (1, 'before')")
    capturing.run(
        "SET SESSION binlog_row_image = MINIMAL", "BEGIN", "INSERT INTO b VALUES (2, 'same')",
        "UPDATE a SET v = 'lost' WHERE id = 1", "INSERT INTO b VALUES (3, 'same')", "COMMIT",
        "SET SESSION binlog_row_image = FULL", *LATER,
    )  # fmt: skip
    capturing.run("INSERT INTO a VALUES (8, 'later')")
    judged(capturing, "log")


def test_a_partial_document_stops_its_table_only(
    kafka: Kafka, mysql: MySQL, mysql_db: str, tmp_path: Path
) -> None:
    capturing = Capturing(kafka, mysql, mysql_db, tmp_path)
    capturing.change("ALTER TABLE a ADD COLUMN doc JSON")
    document = "JSON_OBJECT('a', 1, 'b', REPEAT('x', 1000))"
    capturing.run(f"INSERT INTO a VALUES (1, 'before', {document})")
    capturing.run(
        "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'", "BEGIN", "INSERT INTO b VALUES (2, 'same')",
        "UPDATE a SET doc = JSON_SET(doc, '$.a', 2)", "INSERT INTO b VALUES (3, 'same')", "COMMIT",
        "SET SESSION binlog_row_value_options = ''",
        f"INSERT INTO a VALUES (7, 'later', {document})", "INSERT INTO b VALUES (7, 'later')",
    )  # fmt: skip
    judged(capturing, "log")


def test_images_of_tables_that_nobody_captures_do_not_matter(capturing: Capturing) -> None:
    capturing.change(
        "CREATE TABLE other (id INT PRIMARY KEY, t TEXT, j JSON, p POINT)",
        "INSERT INTO other VALUES (1, 'x', JSON_OBJECT('a', 1, 'b', REPEAT('x', 1000)), POINT(1, 2))",
    )
    partial = "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'"
    capturing.run(
        "SET SESSION binlog_row_image = MINIMAL",
        *([] if capturing.database.kind == "MariaDB" else [partial]),
        "BEGIN", "UPDATE other SET j = JSON_SET(j, '$.a', 2), t = 'y'", "UPDATE other SET t = 'z'",
        "DELETE FROM other", "INSERT INTO other (id) VALUES (1), (2)", "SET SESSION binlog_row_image = FULL",
        "INSERT INTO a VALUES (1, 'kept')", "COMMIT",
        patterns=("a", "b"),
    )  # fmt: skip
    assert capturing.values("a") == {"kept"}
    assert capturing.notified() == set()


USER_DEFINED = {"undecodable": "qqE="}


@pytest.mark.parametrize("snapshot", ["never", "initial"])
def test_a_value_that_is_no_text_is_published_raw_and_marked(
    kafka: Kafka, database: Any, db: str, tmp_path: Path, snapshot: str
) -> None:
    """One value of gbk's user-defined area ended capture of the source for good; a snapshot made a question
    mark of it."""
    capturing = Capturing(kafka, database, db, tmp_path, snapshot=snapshot)
    capturing.change(
        "CREATE TABLE g (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET gbk, w CHAR(9) CHARACTER SET latin1)"
    )
    changes = ("INSERT INTO g VALUES (1, '王', 'é'), (2, x'AAA1', 'é'), (3, x'AAA1', NULL), (4, 'x', '')",)
    if snapshot == "initial":
        capturing.change(*changes)
        changes = ()
    capturing.run(*changes, "UPDATE g SET v = 'mended' WHERE id = 3", "DELETE FROM g WHERE id = 4")
    until(
        lambda: (
            replay(capturing.events("g")).tables[db, "g"].keys() == {(1,), (2,), (3,)}
            or capturing.run()
            or False
        ),
        "all of g, also where the run ended before the snapshot",
    )
    found = replay(capturing.events("g"))
    # By key: whether a snapshot's rows or the changes come first is a matter of time.
    assert found.tables[db, "g"] == {
        (1,): {"id": 1, "v": "王", "w": "é"},
        (2,): {"id": 2, "v": USER_DEFINED, "w": "é"},
        (3,): {"id": 3, "v": "mended", "w": None},
    }
    marked = {(event.op in "cr", event.undecodable) for event in found.accepted if event.undecodable}
    assert (True, Undecodable(after=("v",))) in marked
    assert (False, Undecodable(before=("v",))) in marked
    assert capturing.notified() == set()


@pytest.mark.parametrize("snapshot", ["never", "initial"])
def test_a_value_that_is_no_geometry_is_published_raw_and_marked(
    kafka: Kafka, mariadb: Any, unique: str, tmp_path: Path, snapshot: str
) -> None:
    """MariaDB gives existing rows an empty value of a new POINT NOT NULL, which ended a snapshot.

    In the log it got bytes of the next columns.
    """
    mariadb.create_database(unique)
    capturing = Capturing(kafka, mariadb, unique, tmp_path, snapshot=snapshot)
    capturing.change(
        "CREATE TABLE g (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO g VALUES (1, 'x'), (2, 'y')"
    )
    capturing.change("ALTER TABLE g ADD COLUMN p POINT NOT NULL AFTER id")
    capturing.run("UPDATE g SET v = CONCAT(v, 'z')", "UPDATE g SET p = POINT(1, 2) WHERE id = 2")

    def rows() -> dict[Any, Any]:
        return replay(capturing.events("g")).tables.get((unique, "g"), {})

    until(lambda: len(rows()) == 2 or capturing.run() or False, "both rows")
    found = rows()
    assert found[1,] == {"id": 1, "p": {"undecodable": ""}, "v": "xz"}
    assert found[2,]["p"]["srid"] == 0
    assert capturing.notified() == set()
    mariadb.drop_database(unique)


@pytest.mark.parametrize("snapshot", ["never", "initial"])
def test_a_key_that_is_no_text_stops_its_table(
    kafka: Kafka, database: Any, db: str, tmp_path: Path, snapshot: str
) -> None:
    capturing = Capturing(kafka, database, db, tmp_path, snapshot=snapshot)
    capturing.change("CREATE TABLE g (v VARCHAR(20) CHARACTER SET gbk PRIMARY KEY)")
    insert = "INSERT INTO g VALUES ('a'), (x'AAA1')"
    if snapshot == "initial":
        others = ("z1", "z2", "z3", "z4")  # more tables than are read at once
        for name in others:
            capturing.change(
                f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20))",
                f"INSERT INTO {name} VALUES (1, 'x')",
            )
        capturing.change(insert)
        capturing.run()
        until(
            lambda: all(capturing.values(name) for name in others) or capturing.run() or False,
            "the other tables",
        )
    else:
        capturing.run(insert)
    until(lambda: any(e.stop for e in capturing.events("g")) or capturing.run() or False, "the stop")
    capturing.stopped("g", "value")


def test_a_row_that_kafka_does_not_take_stops_its_table_only(capturing: Capturing) -> None:
    capturing.change("CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(20), x MEDIUMTEXT, y MEDIUMTEXT)")
    capturing.run("INSERT INTO big VALUES (1, 'before', 'x', 'y')")
    capturing.run(
        "BEGIN", "INSERT INTO big VALUES (3, 'before', '', '')", "INSERT INTO b VALUES (2, 'same')",
        "INSERT INTO big VALUES (2, 'lost', REPEAT('x', 9000000), REPEAT('y', 9000000))",
        "INSERT INTO b VALUES (3, 'same')", "COMMIT", "INSERT INTO big VALUES (7, 'later', '', '')",
    )  # fmt: skip
    capturing.run("INSERT INTO big VALUES (8, 'later', '', '')", "INSERT INTO b VALUES (7, 'later')")
    assert capturing.values("big") == {"before"}
    capturing.stopped("big", "size")
    assert {"same", "later"} <= capturing.values("b")


def test_a_snapshot_row_that_kafka_does_not_take_stops_its_table_only(
    kafka: Kafka, database: Any, db: str, tmp_path: Path
) -> None:
    capturing = Capturing(kafka, database, db, tmp_path, snapshot="initial")
    capturing.change(
        "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(20), x MEDIUMTEXT, y MEDIUMTEXT)",
        "INSERT INTO big VALUES (2, 'lost', REPEAT('x', 9000000), REPEAT('y', 9000000))",
        "INSERT INTO a VALUES (1, 'before')",
    )
    capturing.run_until(
        lambda: any(e.stop for e in capturing.events("big")), "the stop at the snapshot's row"
    )
    capturing.run("INSERT INTO big VALUES (7, 'later', '', '')")
    assert capturing.values("big") == set()
    capturing.stopped("big", "size")
    assert capturing.values("a") == {"before"}


_CAUSES: dict[str, tuple[str, ...]] = {
    "log": ("SET SESSION binlog_row_image = MINIMAL", "UPDATE a SET v = 'lost'",
     "SET SESSION binlog_row_image = FULL"),
    "value": ("INSERT INTO a VALUES (2, 'lost', x'AAA1', '', '')",),
    "size": ("INSERT INTO a VALUES (2, 'lost', '2', REPEAT('x', 9000000), REPEAT('y', 9000000))",),
}  # fmt: skip


@pytest.mark.parametrize("cause", _CAUSES)
def test_a_stop_outlives_a_kill_before_it_is_stored(kafka: Kafka, capturing: Capturing, cause: str) -> None:
    """Kafka takes nothing while the cause is met, and capture is killed: neither topic nor record have the
    stop."""
    capturing.change(
        "ALTER TABLE a DROP PRIMARY KEY, ADD COLUMN g VARCHAR(9) CHARACTER SET gbk NOT NULL, ADD COLUMN x "
        "MEDIUMTEXT, ADD COLUMN y MEDIUMTEXT, ADD PRIMARY KEY (id, g)"
    )
    capturing.run("INSERT INTO a VALUES (1, 'before', '1', '', '')")
    gen = capturing._gen()
    with running(capturing.config(), "s") as unit:
        until(lambda: capturing._gen() > gen, f"a start; {unit.output()[-3000:]}", 200)
        kafka.process.pause()
        try:
            capturing.change(*_CAUSES[cause])
            until(lambda: "table stopped" in unit.output(), f"the stop; {unit.output()[-3000:]}", 200)
            unit.kill()
        finally:
            kafka.process.resume()
    capturing.change("INSERT INTO a VALUES (7, 'later', '7', '', '')")
    capturing.run("INSERT INTO a VALUES (8, 'later', '8', '', '')")
    capturing.run("INSERT INTO a VALUES (9, 'later', '9', '', '')")
    assert capturing.values("a") == {"before"}
    capturing.stopped("a", cause)
    assert capturing.notified() == {f"{capturing.db}.a"}
