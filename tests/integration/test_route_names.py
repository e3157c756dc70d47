"""Columns that a target cannot have by their names, from a source to PostgreSQL and MySQL: by a route's
`rename`, also when the source and the route change. The judge is the full comparison of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.whole_run import PATIENCE_S, Target, WholeRun, whole_run
from tests.topics.records import whole_topic

pytestmark = pytest.mark.timeout(1800)

LONG = "a" * 64
"""A name that PostgreSQL would cut."""
RENAMES = {"ctid": "ctid_", "xmin": "xmin_", LONG: "short"}
COLUMNS = ("ctid", "xmin", LONG, "note")
CREATE = (
    f"CREATE TABLE acct (ctid INT AUTO_INCREMENT PRIMARY KEY, xmin VARCHAR(20) UNIQUE, {LONG} INT, "
    "note VARCHAR(20))"
)


@pytest.fixture
def system(
    tmp_path: Path, kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, mysql: MySQL, unique: str
) -> Iterator[WholeRun]:
    pipelines = {
        name: {
            "sources": ["b1"], "target": name, "lanes": 3, "schema_changes": "evolve",
            "routes": [{"from": f"{unique}.*", "to": f"{place}.{{table}}"}],
        }
        for name, place in {"pg": "public", "my": unique}.items()
    }  # fmt: skip
    targets: dict[str, Target] = {"pg": postgres, "my": mysql}
    with whole_run(tmp_path, unique, kafka, {"b1": mariadb}, targets, pipelines) as made:
        options = {"format": "plain", "key": ["ctid"], "columns": ["ctid", "note"]}
        options |= {"where": {"note": ["n3", "n4", "later"]}, "masks": {"note": "***"}}
        route = {"from": f"{unique}.*", "to": f"out{unique}.{{table}}", "kafka": options}
        made.parts["targets"]["out"] = {"type": "kafka", "bootstrap": kafka.bootstrap}
        made.parts["pipelines"]["out"] = {"sources": ["b1"], "target": "out", "routes": [route]}
        made.write_parts()
        yield made


def rename(system: WholeRun, *pipelines: str, **renames: str) -> None:
    for name in pipelines or system.parts["pipelines"]:
        system.parts["pipelines"][name]["routes"][0]["rename"] = {"columns": renames}
    system.write_parts()


def equal(system: WholeRun, columns: tuple[str, ...], **renames: str) -> None:
    """Await that both targets have the rows of the source, all of them, under the route's names."""
    rows = system.read_source("b1", f"SELECT {', '.join(columns)} FROM acct ORDER BY ctid")
    names = [renames.get(each, each) for each in columns]
    there = f"SELECT {', '.join(names)} FROM acct ORDER BY {renames['ctid']}"
    system.arrives(there, rows)


def test_names_that_a_target_cannot_have_are_others_there(system: WholeRun) -> None:
    """One life of a system: each step begins with what the one before it has left."""
    system.change("b1", CREATE, *(f"INSERT INTO acct VALUES ({n}, 'x{n}', {n}, 'n{n}')" for n in range(1, 9)))
    names_are_reported(system)
    rename(system, **RENAMES)
    assert system.invoke("check").exit_code == 0
    system.run.start()
    equal(system, COLUMNS, **RENAMES)
    records_have_the_names_of_the_route(system, "ctid_", "note")
    changes_of_keys_and_unique_values_arrive(system)
    renames_at_the_source_are_followed(system)
    a_changed_route_copies_the_table(system)
    a_row_in_quarantine_is_written_under_the_name_of_the_target(system)
    both_ends_are_equal(system)


def records_have_the_names_of_the_route(system: WholeRun, *names: str) -> None:
    """The route's other settings have the source's names: its key, its columns, its rows and its masks."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        records = whole_topic(system.parts["kafka"]["bootstrap"], f"out{system.db}.acct")
        found[:] = [json.loads(each.value) for each in records if each.value]
        return any(set(each) == {*names} for each in found)

    system.run.until(is_there, "records under the route's names", PATIENCE_S)
    assert {each["note"] for each in found} == {"***"}


def names_are_reported(system: WholeRun) -> None:
    found = system.invoke("check")
    assert found.exit_code == 1
    assert "column ctid: every table of PostgreSQL has a system column ctid" in found.output
    assert "rename: {columns: {COLUMN: NAME}}" in found.output
    rename(system, **RENAMES, ctdi="x")
    found = system.invoke("check", "--output", "json")
    assert found.exit_code == 0, "its column may come later"
    assert "has a column 'ctdi'" in found.output
    assert "write 'ctid'" in found.output


def changes_of_keys_and_unique_values_arrive(system: WholeRun) -> None:
    """Before-images have the key, by which a row is deleted, and the unique value that it gives up."""
    system.change(
        "b1",
        "DELETE FROM acct WHERE ctid = 1",
        "UPDATE acct SET ctid = 20 WHERE ctid = 2",
        "UPDATE acct SET xmin = NULL WHERE ctid = 3",
        "UPDATE acct SET xmin = 'x3' WHERE ctid = 4",
        f"UPDATE acct SET {LONG} = 77, note = 'later' WHERE ctid = 5",
        "INSERT INTO acct VALUES (1, 'x1', NULL, NULL)",
        "DELETE FROM acct WHERE ctid = 6",
    )
    equal(system, COLUMNS, **RENAMES)


def renames_at_the_source_are_followed(system: WholeRun) -> None:
    system.change(
        "b1", "ALTER TABLE acct CHANGE xmin x VARCHAR(20)", "UPDATE acct SET x = 'b' WHERE ctid = 7"
    )
    equal(system, ("ctid", "x", LONG, "note"), **RENAMES)
    system.change(
        "b1", "ALTER TABLE acct CHANGE x xmin VARCHAR(20)", "UPDATE acct SET xmin = 'c' WHERE ctid = 8"
    )
    equal(system, COLUMNS, **RENAMES)
    system.change(
        "b1",
        f"ALTER TABLE acct DROP COLUMN {LONG}, ADD COLUMN {LONG} INT",
        f"UPDATE acct SET {LONG} = 1 WHERE ctid = 8",
    )
    equal(system, COLUMNS, **RENAMES)
    assert not system.status()["problems"], "no copy was needed"


def a_changed_route_copies_the_table(system: WholeRun) -> None:
    rename(system, "pg", "my", **{**RENAMES, "ctid": "number", "xmin": "unique_name"})
    plan = system.invoke("check", "--plan").output
    assert "column ctid from ctid_ to number, xmin from xmin_ to unique_name" in plan
    assert system.invoke("reload").exit_code == 0
    equal(system, COLUMNS, ctid="number", xmin="unique_name", **{LONG: "short"})
    system.change("b1", "DELETE FROM acct WHERE ctid = 8", "INSERT INTO acct (ctid, xmin) VALUES (30, 'x30')")
    equal(system, COLUMNS, ctid="number", xmin="unique_name", **{LONG: "short"})
    for target in system.targets:
        assert system.read(target, "SELECT ctid_ FROM acct") is None, "the column itself got the new name"


def a_row_in_quarantine_is_written_under_the_name_of_the_target(system: WholeRun) -> None:
    narrow = "ALTER TABLE acct ALTER COLUMN unique_name TYPE varchar(6)"
    system.targets["pg"].execute(narrow, database=system.db)
    system.change("b1", "INSERT INTO acct (ctid, xmin) VALUES (31, 'longer than six')")
    held: list[dict[str, Any]] = []

    def is_held() -> bool:
        held[:] = json.loads(system.invoke("quarantine", "list", "--output", "json").stdout)["held"]
        return bool(held)

    system.run.until(is_held, "the row that does not fit", PATIENCE_S)
    system.targets["pg"].execute(narrow.replace("6", "20"), database=system.db)
    assert system.invoke("quarantine", "retry", "--key", held[0]["key"]).exit_code == 0
    equal(system, COLUMNS, ctid="number", xmin="unique_name", **{LONG: "short"})


def both_ends_are_equal(system: WholeRun) -> None:
    compared = system.invoke("verify")
    assert compared.exit_code == 0, compared.output
