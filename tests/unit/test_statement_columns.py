"""What statements say of columns, held against the definitions before and behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.binlog_format.log_event import LoggedStatement
from producer.statements.columns import compute_column_changes
from producer.statements.statement import Statement, parse_statement
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.wire.event import ColumnChanges
from tests.kits.statement_columns import TYPES, T, table


def of(sql: str, before: Table, after: Table) -> ColumnChanges | None:
    whole = " TABLE " in sql or " ON t" in sql
    return compute_column_changes([parse(sql if whole else f"ALTER TABLE t {sql}")], before, after)


def parse(sql: str) -> Statement:
    return parse_statement(LoggedStatement("db", sql))


def changed(**parts: object) -> ColumnChanges:
    return ColumnChanges(**parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sql", "after", "expected"),
    [
        ("ADD COLUMN c INT", table("id", "a", "b", "c"), changed(added=("c",))),
        ("ADD c INT FIRST, ADD d INT AFTER a", table("c", "id", "a", "d", "b"), changed(added=("c", "d"))),
        ("ADD COLUMN (c INT, `d-e` INT DEFAULT (1, 2), INDEX (c))", table("id", "a", "b", "c", "d-e"), changed(added=("c", "d-e"))),  # noqa: E501
        ("ADD COLUMN IF NOT EXISTS c INT, ADD IF NOT EXISTS A INT", table("id", "a", "b", "c"), changed(added=("c",))),  # noqa: E501
        ("ADD COLUMN vector INT", table("id", "a", "b", "vector"), changed(added=("vector",))),
        ("ADD COLUMN period INT, ADD `column` INT", table("id", "a", "b", "period", "column"), changed(added=("period", "column"))),  # noqa: E501
        ("DROP COLUMN A", table("id", "b"), changed(dropped=("a",))),
        ("DROP a, DROP COLUMN IF EXISTS zzz, DROP COLUMN IF EXISTS `b`", table("id"), changed(dropped=("a", "b"))),  # noqa: E501
        ("DROP COLUMN IF EXISTS a, ADD COLUMN IF NOT EXISTS a INT", table("id", "b"), changed(dropped=("a",))),  # noqa: E501
        ("DROP a, ADD a INT", table("id", "b", "a"), changed(added=("a",), dropped=("a",))),
        ("ADD COLUMN a INT AFTER id, DROP COLUMN a", table("id", "a", "b"), changed(added=("a",), dropped=("a",))),  # noqa: E501
        ("RENAME COLUMN a TO c", table("id", "c", "b"), changed(renamed={"a": "c"})),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", table("id", "b", "a"), changed(renamed={"a": "b", "b": "a"})),  # noqa: E501
        ("RENAME COLUMN IF EXISTS zzz TO c", T, changed()),
        ("RENAME COLUMN a TO c, ADD a INT, DROP b", table("id", "c", "a"), changed(renamed={"a": "c"}, added=("a",), dropped=("b",))),  # noqa: E501
        ("RENAME COLUMN a TO c, ALTER c SET DEFAULT 1", table("id", "c", "b"), changed(renamed={"a": "c"}, modified=("c",))),  # noqa: E501
        ("CHANGE a c BIGINT NOT NULL FIRST", table("c big", "id", "b"), changed(renamed={"a": "c"}, modified=("c",))),  # noqa: E501
        ("CHANGE COLUMN IF EXISTS a A INT", table("id", "A", "b"), changed(renamed={"a": "A"}, modified=("A",))),  # noqa: E501
        ("CHANGE a b INT, CHANGE b a INT", table("id", "b", "a"), changed(renamed={"a": "b", "b": "a"}, modified=("b", "a"))),  # noqa: E501
        ("MODIFY COLUMN A BIGINT AFTER b", table("id", "b", "a big"), changed(modified=("a",))),
        ("MODIFY IF EXISTS zzz INT", T, changed()),
        ("ALTER COLUMN a SET DEFAULT 7, ALTER b DROP DEFAULT", T, changed(modified=("a", "b"))),
        ("ALTER COLUMN a SET INVISIBLE", T, changed(modified=("a",))),
        ("WAIT 5 MODIFY a BIGINT", table("id", "a big", "b"), changed(modified=("a",))),
        (("ADD INDEX i (a), ADD UNIQUE (b), COMMENT='x, y' ENGINE=InnoDB, "
        "FORCE, ALGORITHM=COPY, ADD c INT"), table("id", "a", "b", "c"), changed(added=("c",))),
        ("ORDER BY a, b", T, changed()),
        ("DROP INDEX i, DROP PRIMARY KEY, ADD PRIMARY KEY (a)", T, changed()),
        ("CREATE UNIQUE INDEX i ON t (a)", T, changed()),
        ("DROP INDEX i ON t", T, changed()),
        ("ALTER ONLINE TABLE db.t ADD c INT /* , ADD d INT */", table("id", "a", "b", "c"), changed(added=("c",))),  # noqa: E501
    ],
)  # fmt: skip
def test_what_is_known(sql: str, after: Table, expected: ColumnChanges) -> None:
    assert of(sql, T, after) == expected


MORE = table("id", "a", "b", "c")


@pytest.mark.parametrize(
    ("sql", "after"),
    [
        ("ADD c INT", T),  # the definition says that it is not there
        ("ADD c INT", table("id", "a", "b", "d")),
        ("ADD c INT", table("id", "a big", "b", "c")),  # nothing said that a becomes another type
        ("MODIFY a FLOAT(5,1)", table("id", "a float", "b")),
        ("MODIFY a DOUBLE PRECISION (5,1)", table("id", "a float", "b")),
        ("MODIFY a SOMETYPE", T),
        ("MODIFY a INT, MODIFY a BIGINT", T),
        ("MODIFY zzz INT", T),
        ("DROP COLUMN zzz", T),
        (
            "DROP COLUMN IF EXISTS a, ADD COLUMN IF NOT EXISTS a INT",
            T,
        ),  # it was there when the server asked
        ("ADD a INT", T),
        ("RENAME COLUMN a TO b", T),
        ("RENAME COLUMN a TO c, ADD c INT", table("id", "c", "b")),
        ("CHANGE a c FLOAT(5,1), ALTER c SET DEFAULT 1", table("id", "c float", "b")),
        ("ADD c INT, TRUNCATE PARTITION p0", MORE),
        ("ADD c INT, FROBNICATE", MORE),
        ("ADD c INT, ENGINE=MyISAM", MORE),
        ("ADD PERIOD FOR SYSTEM_TIME(a, b)", T),
        ("ADD SYSTEM VERSIONING", T),
        ("REBUILD PARTITION p0", T),  # keeps rows only of some kinds of partitioning
        ("ADD COLUMN (c INT", T),
        ("ADD COLUMN (c INT,", T),
        ("ADD t.c INT", MORE),
        ("RENAME TO u", T),
        ("ALTER IGNORE TABLE t ADD c INT", MORE),
        ("CREATE TABLE t (id INT)", T),
        ("", T),
    ],
)
def test_what_is_not_known(sql: str, after: Table) -> None:
    assert of(sql, T, after) is None


def test_names_that_the_server_tells_apart_and_lower_case_does_not_are_not_known() -> None:
    """Before, it was a KeyError, and capture did not go on."""
    before, after = table("id", "ß", "ẞ"), table("id", "ß", "ẞ", "c")
    assert of("ADD COLUMN c INT", before, after) is None
    assert of("DROP COLUMN ẞ", before, table("id", "ß")) is None
    assert of("ADD COLUMN ẞ INT", table("id", "ß"), before) is None


def test_a_conversion_of_the_character_set_explains_other_types_of_text_only() -> None:
    before, after = table("id", "a text", "b"), table("id", "a wide", "b")
    sql = "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, DEFAULT CHARACTER SET utf8mb4"
    assert of(sql, before, after) == changed(converted=True)
    assert of(sql, before, table("id", "a wide", "b big")) is None
    assert of("DEFAULT CHARACTER SET utf8mb4", before, after) is None


def test_a_collation_under_a_name_of_an_older_topic_is_the_same_type() -> None:
    def with_c(length: int, collation: str) -> Table:
        type_ = ColumnType(kind=Kind.VARCHAR, length=length, charset="utf8mb4", collation=collation)
        return table("id", Column(name="c", type=type_))

    before = with_c(10, "utf8mb4_0900_ai_ci")
    assert of("ADD INDEX i (c)", before, with_c(10, "utf8mb4_uca1400_nopad_ai_ci")) == changed()
    assert of("ADD INDEX i (c)", before, with_c(20, "utf8mb4_uca1400_nopad_ai_ci")) is None


def test_values_that_no_definition_tells() -> None:
    def with_c(**facts: object) -> Table:
        return table("id", "a", "b", Column(name="c", **facts))  # type: ignore[arg-type]

    number, at = TYPES["int"], TYPES["at"]
    assert of("ADD c INT", T, with_c(type=number)) is not None
    assert of("ADD c INT AUTO_INCREMENT UNIQUE", T, with_c(type=number, auto_increment=True)) is None
    assert of("MODIFY c INT AUTO_INCREMENT", MORE, with_c(type=number, auto_increment=True)) is None
    assert of("ADD c TIMESTAMP NULL", T, with_c(type=at)) is not None
    assert of("ADD c TIMESTAMP DEFAULT '2001-01-01'", T, with_c(type=at, default="2001-01-01")) is None
    floating = with_c(type=TYPES["float"])
    for words in ("FLOAT", "FLOAT UNSIGNED", "FLOAT(24)", "REAL DEFAULT 1", "DOUBLE PRECISION"):
        assert of(f"MODIFY c {words}", floating, floating) == changed(modified=("c",))


def test_what_is_computed_from_a_column_of_another_type() -> None:
    computed = Column(name="g", type=TYPES["int"], generated=True, expression="char_length(`A`)")
    before = table("id", "a", "b", computed)
    assert of("MODIFY b BIGINT", before, table("id", "a", "b big", computed)) == changed(modified=("b",))
    assert of("MODIFY a BIGINT", before, table("id", "a big", "b", computed)) is None
    unknown = Column(name="g", type=TYPES["int"], generated=True)
    assert of("MODIFY b BIGINT", before, table("id", "a", "b big", unknown)) is None


def test_statements_one_behind_the_other() -> None:
    texts = [
        "ADD c INT, RENAME COLUMN a TO x",
        "CHANGE x y BIGINT, MODIFY c BIGINT",
        "DROP b, RENAME COLUMN c TO b",
        "ADD INDEX (b)",
    ]
    steps = [parse(f"ALTER TABLE t {text}") for text in texts]
    assert compute_column_changes(steps, T, table("id", "y big", "b big")) == changed(
        renamed={"a": "y"}, added=("b",), dropped=("b",), modified=("y",)
    )
    assert compute_column_changes(steps[1:], T, table("id", "y big", "b big")) is None
    assert compute_column_changes([], T, T) == changed()


def test_columns_of_older_topics_have_collations_by_other_names() -> None:
    def a(collation: str) -> Table:
        text = ColumnType(kind=Kind.VARCHAR, length=3, charset="utf8mb4", collation=collation)
        return table("id", Column(name="a", type=text))

    assert of("ADD INDEX (a)", a("utf8mb4_uca1400_ai_ci"), a("utf8mb4_uca1400_ai_ci")) == changed()
    assert of("ADD INDEX (a)", a("utf8mb4_bin"), a("utf8mb4_general_ci")) is None


_NAMES = ("a", "b", "c", "d")
_ACTIONS = st.one_of(
    st.tuples(st.just("ADD {} INT"), st.sampled_from(_NAMES)),
    st.tuples(st.just("DROP COLUMN {}"), st.sampled_from(_NAMES)),
    st.tuples(st.just("MODIFY {} INT"), st.sampled_from(_NAMES)),
    st.tuples(st.just("RENAME COLUMN {} TO {}"), st.sampled_from(_NAMES), st.sampled_from(_NAMES)),
    st.tuples(st.just("CHANGE {} {} INT"), st.sampled_from(_NAMES), st.sampled_from(_NAMES)),
)


@given(st.lists(_ACTIONS, min_size=1, max_size=4), st.sets(st.sampled_from(_NAMES)))
def test_what_is_said_makes_the_names_before_into_those_behind(
    actions: list[tuple[str, ...]], left: set[str]
) -> None:
    """Whatever is answered, it leads from one definition to the other."""
    sql = ", ".join(text.format(*names) for text, *names in actions)
    after = table("id", *sorted(left))
    found = of(sql, T, after)
    if found is None:
        return
    names = [name for name in T.column_names if name not in found.dropped]
    names = [found.renamed.get(name, name) for name in names]
    assert sorted([*names, *found.added]) == sorted(after.column_names)
    assert set(found.modified) <= set(names)
