"""Columns that `columns:` leaves out, on real servers: snapshot, changes, statements on them, and a changed
option."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka
from schemas.wire.records import format_former_table_topic
from tests.capturing import Capturing
from tests.kits.capture import messages, replay, size, source_findings, source_rows, topic_rows

DOC = (
    "CREATE TABLE {db}.doc (scan LONGBLOB, id INT PRIMARY KEY, note VARCHAR(20), pdf LONGBLOB, n INT, "
    "UNIQUE KEY u (n))"
)
PUBLISHED = ["id", "note", "n"]


@pytest.fixture
def capturing(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> Capturing:
    """Capture without the columns `scan` and `pdf` of `doc`, with snapshots."""
    made = Capturing(kafka, database, db, tmp_path, snapshot="initial")
    leave_out(made, "scan", "pdf")
    database.execute(DOC.format(db=db))
    return made


def leave_out(capturing: Capturing, *columns: str) -> None:
    capturing.options["columns"] = {f"{capturing.db}.doc": {"leave_out": [*columns]}} if columns else {}


def rows(capturing: Capturing) -> list[tuple[Any, ...]]:
    return topic_rows(replay(capturing.events("doc")), capturing.db, "doc", PUBLISHED)


def expect_source_rows(capturing: Capturing) -> None:
    assert rows(capturing) == source_rows(capturing.database, capturing.db, "doc", ", ".join(PUBLISHED))


def topic_of(capturing: Capturing) -> str:
    return format_former_table_topic(capturing.db, "s", capturing.db, "doc")


def text_of(capturing: Capturing) -> str:
    """Return all values and keys of the topic, without the statements."""
    topic = topic_of(capturing)
    found = [json.loads(each.value()) for each in messages(capturing.kafka.bootstrap, topic)]
    return json.dumps([{**each, "ddl": None, "left_out": None} for each in found])


def test_left_out_columns_are_nowhere_in_the_topic(capturing: Capturing) -> None:
    capturing.change(
        "INSERT INTO doc VALUES (REPEAT('s', 300), 1, 'snapshot', NULL, 1)",
        "INSERT INTO doc VALUES (NULL, 2, NULL, REPEAT('p', 300), 2)",
    )
    capturing.run(
        "INSERT INTO doc VALUES (REPEAT('s', 70000), 3, 'log', 'p', NULL), (NULL, 4, 'log', NULL, 4)",
        "UPDATE doc SET note = 'changed' WHERE id IN (1, 3)",
        "UPDATE doc SET scan = 'only this' WHERE id = 4",
        "DELETE FROM doc WHERE id = 2",
    )
    expect_source_rows(capturing)
    text = text_of(capturing)
    for name in ("scan", "pdf", "c3M", "cHB"):  # the names, and base64 of the values
        assert name not in text
    only = [each for each in capturing.events("doc") if each.op == "u" and each.before == each.after]
    assert len(only) == 1, "an update of left-out columns has an event like any other"


def test_statements_on_left_out_columns_are_followed(capturing: Capturing) -> None:
    leave_out(capturing, "scan", "pdf", "extra", "Renamed")
    capturing.run("INSERT INTO doc VALUES ('s', 1, 'one', 'p', 1)")
    for number, statement in enumerate(
        (
            "ADD COLUMN extra BLOB FIRST",
            "MODIFY scan MEDIUMBLOB",
            "CHANGE pdf renamed LONGBLOB",
            "DROP COLUMN extra",
            "MODIFY scan LONGBLOB AFTER note",
            "ADD COLUMN more INT DEFAULT 7",
            "DROP COLUMN scan",
        ),
        start=2,
    ):
        capturing.run(f"ALTER TABLE doc {statement}", f"INSERT INTO doc (id, note) VALUES ({number}, 'row')")
    found = replay(capturing.events("doc")).tables[capturing.db, "doc"]
    assert {(row["id"], row["note"]) for row in found.values()} == set(
        source_rows(capturing.database, capturing.db, "doc", "id, note")
    )
    effects = [(each.ddl, each.effect) for each in capturing.events("doc") if each.ddl is not None]
    assert {effect for ddl, effect in effects if "more" not in ddl and "CREATE" not in ddl} == {"kept"}
    assert capturing.notified() == set()


def test_column_that_is_renamed_out_of_the_option_is_published_with_unknown_values(
    capturing: Capturing,
) -> None:
    capturing.run("INSERT INTO doc VALUES ('s', 1, 'one', 'p', 1)")
    capturing.run(
        "ALTER TABLE doc CHANGE pdf paper LONGBLOB", "INSERT INTO doc VALUES ('s', 2, 'two', 'q', 2)"
    )
    (changed,) = [each for each in capturing.events("doc") if each.ddl is not None and "paper" in each.ddl]
    assert (changed.effect, changed.columns) == (None, None), "a reader must copy the table"


@pytest.mark.parametrize("now", [("scan",), ("scan", "pdf", "note"), ()])
def test_changed_option_stops_the_table_until_it_is_copied(
    capturing: Capturing, now: tuple[str, ...]
) -> None:
    capturing.run("INSERT INTO doc VALUES ('s', 1, 'one', 'p', 1)")
    leave_out(capturing, *now)
    capturing.run("INSERT INTO doc VALUES ('s', 2, 'two', 'p', 2)")
    capturing.stopped("doc", "columns")
    assert len(rows(capturing)) == 1
    assert capturing.notified() == {f"{capturing.db}.doc"}


def test_check_names_columns_that_cannot_be_left_out_or_are_not_there(capturing: Capturing) -> None:
    leave_out(capturing, "scan", "typo")
    found = source_findings(capturing.config())
    assert [(each.level, "has a column typo" in each.message) for each in found] == [("warning", True)]
    leave_out(capturing, "N")
    found = source_findings(capturing.config())
    assert [each.level for each in found] == ["error"]
    assert "column n belongs to its unique index u" in found[0].message
    capturing.run()
    assert size(capturing.kafka.bootstrap, topic_of(capturing)) == 0
