"""What is read of the catalog counts for a statement only if nothing that it rests on was changed since."""

from __future__ import annotations

from producer.definitions.index import EVERY_TABLE, OBJECTS, StatementIndex, TouchedTable
from producer.definitions.logged_statements import require_proven_impact
from producer.sources.source_objects import _join_bodies
from producer.statements.closure import ImpactedTables

LOG, ACCT = ("bank", "log"), ("bank", "acct")
FOUND = ImpactedTables(frozenset([LOG]))
AT, UNTIL = (3, 700), (3, 900)


def after(*statements: tuple[tuple[int, int], tuple[str, str]]) -> ImpactedTables:
    index = StatementIndex()
    for at, name in statements:
        index.add_statement(at, [TouchedTable(name)])
    return require_proven_impact(FOUND, frozenset([ACCT]), index, AT, UNTIL)


def test_nothing_was_changed_since() -> None:
    assert after() == FOUND
    assert after(((3, 600), LOG), ((3, 900), LOG), ((3, 800), ("bank", "other"))) == FOUND


def test_a_change_of_what_it_went_over_leaves_no_answer() -> None:
    for name in (LOG, OBJECTS, EVERY_TABLE, ("bank", "")):
        found = after(((3, 800), name))
        assert found.tables is None
        assert "was changed later" in found.why
        named = "a view, trigger or routine" if name == OBJECTS else "bank.log"
        assert name == EVERY_TABLE or f": {named} was changed later" in found.why


def test_a_captured_table_that_was_altered_since_may_have_had_a_cascading_key() -> None:
    assert after(((3, 800), ACCT)).tables == {LOG, ACCT}


def test_a_name_has_all_its_bodies() -> None:
    """A procedure and a function may have one name; a body that is not shown hides them all."""
    rows = [{"db": "b", "name": "x", "body": "one"}, {"db": "b", "name": "x", "body": "two"}]
    assert _join_bodies(rows) == {("b", "x"): ";\none;\ntwo"}
    assert _join_bodies([*rows, {"db": "b", "name": "x", "body": None}]) == {("b", "x"): None}
    assert _join_bodies([{"db": "b", "name": "x", "body": ""}, *rows]) == {("b", "x"): None}
