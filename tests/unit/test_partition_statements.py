"""The page of statements on partitions is what the code decides, and what each kind of target does.
What the statements do on servers: tests/integration/test_statement_rows.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consumer.attempt.reports import CopyNeed
from consumer.tables.stored import decode_stored
from producer.statements.actions import ACTIONS
from schemas.table.model import Kind
from tests.kits.apply import FakeSource
from tests.kits.copy import CopyOf
from tests.kits.unit_apply import rows_of
from tests.kits.unit_copies import CopyBench
from tools.docs.partition_statements import STATEMENTS, list_rows, render
from tools.docs.partition_targets import (
    COPY,
    KEPT,
    OUTCOMES,
    PASSES,
    SWEEP,
    TARGETS,
    TargetForm,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "partition-statements.md"
_NOT_THERE = "UPGRADE PARTITIONING"
"""Of tables that a server before MySQL 5.7 created: the servers that are supported refuse it."""
DATABASES = [each for each in TARGETS if each.route.topic is None and not each.batches]


def test_the_page_is_what_the_code_decides() -> None:
    assert PAGE.read_text() == render(), (
        "run: python -m tools.docs.partition_statements > docs/reference/partition-statements.md"
    )


def test_every_action_on_partitions_is_on_the_page() -> None:
    named = {" ".join(each.action.split()[:2]) for each in STATEMENTS}
    known = {each.words for each in ACTIONS if "PARTITION" in each.words} - {_NOT_THERE}
    assert named == known | {"REORGANIZE PARTITION", "CONVERT TABLE", "DISCARD PARTITION"}


def test_every_outcome_is_on_the_page() -> None:
    found = {target.decide(row.effect) for target in TARGETS for row in list_rows()}
    assert found == OUTCOMES.keys() == {PASSES, SWEEP, KEPT, COPY}


class KeyedSource(FakeSource):
    """A source of a target's table; its key is a number or a text of one digit."""

    def row(self, key: int, email: str | None, version: int, note: str = "") -> dict[str, Any]:
        number = self.table.get_column("id").type.kind is Kind.INT
        return {"id": key if number else str(key), "v": email}


def fill(form: TargetForm) -> tuple[CopyBench, KeyedSource]:
    """Return a unit of a target with the rows 0 to 7, and its source."""
    bench = CopyBench(routes=(form.route,))
    bench.target.tables["public.t"] = form.target
    source = KeyedSource(form.source)
    bench.write([source.definition()])
    bench.write([source.put(source.row(key, "x", 1)) for key in range(8)])
    assert bench.apply().state == "ok"
    return bench, source


@pytest.mark.parametrize("form", DATABASES, ids=[each.name for each in DATABASES])
def test_each_kind_of_database_handles_removed_rows_as_documented(form: TargetForm) -> None:
    bench, source = fill(form)
    outcome, at = form.decide("removes"), len(bench.topic)
    bench.write([source.remove_rows(0, 1, 7)])
    report = bench.apply()
    if outcome == COPY:
        assert (report.state, report.copy) == ("stopped", CopyNeed(at, "rows-replaced"))
        return
    assert (report.state, len(bench.target.rows_of("public.t"))) == ("ok", 8)
    number = form.source.get_column("id").type.kind is Kind.INT
    sweep = CopyOf(source, bench.topic, keys=True, id="sweep-1", value=int if number else str)
    sweep.begin()
    sweep.emit()  # the keys 2, 3, 4
    assert bench.apply().state == "ok"
    assert decode_stored(bench.target.state.unit.definition or "").sweep_since is not None
    by_ranges = outcome == SWEEP and form.resolve().shown_alike
    assert len(bench.target.rows_of("public.t")) == (6 if by_ranges else 8)
    while not sweep.done:
        sweep.emit()
    assert bench.apply().state == "ok"
    left = 8 if outcome == KEPT else 5
    assert len(bench.target.rows_of("public.t")) == left
    assert len(bench.target.state.kept) == 8 - 5 if outcome == KEPT else not bench.target.state.kept
    assert outcome == KEPT or bench.target.rows_of("public.t") == rows_of(source)
