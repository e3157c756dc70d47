"""Shadow tables of gh-ost and pt-online-schema-change: what a swap is, and what follows from it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from producer.binlog_format.log_event import LoggedStatement
from producer.statements import ddl
from producer.statements.shadows import ShadowTables, SwapResult, judge_shadow_statements
from producer.statements.statement import Statement, parse_statement
from schemas.config.online_ddl import enable_all_tools
from schemas.table.model import Column, IndexPart, Table, UniqueIndex
from schemas.table.names import NameRules
from schemas.wire.event import ColumnChanges
from schemas.wire.position import LogPoint
from tests.kits.statement_columns import KEY, TYPES, table
from tests.kits.statement_columns import T as FORM

T = ("db", "t")
TRASH = "_t_del"


class Log:
    """Statements of a log that knows the table `t`, given to ShadowTables one after the other, 10 bytes
    each."""

    def __init__(self, names: NameRules | None = None) -> None:
        self.shadows = ShadowTables(enable_all_tools().names, names or NameRules())
        self.notified: list[tuple[Statement, LogPoint]] = []

    def notify(self, *statements: str) -> LogPoint:
        for sql in statements:
            statement, at = parse_statement(LoggedStatement("db", sql)), (3, 100 + 10 * len(self.notified))
            self.notified.append((statement, at))
            self.shadows.note_statement(statement, at, {T})
        return self.last

    @property
    def last(self) -> LogPoint:
        return self.notified[-1][1]

    def move(self, sql: str) -> tuple[str, Any]:
        at = self.notify(sql)
        kind = self.notified[-1][0].kind
        assert isinstance(kind, ddl.TableDdl)
        return self.shadows.classify_move(T, kind, at)

    def swap(self, sql: str, after: Table = FORM) -> SwapResult:
        move, shadow = self.move(sql)
        assert move == "swap"
        return self.shadows.judge_swap(shadow, self.last, FORM, after)

    def restart(self) -> None:
        """Go on from the record that stands behind the last statement."""
        stored = self.shadows.list_stored_shadows((3, self.last[1] + 5))
        self.shadows = ShadowTables(enable_all_tools().names, stored=stored)


GHOST = (
    "CREATE /* gh-ost */ TABLE `db`.`_t_gho` LIKE `db`.`t`",
    "alter /* gh-ost */ table `db`.`_t_gho` add column c int default 7",
)
GHOST_SWAP = "rename /* gh-ost */ table `db`.`t` to `db`.`_t_del`, `db`.`_t_gho` to `db`.`t`"
PERCONA = (
    (
        "CREATE TABLE `db`.`_t_new` (\n  `id` int NOT NULL,\n  `a` int,\n  `b` int,\n  "
        "PRIMARY KEY (`id`)\n) ENGINE=InnoDB"
    ),
    "ALTER TABLE `db`.`_t_new` ADD COLUMN c INT DEFAULT 7",
    *(
        f"CREATE DEFINER=`root`@`%` TRIGGER `db`.`pt_osc_db_t` AFTER {event} ON `db`.`t` FOR EACH ROW "
        "REPLACE INTO `db`.`_t_new` (id) VALUES (1)"
        for event in ("DELETE", "UPDATE", "INSERT")
    ),
)
PERCONA_SWAP = "RENAME TABLE `db`.`t` TO `db`.`_t_old`, `db`.`_t_new` TO `db`.`t`"
WITH_C = table("id", "a", "b", "c")


@pytest.mark.parametrize(("statements", "swap"), [(GHOST, GHOST_SWAP), (PERCONA, PERCONA_SWAP)])
@pytest.mark.parametrize("restarts", [0, 1, 5])
def test_a_swap_is_what_the_shadows_statements_say(
    statements: tuple[str, ...], swap: str, restarts: int
) -> None:
    log = Log()
    for at, sql in enumerate(statements):
        log.notify(sql)
        if at < restarts:
            log.restart()
    assert log.swap(swap, WITH_C) == SwapResult("", ColumnChanges(added=("c",)), None)


def test_two_statements_swap_as_well() -> None:
    for restarts in (False, True):
        log = Log()
        log.notify(*GHOST)
        assert log.move("alter /* gh-ost */ table `db`.`t` rename `db`.`_t_del`")[0] == "away"
        assert log.shadows.is_away(T)
        if restarts:
            log.restart()
        found = log.swap("alter /* gh-ost */ table `db`.`_t_gho` rename `db`.`t`", WITH_C)
        assert (found.refused, found.columns) == ("", ColumnChanges(added=("c",)))
        assert not log.shadows.is_away(T)


def test_what_was_read_before_changes_nothing_when_it_is_read_again() -> None:
    """A record may be of a moment after the position that it names; capture reads what is in between once
    more."""
    log = Log()
    log.notify(*GHOST)
    log.move("ALTER TABLE t RENAME _t_del")
    log.move("ALTER TABLE _t_gho RENAME t")
    notified, last = log.notified, log.last
    before = log.shadows.list_stored_shadows((0, 0))
    for first in range(len(notified)):
        again = ShadowTables(enable_all_tools().names, stored=before)
        for statement, at in notified[first:]:
            again.note_statement(statement, at, {T})
            assert isinstance(statement.kind, ddl.TableDdl)
            move = again.classify_move(T, statement.kind, at) if statement.kind.action == "rename" else None
        assert move == ("swap", ("db", "_t_gho"))
        assert again.judge_swap(("db", "_t_gho"), last, FORM, WITH_C).columns == ColumnChanges(added=("c",))
        assert again.list_stored_shadows((0, 0)) == before
    assert log.shadows.list_stored_shadows((3, last[1] + 1)) == ()


@pytest.mark.parametrize(
    ("sql", "move"),
    [
        (GHOST_SWAP, "swap"),
        ("RENAME TABLE t TO _t_20260101000000_del, _t_gho TO t", "swap"),
        ("RENAME TABLE _t_gho TO t, t TO _t_old", "swap"),
        ("RENAME TABLE t TO _t_del, other TO t", "half"),
        ("RENAME TABLE t TO backup, _t_gho TO t", "half"),
        ("RENAME TABLE t TO backup, other TO t", ""),
        ("RENAME TABLE t TO backup", ""),
        ("RENAME TABLE t TO _t_del", "away"),
        ("RENAME TABLE t TO x.`_t_del`, _t_gho TO t", "half"),
        ("RENAME TABLE a TO b", ""),
        ("RENAME TABLE _t_gho TO t", "half"),  # t was dropped, and nothing renamed it for a shadow
    ],
)
def test_what_a_rename_is(sql: str, move: str) -> None:
    log = Log()
    log.notify(*GHOST)
    assert log.move(sql)[0] == move


def test_a_backslash_matters_only_where_it_does_not_escape() -> None:
    """The statements are kept as texts, without the settings of their sessions."""
    for escapes in (True, False):
        log = Log()
        log.notify(GHOST[0])
        sql = "ALTER TABLE _t_gho ADD COLUMN c INT COMMENT 'a\\'"
        statement, at = parse_statement(LoggedStatement("db", sql, escapes)), (3, 105)
        log.shadows.note_statement(statement, at, {T})
        assert ("backslash" in log.swap(GHOST_SWAP, WITH_C).refused) is not escapes


def test_a_table_that_gets_a_trash_name_by_hand_is_gone() -> None:
    assert Log().move("RENAME TABLE t TO _t_del")[0] == ""


def test_a_table_that_comes_back_is_no_swap() -> None:
    log = Log()
    log.notify(*GHOST)
    log.move("ALTER TABLE t RENAME _t_del")
    assert log.move("ALTER TABLE _t_del RENAME t")[0] == "half"
    assert not log.shadows.is_away(T)


UNKNOWN = [
    (),
    GHOST[1:],
    (*GHOST, "TRUNCATE TABLE _t_gho"),
    (*GHOST, "ALTER TABLE _t_gho DROP PARTITION p0"),
    (*GHOST, "ALTER TABLE _t_gho PARTITION BY HASH (id)"),
    (*GHOST, "ALTER TABLE _t_gho ADD CONSTRAINT positive CHECK (a > 0)"),
    (*GHOST, "ALTER TABLE _t_gho MODIFY a INT CHECK (a > 0)"),
    (*GHOST, "ALTER TABLE _t_gho ADD FOREIGN KEY (a) REFERENCES u (id)"),
    (*GHOST, "ALTER TABLE _t_gho ADD UNIQUE (a)"),
    (*GHOST, "ALTER TABLE _t_gho FROBNICATE"),
    (*GHOST, "RENAME TABLE _t_gho TO x, y TO _t_gho"),
    (*GHOST, "DROP TABLE _t_gho"),
    (*GHOST, "DROP DATABASE db"),
    ("CREATE TABLE IF NOT EXISTS _t_gho LIKE t", GHOST[1]),
    ("CREATE TABLE _t_gho LIKE u", GHOST[1]),
    ("CREATE TABLE _t_gho (id INT) SELECT 1 AS id", GHOST[1]),
    ("CREATE OR REPLACE TABLE _t_gho LIKE t", GHOST[1]),
    (*GHOST, "TRUNCATE TABLE t"),
    (*GHOST, "ALTER TABLE t ADD c INT"),
    (*GHOST, "ALTER TABLE t DROP PARTITION p0"),
    (*GHOST, "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE x"),
    (*GHOST, "ALTER TABLE _t_gho COMMENT = '" + "x" * 70_000 + "'"),
]  # fmt: skip


@pytest.mark.parametrize("after", [WITH_C, FORM])
@pytest.mark.parametrize("statements", UNKNOWN)
def test_a_shadow_of_which_not_all_is_known(statements: tuple[str, ...], after: Table) -> None:
    """However plausible the definition behind it is."""
    log = Log()
    log.notify("CREATE TABLE elsewhere (id INT)", *statements)
    assert log.swap(GHOST_SWAP, after).refused


@pytest.mark.parametrize("missing", [2, 3, 4])
def test_a_table_that_a_person_calls_like_a_shadow_is_none_without_triggers(missing: int) -> None:
    """CREATE TABLE _t_new LIKE t, INSERT some of its rows, RENAME: a common way of deleting many rows."""
    for statements in (("CREATE TABLE _t_new LIKE t",), (*PERCONA[:missing], *PERCONA[missing + 1 :])):
        log = Log()
        log.notify(*statements)
        assert "no triggers" in log.swap(PERCONA_SWAP, FORM if len(statements) == 1 else WITH_C).refused
    log = Log()
    log.notify(*PERCONA[:2], *(sql.replace("`_t_new` (id)", "other (id)") for sql in PERCONA[2:]))
    assert "no triggers" in log.swap(PERCONA_SWAP, WITH_C).refused


def test_a_shadow_that_is_made_again_begins_anew() -> None:
    log = Log()
    log.notify(*GHOST, "TRUNCATE _t_gho", "DROP TABLE IF EXISTS `db`.`_t_gho`", *GHOST)
    assert log.swap(GHOST_SWAP, WITH_C).columns == ColumnChanges(added=("c",))


def test_what_leaves_the_table_as_it_is_does_not_matter_to_its_shadow() -> None:
    log = Log()
    log.notify(
        *GHOST,
        "ALTER TABLE t ADD INDEX (a)",
        "ALTER TABLE u ADD c INT",
        "CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW SET @a = 1",
    )
    assert log.swap(GHOST_SWAP, WITH_C).refused == ""


def test_only_shadows_of_captured_tables_are_kept() -> None:
    log = Log()
    log.notify(
        "CREATE TABLE _u_gho LIKE u",
        "CREATE TABLE _t_ghc (id INT)",
        "CREATE TABLE x._t_gho LIKE x.t",
        "ALTER TABLE t ADD c INT",
    )
    assert log.shadows.list_stored_shadows((0, 0)) == ()


def test_names_compare_as_the_server_compares_them() -> None:
    log = Log(NameRules(folds=True))
    log.notify("CREATE TABLE DB._T_gho LIKE DB.T", "ALTER TABLE _t_GHO ADD COLUMN c INT")
    assert log.swap("RENAME TABLE T TO _T_del, _T_gho TO T", WITH_C).columns == ColumnChanges(added=("c",))


def by(alter: str, after: Table, before: Table = FORM) -> SwapResult:
    return judge_shadow_statements([f"ALTER TABLE _t_gho {alter}"], "db", before, after)


def with_unique(form: Table, *columns: str) -> Table:
    index = UniqueIndex(name="u", parts=tuple(IndexPart(column=each) for each in columns))
    return msgspec.structs.replace(form, unique=(index,))


@pytest.mark.parametrize(
    ("alter", "after", "columns", "effect"),
    [
        ("ENGINE=InnoDB", FORM, ColumnChanges(), "kept"),
        ("ADD INDEX (a), DROP INDEX b", FORM, ColumnChanges(), "kept"),
        ("DROP COLUMN a", table("id", "b"), ColumnChanges(dropped=("a",)), None),
        ("MODIFY a BIGINT", table("id", "a big", "b"), ColumnChanges(modified=("a",)), None),
        ("MODIFY id BIGINT", table("id big", "a", "b"), ColumnChanges(modified=("id",)), None),
        ("MODIFY a INT COMMENT 'x'", FORM, ColumnChanges(modified=("a",)), "kept"),
    ],
)
def test_what_keeps_rows_and_values(
    alter: str, after: Table, columns: ColumnChanges, effect: str | None
) -> None:
    assert by(alter, after) == SwapResult("", columns, effect)


@pytest.mark.parametrize(
    ("alter", "after"),
    [
        ("RENAME COLUMN a TO x", table("id", "x", "b")),
        ("CHANGE a A INT", table("id", "A", "b")),
        ("DROP COLUMN a, ADD COLUMN a INT", FORM),
        ("MODIFY a FLOAT(5,1)", table("id", "a float", "b")),
        ("ADD c INT", FORM),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (a)", msgspec.structs.replace(FORM, key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="a"),)))),  # noqa: E501
        ("ADD UNIQUE u (a)", with_unique(FORM, "a")),
        ("MODIFY id SMALLINT", table(Column(name="id", type=msgspec.structs.replace(TYPES["int"], bits=16)), "a", "b")),  # noqa: E501
        ("MODIFY id INT UNSIGNED", table(Column(name="id", type=msgspec.structs.replace(TYPES["int"], unsigned=True)), "a", "b")),  # noqa: E501
        ("MODIFY id FLOAT", table("id float", "a", "b")),
    ],
)  # fmt: skip
def test_what_a_tool_may_not_keep(alter: str, after: Table) -> None:
    assert by(alter, after).refused


def test_text_in_a_unique_index_may_grow_and_not_be_compared_otherwise() -> None:
    def form(length: int, collation: str = "latin1_swedish_ci", *, nullable: bool = True) -> Table:
        type_ = msgspec.structs.replace(TYPES["text"], length=length, collation=collation)
        column = Column(name="a", type=type_, nullable=nullable)
        return with_unique(table("id", column), "a")

    assert form(1).key == KEY
    assert by("MODIFY a VARCHAR(20)", form(20), form(10)) == SwapResult("", ColumnChanges(modified=("a",)))
    assert by("MODIFY a VARCHAR(5)", form(5), form(10)).refused
    assert by("MODIFY a VARCHAR(10) COLLATE latin1_bin", form(10, "latin1_bin"), form(10)).refused
    assert by("MODIFY a VARCHAR(10) NOT NULL", form(10, nullable=False), form(10)).refused
    assert (
        by("DROP INDEX u, MODIFY a VARCHAR(5)", table("id", form(5).get_column("a")), form(10)).refused == ""
    )
