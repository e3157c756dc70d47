"""What a change logged as a statement may reach: through views, triggers, routines and keys; and that doubt
is never no."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.statements.closure import find_impacted_tables
from producer.statements.tokens import tokenize_sql
from schemas.table.names import NameRules, TableName
from tests.kits.barriers import ACCT, CHILD, LOG, PARENT, Seen, Source, source

CAPTURED = frozenset([ACCT, CHILD])


def reached(sql: str, objects: Source | None = None, db: str = "bank") -> set[TableName] | None:
    """The captured tables that may be written; None: nobody knows."""
    tables = find_impacted_tables(tokenize_sql(sql), db, objects or source()).tables
    return None if tables is None else set(tables & CAPTURED)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("INSERT INTO acct VALUES (1)", {ACCT}),
        ("INSERT acct (id) VALUES (1)", {ACCT}),
        ("INSERT LOW_PRIORITY IGNORE INTO `bank`.`acct` SELECT * FROM log", {ACCT}),
        ("REPLACE bank . acct VALUES (1)", {ACCT}),
        ("UPDATE log l JOIN acct a ON l.id = a.id SET l.x = 1", {ACCT}),
        ("UPDATE (log, acct) SET x = 1", {ACCT}),
        ("DELETE FROM acct WHERE id = 1", {ACCT}),
        ("DELETE a FROM acct AS a JOIN log", {ACCT}),
        ("DELETE FROM a USING acct AS a", {ACCT}),
        ("WITH x AS (SELECT 1) DELETE FROM acct", {ACCT}),
        ("LOAD DATA INFILE 'x' REPLACE INTO TABLE acct FIELDS TERMINATED BY ','", {ACCT}),
        ("LOAD DATA LOCAL INFILE 'x' INTO TABLE `acct` (id, n)", {ACCT}),
        ("TRUNCATE acct", {ACCT}),
        ("INSERT INTO v VALUES (1)", {ACCT}),
        ("DELETE FROM deep", {ACCT}),
        ("SELECT * FROM deep", {ACCT}),
        ("INSERT INTO traced VALUES (1)", {ACCT}),
        ("INSERT INTO log VALUES (bank.f(1))", {ACCT}),
        ("SELECT `bank`.`f`(1)", {ACCT}),
        ("DO F(1)", {ACCT}),
        ("CALL p()", {CHILD}),
        ("CALL bank.p", {CHILD}),
        ("UPDATE parent SET id = 2", {CHILD}),
        ("INSERT INTO log VALUES (1) ON DUPLICATE KEY UPDATE acct = 1", set()),
        ("INSERT INTO log (acct) SELECT acct.n FROM acct", set()),
        ("INSERT INTO log VALUES ('acct', pure(1), NOW(), unheard_of(2))", set()),
        ("INSERT INTO other.acct VALUES (1)", set()),
        ("UPDATE log SET x = REPLACE(x, 'a', 'b'), y = INSERT(y, 1, 2, 'acct')", set()),
        ("DELETE FROM log WHERE id IN (SELECT id FROM acct)", set()),
        ("DELETE FROM log LIMIT 1", set()),
        ("INSERT INTO a_temporary_table SELECT * FROM acct", set()),
        ("SELECT * FROM v FOR UPDATE", set()),
        ("CALL dynamic()", None),
        ("SELECT dynamic ()", None),
    ],
)
def test_reach(sql: str, tables: set[TableName] | None) -> None:
    assert reached(sql) == tables


def test_names_are_those_of_the_current_database() -> None:
    assert reached("INSERT INTO acct VALUES (1)", db="other") == set()
    assert reached("INSERT INTO bank.acct VALUES (1)", db="other") == {ACCT}
    assert reached("SELECT f(1)", db="other") == set()


def test_names_compare_as_the_server_compares_them() -> None:
    found = find_impacted_tables(
        tokenize_sql("INSERT INTO ACCT VALUES (1)"), "Bank", source(), NameRules(folds=True)
    ).tables
    assert found is not None
    assert ACCT in found
    assert reached("INSERT INTO ACCT VALUES (1)") == set()


@pytest.mark.parametrize("hidden", ["tables", "triggers", "keys"])
def test_what_is_hidden_leaves_no_answer(hidden: str) -> None:
    found = find_impacted_tables(
        tokenize_sql("INSERT INTO log VALUES (1)"), "bank", source(visibility=Seen((hidden,)))
    )
    assert found.tables is None
    assert "GRANT" in found.why


def test_hidden_routines_matter_where_something_is_called() -> None:
    hidden = source(visibility=Seen(("routines",)))
    assert reached("INSERT INTO log (a, b) VALUES (NOW(), CONCAT('a', 'b'))", hidden) == set()
    assert reached("INSERT INTO log VALUES (unheard_of(1))", hidden) is None
    assert reached("CALL p()", hidden) is None


def test_bodies_that_are_not_shown_leave_no_answer() -> None:
    blind = source(views={("bank", "v"): None}, routines={("bank", "f"): None})
    assert reached("INSERT INTO v VALUES (1)", blind) is None
    assert reached("SELECT f(1)", blind) is None
    assert reached("INSERT INTO log VALUES (1)", blind) == set()


def test_circles_end() -> None:
    circle = source(
        triggers={LOG: (("bank", "INSERT INTO traced VALUES (1)"),),
         ("bank", "traced"): (("bank", "DELETE FROM log"),)},
        cascades={PARENT: frozenset([PARENT, CHILD]), CHILD: frozenset([PARENT])},
        routines={("bank", "f"): "RETURN f(1)"},
    )  # fmt: skip
    assert reached("INSERT INTO log VALUES (f(1))", circle) == set()
    assert reached("DELETE FROM parent", circle) == {CHILD}


@given(st.text(max_size=60), st.text(alphabet="UPDATE INSERT(),.;`'\"tacv SET", max_size=40))
def test_anything_gets_an_answer(free: str, near: str) -> None:
    find_impacted_tables(tokenize_sql(free), "bank", source())
    find_impacted_tables(tokenize_sql(near), "bank", source())


_BLANKS = st.sampled_from([" ", "\n", " /* x */ ", "\t-- y\n", "/*!50000 IGNORE */ "])


@given(_BLANKS, _BLANKS, st.sampled_from(["acct", "`acct`", "bank.acct", "`bank` . `acct`", "bank./**/acct"]))
def test_a_written_table_is_found_however_it_is_spelt(one: str, two: str, table: str) -> None:
    assert reached(f"INSERT{one}INTO{two}{table} VALUES (1)") == {ACCT}


@pytest.mark.parametrize("mark", ["'\\'", "'it\\'s'"])
def test_a_body_is_read_as_either_sql_mode_reads_it(mark: str) -> None:
    """Under NO_BACKSLASH_ESCAPES the first string ends where otherwise it would go on, and hide the
    statement."""
    body = f"BEGIN SET @x = {mark}; INSERT INTO acct VALUES (1); SET @y = 'z'; END"
    for more in ({"triggers": {LOG: (("bank", body),)}}, {"routines": {("bank", "f"): body}}):
        found = find_impacted_tables(tokenize_sql("INSERT INTO log VALUES (f(1))"), "bank", source(**more))
        assert found.tables is not None
        assert ACCT in found.tables
