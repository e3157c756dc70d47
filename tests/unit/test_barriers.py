"""What follows from a statement: the events, the stops, and what of neither, without a server."""

from __future__ import annotations

import msgspec
import pytest

from producer.binlog_format.log_event import LoggedStatement
from producer.decoders.row_codec import TransactionContext
from producer.errors import TableStoppedError
from producer.loop.table_stops import TableChoice
from producer.sources.changes import Barrier
from producer.start.started import StartedCapture
from producer.statements.closure import ImpactedTables
from producer.statements.statement import parse_statement
from producer.stops import StoppedTable
from producer.tables import CapturedTables
from schemas.config.online_ddl import enable_all_tools
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.table.names import NameRules
from schemas.wire.event import ColumnChanges
from tests.kits.apply import account_table
from tests.kits.barriers import CONTEXT, HEADER, RECORD, Stage, T, U, a_stop


def started(captured: CapturedTables) -> StartedCapture:
    return StartedCapture(RECORD, CONTEXT, captured, {}, {}, fresh=False)


def wider(table: Table) -> Table:
    more = Column(name="x", type=ColumnType(kind=Kind.INT, bits=32))
    return msgspec.structs.replace(table, columns=(*table.columns, more))


@pytest.mark.parametrize(
    ("sql", "stopped"),
    [
        ("DROP TABLE t", {T: "dropped"}),
        ("DROP TABLE t, u, other.x", {T: "dropped", U: "dropped"}),
        ("DROP DATABASE bank", {T: "dropped", U: "dropped"}),
        ("DROP DATABASE other", {}),
        ("RENAME TABLE t TO other.t", {T: "dropped"}),
        ("RENAME TABLE t TO t_old, stage TO t", {T: "rows-replaced"}),
        ("CREATE OR REPLACE TABLE t (id INT)", {T: "rows-replaced"}),
        ("CREATE TABLE t (id INT)", {T: "rows-replaced"}),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", {T: "rows-replaced", U: "rows-replaced"}),
        ("ALTER TABLE other.x EXCHANGE PARTITION p WITH TABLE t", {T: "rows-replaced"}),
        ("ALTER TABLE other.x CONVERT TABLE t TO PARTITION p VALUES LESS THAN (9)", {T: "dropped"}),
        ("ALTER TABLE t DROP COLUMN a, ADD COLUMN a INT", {T: "rows-replaced"}),
        ("REPAIR TABLE t", {T: "rows-replaced"}),
        ("SOMETHING NEW", {T: "statement", U: "statement"}),
    ],
)
def test_stops(sql: str, stopped: dict[tuple[str, str], str]) -> None:
    stage = Stage()
    assert stage.carry_out(sql) == stopped
    assert stage.writer.events() == [] or "t_old" in sql


@pytest.mark.parametrize(
    ("sql", "effects"),
    [
        ("ALTER TABLE t ADD INDEX (id)", [("m", "kept")]),
        ("ALTER TABLE t ADD PARTITION (PARTITION p3 VALUES LESS THAN (9))", [("m", "kept")]),
        ("ALTER TABLE t REBUILD PARTITION p0", [("m", "kept")]),
        ("ALTER TABLE t MODIFY note VARCHAR(20)", [("m", "kept")]),
        ("CREATE TABLE u (id INT)", [("m", "kept")]),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", []),
        ("TRUNCATE TABLE t", [("t", None)]),
        ("CREATE TABLE other.x (id INT)", []),
        ("DROP TABLE never_there", []),
    ],
)
def test_what_goes_on(sql: str, effects: list[tuple[str, str | None]]) -> None:
    stage = Stage()
    assert stage.carry_out(sql) == {}
    assert stage.effects == effects


def test_a_new_definition_goes_into_the_topic_without_a_word_about_values() -> None:
    stage = Stage(now={T: wider(account_table(name="t"))})
    assert stage.carry_out("ALTER TABLE t ADD COLUMN x INT") == {}
    assert stage.effects == [("m", None)]
    assert stage.writer.events()[0].definition == stage.now[T]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("ALTER TABLE t ADD COLUMN X INT", ColumnChanges(added=("x",))),
        ("ALTER TABLE t ADD COLUMN x INT, DROP PARTITION p0", None),
        ("ALTER TABLE t ADD COLUMN y INT", None),
    ],
)
def test_a_definition_says_what_the_statement_did_to_columns(sql: str, columns: ColumnChanges | None) -> None:
    stage = Stage(now={T: wider(account_table(name="t"))})
    stopped = stage.carry_out(sql)
    assert stopped == ({T: "rows-replaced"} if "PARTITION" in sql else {})
    assert [event.columns for event in stage.writer.events()] == ([] if stopped else [columns])


def test_a_statement_that_keeps_rows_says_that_no_column_is_another() -> None:
    stage = Stage()
    stage.carry_out("ALTER TABLE t ADD INDEX (id)")
    assert [event.columns for event in stage.writer.events()] == [ColumnChanges()]


def test_a_new_table_begins_with_its_definition() -> None:
    stage = Stage(now={("bank", "new"): account_table(name="new")})
    assert stage.carry_out("CREATE TABLE new (id INT)") == {}
    assert [(event.op, event.ddl is None) for event in stage.writer.events()] == [("m", False)]
    assert stage.changed == [("bank", "new")]
    assert ("bank", "new") in stage.captured.known


@pytest.mark.parametrize("kind", ["LIST", "LIST COLUMNS", None, "SYSTEM_TIME"])
def test_partition_maintenance_stops_where_the_kind_is_not_known_to_keep_rows(kind: str | None) -> None:
    assert Stage(kind=kind).carry_out("ALTER TABLE t OPTIMIZE PARTITION p0") == {T: "rows-replaced"}


@pytest.mark.parametrize(
    ("kind", "op"), [("HASH", "m"), ("RANGE MAXVALUE", "m"), ("RANGE", "p"), ("LIST", "p"), (None, "p")]
)
def test_rebuilt_partition_is_a_debt_where_a_row_may_have_no_partition(kind: str | None, op: str) -> None:
    stage = Stage(kind=kind)
    assert stage.carry_out("ALTER TABLE t REBUILD PARTITION p0") == {}
    assert [event.op for event in stage.writer.events()] == [op]


def test_a_table_that_a_statement_makes_unfit_stops() -> None:
    stage = Stage(now={T: "bank.t has no key: add one"})
    assert stage.carry_out("ALTER TABLE t DROP PRIMARY KEY") == {T: "unfit"}


def test_a_table_that_the_catalog_hides_is_not_dropped() -> None:
    """The user lost its right to the table: a DROP would be in the log, and the proof would wait for it."""
    stage = Stage()
    del stage.now[T]
    error = stage.error("ALTER TABLE t ADD COLUMN x INT", ImpactedTables(frozenset()))
    [part] = error.parts
    assert part.cause == "unseen"
    assert "GRANT SELECT ON bank.t" in part.remedy
    assert "rowlock copy bank.t" in part.remedy


def test_a_table_that_becomes_unfit_without_a_remedy_is_not_dropped() -> None:
    stage = Stage(now={T: "bank.t is odd"})
    assert stage.carry_out("ALTER TABLE t ADD COLUMN x INT") == {T: "unfit"}


def test_a_new_table_that_the_catalog_hides_is_left_out_with_a_remedy() -> None:
    stage = Stage()
    assert stage.carry_out("CREATE TABLE new (id INT PRIMARY KEY)") == {}
    assert stage.writer.events() == []
    assert "GRANT SELECT ON bank.new" in str(stage.errors["bank", "new"])
    stage.carry_out("DROP TABLE new")
    assert stage.errors == {}


def test_nothing_follows_for_a_table_that_is_stopped() -> None:
    stage = Stage()
    stage.captured.stop_table(T, StoppedTable(a_stop()))
    for sql in (
        "TRUNCATE TABLE t",
        "ALTER TABLE t ADD INDEX (id)",
        "CREATE TABLE t (id INT)",
        "DROP TABLE t",
    ):
        assert stage.carry_out(sql) == {}
    assert stage.writer.events() == []


@pytest.mark.parametrize(
    ("sql", "again"),
    [
        ("CREATE TABLE t (id INT)", [T]),
        ("CREATE TABLE IF NOT EXISTS t LIKE other.x", [T]),
        ("CREATE OR REPLACE TABLE t SELECT 1 AS id", [T]),
        ("RENAME TABLE stage TO t", [T]),
        ("RENAME TABLE stage TO t, other.x TO stage", [T]),
        ("RENAME TABLE stage TO t, t TO x", [T]),  # it is left and taken: whatever the order, it is there
        ("ALTER TABLE other.x RENAME TO bank.t", [T]),
        ("ALTER TABLE other.x CONVERT PARTITION p0 TO TABLE t", [T]),
        ("CREATE TABLE other.t (id INT)", []),
        ("ALTER TABLE t ADD INDEX (id)", []),
        ("TRUNCATE TABLE t", []),
        ("DROP TABLE t", []),
        ("RENAME TABLE t TO stage", []),
        ("DROP DATABASE bank", []),
    ],
)
def test_a_dropped_table_that_is_there_again_is_told(sql: str, again: list[tuple[str, str]]) -> None:
    """Capture asks for a copy of it; until that begins, nothing of it is sent."""
    for cause, notified in (("dropped", again), ("unseen", again), ("rows-replaced", [])):
        stage = Stage()
        stage.captured.stop_table(T, StoppedTable(a_stop(cause=cause)))
        stage.carry_out(sql)
        assert (stage.again, [e for e in stage.writer.events() if e.source.table == "t"]) == (notified, [])


@pytest.mark.parametrize(
    "sql", ["RENAME TABLE other.x TO new", "ALTER TABLE other.x CONVERT PARTITION p0 TO TABLE new"]
)
def test_without_snapshots_a_table_that_comes_with_rows_stops(sql: str) -> None:
    new = ("bank", "new")
    stage = Stage(now={new: account_table(name="new")}, snapshots=False)
    assert stage.carry_out(sql) == {new: "rows-replaced"}
    assert new in stage.captured.known
    assert (
        Stage(now={new: account_table(name="new")}, snapshots=False).carry_out("CREATE TABLE new (i INT)")
        == {}
    )


GHOST = ("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD COLUMN x INT")


@pytest.mark.parametrize(
    "swap",
    [
        ("RENAME TABLE t TO _t_del, _t_gho TO t",),
        ("ALTER TABLE t RENAME _t_del", "ALTER TABLE _t_gho RENAME t"),
    ],
)
def test_a_swap_of_a_tool_is_an_alter(swap: tuple[str, ...]) -> None:
    stage = Stage(now={T: wider(account_table(name="t")), ("bank", "_t_del"): account_table(name="_t_del")})
    stage.tools = True
    for sql in (*GHOST, *swap):
        assert stage.carry_out(sql) == {}
    (event,) = stage.writer.events()
    assert (event.ddl, event.effect, event.columns) == (swap[-1], None, ColumnChanges(added=("x",)))
    assert event.definition == stage.now[T]
    assert stage.captured.tables[T].table == event.definition
    assert stage.changed == [T]


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (("RENAME TABLE t TO _t_del, _t_gho TO t",), "CREATE TABLE was not seen"),
        ((*GHOST, "RENAME TABLE t TO _t_del, other.x TO t"), "only one of the two renamed tables"),
        ((*GHOST, "RENAME TABLE t TO x, _t_gho TO t"), "only one of the two renamed tables"),
        ((*GHOST, "ALTER TABLE _t_gho ADD UNIQUE (x)", "RENAME TABLE t TO _t_del, _t_gho TO t"), "skips rows"),  # noqa: E501
        ((*GHOST, "ALTER TABLE t RENAME _t_del", "CREATE TABLE t (id INT)"), "had its rows replaced"),
        ((*GHOST, "ALTER TABLE t RENAME _t_del", "CREATE TABLE IF NOT EXISTS t (id INT)"), "had its rows replaced"),  # noqa: E501
        ((*GHOST, "ALTER TABLE t RENAME _t_del", "RENAME TABLE other.x TO t"), "only one of the two renamed tables"),  # noqa: E501
    ],
)  # fmt: skip
def test_a_swap_that_no_tools_statements_explain_stops(statements: tuple[str, ...], why: str) -> None:
    stage = Stage(now={T: wider(account_table(name="t"))})
    stage.tools = True
    if "CREATE" in why:
        statements = ("ALTER TABLE _t_gho ADD COLUMN x INT", *statements)
    for sql in statements[:-1]:
        assert stage.carry_out(sql) == {}
    error = stage.error(statements[-1], ImpactedTables(frozenset()))
    assert (error.parts[0].cause, error.parts[0].tables) == ("rows-replaced", {T})
    assert why in error.parts[0].reason
    assert error.parts[0].remedy == "rowlock copy bank.t"
    assert stage.writer.events() == []


def test_a_swap_whose_definition_is_not_there_stops() -> None:
    stage = Stage(now={T: "bank.t has no key: add one"})
    stage.tools = True
    for sql in GHOST:
        stage.carry_out(sql)
    assert stage.carry_out("RENAME TABLE t TO _t_del, _t_gho TO t") == {T: "unfit"}


def test_a_table_in_which_a_tool_works_is_not_taken_up() -> None:
    choice = TableChoice(
        ["bank.*", "bank._u_new"], NameRules(), started(Stage().captured), enable_all_tools().names
    )
    selected = [
        name for name in ("_t_gho", "_t_del", "_u_new", "_x_new", "t") if choice.is_selected("bank", name)
    ]
    assert selected == ["_u_new", "_x_new", "t"]


def test_stops_say_how_the_table_is_copied_again() -> None:
    stage = Stage()
    for sql, remedy in (
        ("DROP TABLE t", "if capture does not notice the new table, rowlock copy bank.t"),
        ("REPAIR TABLE t", "rowlock copy bank.t"),
        ("UPDATE t SET a = 1", "rowlock copy bank.t"),
    ):
        assert stage.error(sql, ImpactedTables(frozenset([T]))).remedy.endswith(remedy)


def test_logged_changes_stop_what_they_reach() -> None:
    assert Stage(reach=ImpactedTables(frozenset([U, ("bank", "uncaptured")]))).carry_out(
        "UPDATE v SET a = 1"
    ) == {U: "statement"}
    assert (
        Stage(reach=ImpactedTables(frozenset([("bank", "uncaptured")]))).carry_out("DELETE FROM uncaptured")
        == {}
    )
    assert Stage(reach=ImpactedTables(None, "hidden: GRANT")).carry_out("CALL p()") == {
        T: "statement",
        U: "statement",
    }


def test_a_table_made_from_a_query_in_a_statement_may_reach_others() -> None:
    stage = Stage(reach=ImpactedTables(frozenset([T])), now={("bank", "new"): account_table(name="new")})
    assert stage.carry_out("CREATE TABLE new AS SELECT f(1)") == {T: "statement"}
    assert [event.op for event in stage.writer.events()] == ["m"]
    assert Stage(reach=ImpactedTables(frozenset([T]))).carry_out("CREATE TABLE new2 (id INT)") == {}


def test_names_compare_as_the_server_compares_them() -> None:
    assert Stage(names=NameRules(folds=True)).carry_out("DROP TABLE BANK.T") == {T: "dropped"}
    assert Stage(names=NameRules(folds=True)).carry_out("DROP DATABASE Bank") == {T: "dropped", U: "dropped"}
    assert Stage().carry_out("DROP TABLE T") == {}


def test_a_stop_by_a_statement_that_nobody_can_read_names_no_value() -> None:
    """In MariaDB's sql_mode MSSQL, brackets quote names."""
    stage = Stage()
    barriers = stage.barriers()
    sql = "INSERT INTO [t] VALUES (4711, 'secret')"
    barrier = Barrier(HEADER, parse_statement(LoggedStatement("bank", sql)), 0, 720)
    transaction = TransactionContext(
        id="x", gtid=None, file="binlog.000003", file_number=3, pos=700, ts_ms=7, server_id=1, made_ms=7
    )
    _, error = barriers.carry_out(barrier, stage.concern().list_affected_tables(barrier), transaction)
    assert isinstance(error, TableStoppedError)
    assert {name for part in error.parts for name in part.tables or ()} == {T, U}
    assert "INSERT INTO" in str(error)
    assert "secret" not in str(error)
    assert "4711" not in str(error)
