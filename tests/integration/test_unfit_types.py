"""A new type that the column of a real target cannot take, under `lenient`: its table stops, its neighbours
flow, and the copy repairs it."""

from __future__ import annotations

import pytest

from consumer.tables.router import TableRoute
from schemas.problems import decode_problem
from tests.kits.attempts import Real, reals
from tests.kits.changed_definitions import TABLE
from tests.kits.evolving import notify
from tests.kits.killed_stories import Case, RealStory
from tests.kits.targets import KINDS

real = reals(*KINDS)

UNFIT = Case(lambda tale: notify(tale, "copy with another type"), "lenient")
"""`version`, a number, becomes a text."""


def change_type(tale: RealStory) -> None:
    """A person gives the target's column the type of the source's."""
    real, table = tale.unit.real, f"{tale.table.db}.{tale.table.name}"
    if real.target.kind == "postgres":
        real.execute(f"ALTER TABLE {table} ALTER version TYPE varchar(20) USING version::varchar")
    else:
        real.execute(f"ALTER TABLE {table} MODIFY version VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL")


@pytest.mark.parametrize("remedy", ["by hand", "evolve", "back at the source", "target table dropped"])
def test_a_type_that_does_not_fit_stops_its_table_until_the_copy_can_write_it(
    real: Real, remedy: str
) -> None:
    tale, neighbour = (
        RealStory.begun(real, 1, UNFIT),
        RealStory.begun(real, 2, Case(lambda _: None, "lenient")),
    )
    before, rows = tale.table, tale.target_rows()
    report = tale.unit.apply()
    assert report.state == "stopped"
    problem = decode_problem(report.message)
    evidence, todo = problem.what, problem.action
    assert "column version is int in the target and varchar at the source" in evidence
    assert todo.startswith("set `schema_changes: evolve`, or change its type in the target by hand")
    assert (tale.table, tale.target_rows()) == (before, rows), "nothing is altered or written"
    neighbour.put(7, version=70)
    assert neighbour.unit.apply().state == "ok"
    assert neighbour.target_rows() == neighbour.rows
    if remedy == "by hand":
        change_type(tale)
    elif remedy == "evolve":
        [route] = tale.unit.routes
        tale.unit.routes = (TableRoute(route.from_, route.to, route.add, "evolve"),)
    elif remedy == "target table dropped":
        real.execute(f"DROP TABLE {before.db}.{before.name}")
        tale.copy(tale.source.table)
    else:
        tale.rows = {key: {**row, "version": 3} for key, row in tale.rows.items()}
        tale.copy(TABLE)
    tale.unit.take_over()
    report = tale.unit.apply(len(tale.unit.topic) - 1)
    assert report.state == "ok", report.message
    assert tale.target_rows() == tale.rows
    assert sorted(tale.table.column_names) == sorted(TABLE.column_names), "there is no second column"
