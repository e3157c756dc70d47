"""What statements do to rows: the allow-list, how its items join, and that what it does not know never
passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.binlog_format.log_event import LoggedStatement
from producer.statements.actions import ACTIONS
from producer.statements.ddl import TableDdl
from producer.statements.judgement import StatementVerdict, judge_statement
from producer.statements.statement import parse_statement

T = ("db", "t")


def judge(sql: str, *, escapes: bool = True) -> tuple[StatementVerdict, ...]:
    return judge_statement(parse_statement(LoggedStatement("db", sql, escapes)))


def verdicts(sql: str) -> dict[tuple[str, str], StatementVerdict]:
    return {each.table: each for each in judge(sql)}


def passes(sql: str, *, same: bool) -> bool:
    """Whether captured table `t` goes on behind the statement; `same`: its definition came out equal."""
    return not verdicts(sql)[T].must_stop(same_definition=same)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("DROP TABLE t", {T: "gone"}),
        ("DROP TABLE IF EXISTS t, x.u", {T: "gone", ("x", "u"): "gone"}),
        ("CREATE TABLE t (id INT)", {T: "kept"}),
        ("CREATE OR REPLACE TABLE t LIKE u", {T: "replaced"}),
        ("/*M!100301 CREATE OR REPLACE*/ TABLE t (a INT)", {T: "replaced"}),
        ("RENAME TABLE t TO t_old", {T: "gone", ("db", "t_old"): "kept"}),
        ("RENAME TABLE t TO old, new TO t", {T: "replaced", ("db", "old"): "kept", ("db", "new"): "gone"}),
        ("RENAME TABLE t TO x, u TO t, x TO u", {T: "replaced", ("db", "x"): "replaced", ("db", "u"): "replaced"}),  # noqa: E501
        ("ALTER TABLE t RENAME TO u", {T: "gone", ("db", "u"): "kept"}),
        ("ALTER TABLE t TRUNCATE PARTITION p0", {T: "removed"}),
        ("ALTER TABLE t DROP PARTITION p0, p1", {T: "removed"}),
        ("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE x.u WITHOUT VALIDATION", {T: "replaced", ("x", "u"): "replaced"}),  # noqa: E501
        ("ALTER TABLE t CONVERT PARTITION p0 TO TABLE x.u", {T: "removed", ("x", "u"): "replaced"}),
        ("ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES LESS THAN (9)", {T: "replaced", ("db", "u"): "gone"}),  # noqa: E501
        ("ALTER TABLE t DISCARD PARTITION p0 TABLESPACE", {T: "emptied"}),
        ("ALTER TABLE t IMPORT TABLESPACE", {T: "replaced"}),
        ("ALTER IGNORE TABLE t ADD UNIQUE (a)", {T: "unknown"}),
        ("ALTER ONLINE IGNORE TABLE t ENGINE=InnoDB", {T: "unknown"}),
        ("ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION a VALUES IN (1))", {T: "unknown"}),
        ("ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION a DEFAULT)", {T: "unknown"}),
        ("ALTER TABLE t REORGANIZE PARTITION p INTO (PARTITION p VALUES LESS THAN MAXVALUE)", {T: "kept"}),
        ("ALTER TABLE t REORGANIZE PARTITION", {T: "kept"}),
        ("ALTER TABLE t REPAIR PARTITION ALL", {T: "unknown"}),
        ("REPAIR TABLE t QUICK", {T: "unknown"}),
        ("CREATE INDEX i ON t (a)", {T: "kept"}),
        ("ALTER TABLE t", {T: "unknown"}),
        ("ALTER TABLE t FROBNICATE", {T: "unknown"}),
        ("ALTER TABLES t FORCE", {T: "unknown"}),
        ("ALTER INDEX i ON t FORCE", {T: "unknown"}),
        ("ALTER TABLE t ADD INDEX (a), FROBNICATE", {T: "unknown"}),
        ("ALTER TABLE t ENGINE=BLACKHOLE", {T: "unknown"}),
        ("ALTER TABLE t COMMENT='x' ENGINE BLACKHOLE", {T: "unknown"}),
        ("ALTER TABLE t COMMENT='x', ROW_FORMAT=DYNAMIC ENGINE=innodb REMOVE PARTITIONING", {T: "kept"}),
        ("ALTER TABLE t UNION=(a, b)", {T: "unknown"}),
        ("ALTER TABLE t INDEX DIRECTORY = '/x', DATA DIRECTORY '/y' COMMENT 'z'", {T: "kept"}),
        ("ALTER TABLE t DATA DIRECTORY '/x' ENGINE=BLACKHOLE", {T: "unknown"}),
        ("ALTER TABLE t COMMENT='it\\'s', FORCE", {T: "kept"}),
        ("ALTER TABLE t ORDER BY a, b", {T: "kept"}),
        ("ALTER TABLE `t` WAIT 5 FORCE", {T: "kept"}),
        ("CREATE DATABASE x", {}),
    ],
)  # fmt: skip
def test_rows(sql: str, rows: dict[tuple[str, str], str]) -> None:
    assert {name: each.rows for name, each in verdicts(sql).items()} == rows


@pytest.mark.parametrize(
    ("sql", "same", "other"),
    [
        ("ALTER TABLE t ADD COLUMN a INT", False, True),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT", True, True),
        ("ALTER TABLE t DROP COLUMN IF EXISTS a", True, True),
        ("ALTER TABLE t DROP COLUMN a, ADD COLUMN a INT", False, True),
        ("ALTER TABLE t DROP COLUMN IF EXISTS a, ADD COLUMN IF NOT EXISTS a INT", False, True),
        ("ALTER TABLE t MODIFY a VARCHAR(20)", True, True),
        ("ALTER TABLE t CHANGE a `a` VARCHAR(20) COMMENT 'x'", True, True),
        ("ALTER TABLE t CHANGE COLUMN IF EXISTS a a YEAR, CHANGE b b JSON", True, True),
        ("ALTER TABLE t CHANGE a b INT, CHANGE b a INT FIRST", False, True),
        ("ALTER TABLE t CHANGE a a INT AS (b + 100) STORED", False, True),
        ("ALTER TABLE t MODIFY a INT AS (b + 100) STORED", False, True),
        ("ALTER TABLE t MODIFY a FLOAT(5,1)", False, True),
        ("ALTER TABLE t MODIFY a INT, REBUILD PARTITION p0", False, False),
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", False, True),
        ("ALTER TABLE t CHANGE a b INT", False, True),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", True, True),
        ("ALTER TABLE t ADD INDEX (a), MODIFY a INT AS (b) STORED", False, True),
        ("ALTER TABLE t ADD INDEX (a), ADD UNIQUE (b)", True, True),
    ],
)
def test_values_that_change_without_events(sql: str, same: bool, other: bool) -> None:
    """A new definition shows by itself that it is one; an equal one passes only where no value can be
    another."""
    assert (passes(sql, same=True), passes(sql, same=False)) == (same, other)
    if verdicts(sql)[T].rows != "kept":
        assert verdicts(sql)[T].get_effect(same_definition=False) is None


@pytest.mark.parametrize("actions", ["OPTIMIZE PARTITION p0, FORCE", "FORCE, OPTIMIZE PARTITION p0"])
def test_one_action_that_a_list_may_not_have_is_enough(actions: str) -> None:
    assert verdicts(f"ALTER TABLE t {actions}")[T].needs == "no list"


_WITHOUT_PLACE = ["RANGE", "RANGE COLUMNS", "LIST", None]


@pytest.mark.parametrize(
    ("action", "methods"),
    [
        ("REBUILD PARTITION p0", _WITHOUT_PLACE),
        ("REORGANIZE PARTITION p INTO (PARTITION p VALUES LESS THAN (9))", _WITHOUT_PLACE),
        ("REORGANIZE PARTITION p INTO (PARTITION p VALUES LESS THAN (9, MAXVALUE))", _WITHOUT_PLACE),
        ("REORGANIZE PARTITION p INTO (PARTITION p VALUES LESS THAN (MAXVALUE))", []),
        ("REORGANIZE PARTITION", []),
        ("COALESCE PARTITION 1", []),
    ],
)  # fmt: skip
def test_rows_without_a_partition_may_be_removed(action: str, methods: list[str | None]) -> None:
    verdict = verdicts(f"ALTER TABLE t {action}")[T]
    known = [*_WITHOUT_PLACE, "", "RANGE MAXVALUE", "RANGE COLUMNS MAXVALUE", "HASH", "KEY"]
    assert [each for each in known if verdict.removes_under(each)] == methods


@pytest.mark.parametrize("actions", ["REBUILD PARTITION p0, ADD INDEX (a)", "FORCE, REBUILD PARTITION p0"])
def test_an_action_that_may_remove_rows_is_not_followed_with_others(actions: str) -> None:
    assert verdicts(f"ALTER TABLE t {actions}")[T].must_stop(same_definition=True)


def test_only_what_is_known_has_kept_rows() -> None:
    for action in ACTIONS:
        if action.example:
            sql = f"ALTER TABLE t {action.example.format(other='u')}"
            assert verdicts(sql)[T].rows == action.rows, sql


@given(st.text(st.characters(codec="ascii"), min_size=1, max_size=30))
def test_an_action_beginning_with_an_unknown_word_never_passes(text: str) -> None:

    sql = f"ALTER TABLE t frob_{text}"
    statement = parse_statement(LoggedStatement("db", sql)).kind
    if isinstance(statement, TableDdl) and statement.action == "alter":
        assert not passes(sql, same=True)


@given(st.lists(st.sampled_from([each for each in ACTIONS if each.example]), min_size=1, max_size=4))
def test_a_statement_is_as_bad_as_its_worst_action(actions: list[object]) -> None:
    sql = "ALTER TABLE t " + ", ".join(each.example.format(other="u") for each in actions)  # type: ignore[attr-defined]
    alone = [passes(f"ALTER TABLE t {each.example.format(other='u')}", same=True) for each in actions]  # type: ignore[attr-defined]
    if not all(alone):
        assert not passes(sql, same=True)


def test_a_backslash_ends_no_string_where_sql_mode_says_so() -> None:
    sql = "ALTER TABLE t COMMENT='\\', ENGINE=BLACKHOLE COMMENT=''"
    (verdict,) = judge(sql, escapes=False)
    assert verdict.rows == "unknown"
    (verdict,) = judge("ALTER TABLE t COMMENT='\\', ENGINE=BLACKHOLE COMMENT='")
    assert verdict.rows == "kept", "one comment, with a quote in it"
