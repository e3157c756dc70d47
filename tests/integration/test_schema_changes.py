"""Each row of docs/explanation/schema-changes.md on real servers: a statement at a source that is captured,
then each policy at each target.

Capture runs once for all statements, each on a table of its own; what is in the topics is applied by attempts
without Spark. The judge reads both ends whole, in wire values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consumer.attempt.reports import Report
from consumer.tables.evolution.decisions import (
    AdoptDefinition,
    KeepDefinition,
    NeedsCopy,
    SourceTableDropped,
    StopForPerson,
)
from consumer.tables.router import SchemaChangePolicy
from schemas.wire.codec import decode_event
from tests.capturing import Capturing
from tests.kits.attempts import Played, Real, TopicUnit, reals_apart
from tests.kits.targets import KINDS
from tools.docs.schema_changes import NARROW, Statement, cell, decided

Changed = dict[str, Any]


@pytest.fixture
def played(capturing: Capturing, database: Any) -> Played:
    capturing.options["snapshot"] = "initial"
    return Played(capturing, "mariadb" if type(database).__name__ == "MariaDB" else "mysql")


def test_capture_says_of_each_statement_what_the_page_rests_on(played: Played) -> None:
    for name, statement in played.names.items():
        found = [decode_event(raw) for _, raw in played.raw[name + statement.makes] if raw is not None]
        defined = [event for event in found if event.op == "m" and event.ddl is not None]
        stops = [event.stop.cause for event in found if event.stop is not None]
        if statement.stop is not None:
            assert set(stops) == {statement.stop}, statement.sql  # each start repeats it
            continue
        assert not stops, (statement.sql, stops)
        if statement.truncates:
            assert any(event.op == "t" for event in found)
        elif statement.removes:
            assert [event.ddl for event in found if event.op == "p"], statement.sql
        elif statement.after.columns or statement.columns:
            for event in defined[-1:]:
                assert set(event.definition.column_names if event.definition else ()) == set(
                    statement.after.column_names
                ), statement.sql
                assert event.columns == statement.columns or event.effect == statement.effect == "kept", (
                    statement.sql,
                    event.columns,
                )


real = reals_apart(*KINDS)


def test_each_statement_under_each_policy(played: Played, real: Real) -> None:
    """Each statement has the effect that the page documents, and where it promises that the target follows,
    the ends are equal."""
    wrong = []
    for policy in ("lenient", "evolve", "ignore", "stop"):
        for name, statement in played.names.items():
            made = name + statement.makes
            unit = TopicUnit(real, played, made, policy)  # type: ignore[arg-type]
            if statement.names:
                unit.map_columns(statement)
            report = unit.apply()
            why = outcome(played, unit, made, statement, policy, report)  # type: ignore[arg-type]
            if why is not None:
                wrong.append(f"{statement.sql} under {policy}: {why}")
    assert not wrong, "\n".join(wrong)


def outcome(
    played: Played,
    unit: TopicUnit,
    name: str,
    statement: Statement,
    policy: SchemaChangePolicy,
    report: Report,
) -> str | None:
    """Return what is not as the page says."""
    promised = cell(statement, policy)
    stays = statement.truncates or statement.removes
    verdict = KeepDefinition() if stays else decided(statement, policy)
    if isinstance(verdict, NeedsCopy | StopForPerson | SourceTableDropped) or promised.startswith(
        ("stops", "copy")
    ):
        if report.state != "stopped":
            return f"{report.state}, and the page says {promised}"
        copy = "rowlock copy" in report.message or promised.startswith("stops: ")
        return None if copy else report.message
    if report.state == "stopped" and NARROW in promised:
        return None if "cannot store every value" in report.message else report.message
    if report.state != "ok":
        return f"{report.state} {report.message}, and the page says {promised}"
    if report.held:
        return f"{report.held} rows were held"
    table, rows = played.rows(name)
    names = {**statement.names, **statement.renames}
    columns = [each for each in table.column_names if policy != "ignore" or unit.has(names.get(each, each))]
    at = [table.column_names.index(column) for column in columns]
    expected = sorted((tuple(row[i] for i in at) for row in rows), key=str)
    found = sorted(unit.target_rows(columns), key=str)
    if expected != found:
        return f"the source has {expected}, the target {found}"
    dropped = names.get("v", "v")
    missing = (
        "v" not in table.column_names and isinstance(verdict, AdoptDefinition) and not verdict.columns.renamed
        and dropped not in [names.get(each, each) for each in table.column_names]  # of another column now
    )  # fmt: skip
    if missing and unit.has(dropped) == (policy == "evolve"):
        return "the dropped column"
    return None


def test_the_page_is_what_the_code_decides() -> None:
    from tools.docs.schema_changes import written

    page = (Path(__file__).parents[2] / "docs" / "explanation" / "schema-changes.md").read_text()
    assert written(page) == page, "run python -m tools.docs.schema_changes docs/explanation/schema-changes.md"
