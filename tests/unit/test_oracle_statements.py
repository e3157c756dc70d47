"""What counts as a text of SQL in the code of Oracle's dialect, and as executed."""

from __future__ import annotations

from consumer.ordering.model import ApplyUnit
from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.oracle.dialect import SYNTAX
from consumer.targets.oracle.sql import build_oracle_plan, number_marks
from tests.kits.oracle_statements import EXEMPT, never_executed, texts
from tests.kits.targets import as_target, people

BOOKS, UNIT = Bookkeeping("rowlock", SYNTAX), ApplyUnit("p", "t")
PLAN = build_oracle_plan(as_target(people("bank")))


def lacking(*executed: str) -> set[str]:
    return {text.shown for text in never_executed(executed)}


def test_nothing_is_executed_by_nothing() -> None:
    assert lacking() == {text.shown for text in texts()} - EXEMPT.keys()
    assert len(lacking()) > 80


def test_a_statement_on_rows_is_none_on_the_books_and_the_other_way_round() -> None:
    rows, books = "DELETE FROM {…} WHERE {…}", "DELETE FROM {…rowlock_progress} WHERE {…}"
    deletes_lanes, _ = number_marks(BOOKS.lanes.build_delete(UNIT)[0])
    assert {rows, books} <= lacking()
    assert lacking(PLAN.delete) & {rows, books} == {books}
    assert lacking(deletes_lanes) & {rows, books} == {rows}


def test_parts_are_looked_for_in_statements() -> None:
    merge = lacking(str(PLAN.upsert))
    assert " WHEN MATCHED THEN UPDATE SET {…}" not in merge
    assert " WHEN MATCHED THEN UPDATE SET {…}" in lacking(str(PLAN.upsert).replace("WHEN MATCHED", "WHEN"))
    assert " FOR UPDATE WAIT " not in lacking(number_marks(BOOKS.lanes.build_select(UNIT, lock=True)[0])[0])


def test_a_literal_counts_as_a_default_alone() -> None:
    date = "DATE '{…}'"
    assert date in lacking("SELECT DATE '2020-01-01' FROM dual")
    assert date not in lacking("""ALTER TABLE "A"."B" ADD ("D" DATE DEFAULT DATE '2020-01-01' NOT NULL)""")


def test_what_is_exempt_is_not_executed() -> None:
    assert EXEMPT.keys() <= {text.shown for text in texts()}
    given = 'GRANT ALTER SYSTEM TO "ROWLOCK";'
    assert {text.shown for text in texts() if text.is_in(given)} & EXEMPT.keys() <= lacking(given)
