"""Oracle's dialect passes the tests of the real targets, on H2 in Oracle mode: the same functions. What H2
cannot show is named, and is shown by golden texts (tests/unit/test_oracle_texts.py)."""

from __future__ import annotations

import contextlib

import pytest
from msgspec.structs import replace

from consumer.errors import (
    LockWaitError,
    NotUniqueError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.ordering.model import NetChange
from consumer.targets.alterations import AddColumn, AddUnique, AlterTable, DropUnique, apply_alterations
from consumer.targets.checks.table_findings import check_table
from schemas.table.model import Column, ColumnType, Kind, Row, Table, Value
from tests import real_oracle
from tests.conformance import (
    targets_alter,
    targets_apply,
    targets_attempts,
    targets_catalog,
    targets_history,
    targets_session,
    targets_zombie,
)
from tests.conformance.suite import suite
from tests.conformance.targets_catalog import judged
from tests.kits.alter import ROWS, Altered
from tests.kits.attempts import reals
from tests.kits.targets import (
    Lane,
    OracleTarget,
    Target,
    as_target,
    index,
    people,
    rows_of,
    targets,
    text_type,
)

target = targets("oracle")
real = reals("oracle")

MODULES = (
    targets_session, targets_apply, targets_history, targets_zombie, targets_attempts,
)  # fmt: skip
#: Tests that say nothing of Oracle's dialect on H2, and why.
EXCLUDED = {
    "test_a_commit_that_readers_see_survives_a_crash": "about settings of the tests' servers",
    "test_postgres_finds_the_rows_of_a_gather_by_their_key": "about a planner",
    "test_rows_under_a_unique_prefix_are_found": "it has no prefix indexes",
    "test_a_row_larger_than_the_target_takes_is_refused": "it has no such limit",
    "test_keys_that_the_target_alone_holds_equal_go_to_one_lane": "about collations of PostgreSQL",
    "test_a_key_that_changes_its_case_only": "about collations, and Oracle compares exactly",
    "test_a_snapshot_gives_a_key_the_form_that_was_read": "about collations, and Oracle compares exactly",
}
#: What needs H2: a stand's catalog that a test fills, a port of this machine, or a server that the test
#: stops.
ON_H2_ALONE = {
    "test_a_commit_of_unknown_outcome_says_so",
    "test_a_lost_connection_is_transient_and_the_session_recovers",
    "test_a_wrong_password_and_a_closed_port_are_told_apart", "test_what_check_refuses",
    "test_rights_are_read_from_the_catalogue",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _where_it_can_run(request: pytest.FixtureRequest) -> None:
    if real_oracle.dsn() and request.function.__name__ in ON_H2_ALONE:
        pytest.skip("it needs H2")


ALL = suite(*MODULES)
globals().update({name: each for name, each in ALL.items() if name not in EXCLUDED})


def test_what_is_left_out_is_there_elsewhere() -> None:
    assert EXCLUDED.keys() <= ALL.keys()
    assert globals().keys() >= ON_H2_ALONE


#: Names that Oracle cannot have; and changes that are refused before anything is done, for one of their
#: statements would have to be taken back where the next one fails.
NAMES = {"add a hostile name", "rename of the key and of a unique column"}
NOT_DONE = {
    "everything at once", "key", "names change places", "lossy and not null", "lossy to another kind",
    "lossy to json", "lossy without room",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(targets_alter.CASES.keys() - NOT_DONE - NAMES))
def test_a_changed_table_is_one_that_it_would_make(target: Target, name: str) -> None:
    targets_alter.test_a_changed_table_is_one_that_rowlock_would_make(target, name)


def test_changes_that_are_not_done_leave_the_table_as_it_was(target: Target) -> None:
    fixture = Altered.made(target)
    before = fixture.real
    for name in sorted(NOT_DONE):
        with pytest.raises(
            TargetConfigError, match=r"is not changed as the source's was.*: change the target table by hand"
        ):
            fixture.run(AlterTable(before, targets_alter.CASES[name].steps(before)))
        assert fixture.real == before
    for name in sorted(NAMES):
        with pytest.raises(TargetConfigError, match="without quotation marks"):
            fixture.run(AlterTable(before, targets_alter.CASES[name].steps(before)))
        assert fixture.real == before
    table = people(target.schema)
    assert fixture.rows(table) == target.holds(table, ROWS)


#: (type, values of a column of it, at their ends).
ENDS: list[tuple[ColumnType, tuple[Value, ...]]] = [
    (ColumnType(kind=Kind.INT, bits=64, unsigned=True), (str(2**64 - 1), 0, None)),
    (ColumnType(kind=Kind.INT, bits=8), (-128, 127, None)),
    (ColumnType(kind=Kind.BIT, length=64), (str(2**64 - 1), 0, None)),
    (ColumnType(kind=Kind.YEAR), (1901, 2155, None)),
    (ColumnType(kind=Kind.DECIMAL, precision=38, scale=10),
     ("-" + "9" * 28 + "." + "9" * 10, "0.0000000001", None)),
    (ColumnType(kind=Kind.DECIMAL), ("-" + "9" * 28 + "." + "9" * 10, "0.1", None)),
    (ColumnType(kind=Kind.DOUBLE), (1.7976931348623157e308, 5e-324, None)),
    (ColumnType(kind=Kind.FLOAT), (3.4028234663852886e38, 16777216.0, None)),
    (text_type(1000), ("ü" * 1000, " ä%s'\\\n\t ", None)),
    (ColumnType(kind=Kind.TEXT, length=65535), ("x" * 70_000, "ü", None)),
    (ColumnType(kind=Kind.VARBINARY, length=2000), ("AP8l" * 600, "AA==", None)),
    (ColumnType(kind=Kind.BLOB, length=65535), ("AP8l" * 30_000, "AA==", None)),
    (ColumnType(kind=Kind.DATE), ("0001-01-01", "9999-12-31", None)),
    (ColumnType(kind=Kind.DATETIME), ("1000-01-01 00:00:00", "9999-12-31 23:59:59", None)),
    (ColumnType(kind=Kind.DATETIME, fsp=6),
     ("0001-01-01 00:00:00.000001", "2020-02-29 12:00:00.100000", None)),
    (ColumnType(kind=Kind.TIMESTAMP, fsp=3), ("1970-01-01T00:00:01.000Z", "2038-01-19T03:14:07.999Z", None)),
    (ColumnType(kind=Kind.TIME, fsp=6), ("-838:59:58.000001", "00:00:00.000000", None)),
    (ColumnType(kind=Kind.JSON), ('{"a": 1.0, "ä": [null]}', "null", None)),
    (ColumnType(kind=Kind.ENUM, members=("a", "b")), ("b", "a", None)),
]  # fmt: skip


def test_every_type_comes_back_as_it_was_written(target: Target) -> None:
    columns = [Column(name="id", type=ENDS[0][0], nullable=False)]
    columns += [Column(name=f"c{at}", type=type_) for at, (type_, _) in enumerate(ENDS)]
    table = Table(db=target.schema, name="ends", columns=tuple(columns), key=index("PRIMARY", "id"))
    session = target.open()
    session.create_table(table)
    real = session.read_table(target.schema, "ends")
    assert real is not None
    assert [finding.message for finding in check_table(session, table)] == []
    lane, wrapped = Lane.start(session), as_target(table)
    rows: list[Row] = [(at, *(values[at] for _, values in ENDS)) for at in range(3)]
    lane.apply_net_change(NetChange(wrapped, replaces=rows))
    assert rows_of(session, wrapped) == rows
    turned: list[Row] = [(at, *(values[at - 1] for _, values in ENDS)) for at in range(4 - 1)]
    lane.apply_net_change(NetChange(wrapped, updates=[*turned, (9, *rows[0][1:])]))
    assert rows_of(session, wrapped) == [*turned, (9, *rows[0][1:])]


def test_partly_null_values_are_equal_in_an_index_of_ones_own_and_not_in_ours(target: Target) -> None:
    """Oracle holds (de, NULL) and (de, NULL) equal. An index that rowlock makes keeps such rows out; another
    is refused by `check`."""
    session = target.open()
    table = people(target.schema)
    session.create_table(table)
    lane, wrapped = Lane.start(session), as_target(table)
    alike: list[Row] = [(each, None, "de", None, None) for each in range(3)]
    lane.apply_net_change(NetChange(wrapped, replaces=alike))
    assert rows_of(session, wrapped) == alike
    target.sql("DELETE FROM people")
    target.sql("CREATE UNIQUE INDEX mine ON people (land, passport)")
    real = session.read_table(target.schema, "people")
    assert real is not None
    [mine] = [each for each in real.unique if each.name == "MINE"]
    assert not mine.nulls_distinct
    assert "treats NULLs as equal" in " ".join(each.message for each in check_table(session, table))
    strict = as_target(replace(table, unique=(*table.unique, mine)))
    lane.apply_net_change(NetChange(strict, replaces=alike[:1]))
    with pytest.raises(UniqueViolationError):
        lane.apply_net_change(NetChange(strict, replaces=alike[1:2]))
    assert lane.apply_net_change(NetChange(strict, replaces=alike[1:2]), displacing="{}") == 1
    empty: list[Row] = [(each, None, None, None, None) for each in range(5, 7)]
    assert lane.apply_net_change(NetChange(strict, replaces=empty), displacing="{}") == 0, (
        "all NULL never collides"
    )
    assert rows_of(session, strict) == [alike[1], *empty]


#: What `check` refuses of a table (of targets_catalog.CASES); "other type" is shown by its own words.
def test_what_check_refuses(target: Target) -> None:
    more = {
        "always": (
            ["ALTER TABLE {t} ADD n NUMBER(10) GENERATED ALWAYS AS IDENTITY"],
            "GENERATED ALWAYS",
            "n",
        ),
        "filled with blanks": (
            ["ALTER TABLE {t} ADD code CHAR(9)", "CREATE UNIQUE INDEX code ON {t} (code)"],
            "column code of unique index CODE is CHAR, which Oracle pads with blanks",
            "",
        ),
        "policy": (
            ["INSERT INTO SYS.ALL_POLICIES VALUES ('ROWLOCK', 'PEOPLE', 'P', 'YES')"],
            "row level policies (P)",
            "",
        ),
    }
    cases = {
        name: (ddl, reported, "")
        for name, (ddl, reported) in targets_catalog.CASES.items()
        if name != "other type"
    }
    cases["other type"] = (
        ["ALTER TABLE {t} DROP COLUMN note", "ALTER TABLE {t} ADD note TIMESTAMP(3)"],
        "column note is datetime in the target",
        "",
    )
    for name, (ddl, reported, written) in {**cases, **more}.items():
        table = people(target.schema)
        if written:
            table = replace(table, columns=(*table.columns, Column(name=written, type=ENDS[1][0])))
        found = judged(target, ddl, table)
        assert reported in " | ".join(each.message for each in found if each.level == "error"), (
            f"{name}: {found}"
        )
        assert all(each.remedy for each in found)
        for dropped in ("child", "people", "parent"):
            target.sql(f"DROP TABLE IF EXISTS {dropped}")


def test_rights_are_read_from_the_catalogue(target: Target) -> None:
    session = target.open()
    place = (target.schema, "people")
    assert session.find_missing_rights([place], create=True, alter=[place], drop=[place]) == []
    target.sql("DELETE FROM SYS.SESSION_PRIVS WHERE privilege LIKE 'CREATE %'")
    target.sql("CREATE SCHEMA bank")
    target.sql("CREATE TABLE bank.acct (id NUMBER(10) PRIMARY KEY)")
    target.sql(
        "INSERT INTO SYS.ALL_TAB_PRIVS VALUES ('ROWLOCK', 'BANK', 'ACCT', 'SELECT'), ('PUBLIC', 'BANK', "
        "'ACCT', 'UPDATE'), ('NOBODY', 'BANK', 'ACCT', 'DELETE')"
    )
    found = session.find_missing_rights([place, ("bank", "acct")], create=True)
    assert [each.statement for each in found] == [
        'GRANT CREATE TABLE, CREATE SEQUENCE TO "ROWLOCK";',
        'GRANT CREATE TABLE TO "ROWLOCK";',
        'GRANT INSERT, DELETE ON "BANK"."ACCT" TO "ROWLOCK";',
    ]
    session.probe_blockers()
    assert session.probe_durability() is None


def test_rows_that_are_equal_keep_an_index_from_being_built(target: Target) -> None:
    """What was done before it stays done: the attempt works the rest out anew, without the index."""
    twice: list[Row] = [(1, "a", "de", 1, "same"), (2, "b", "de", 2, "same")]
    fixture, expected = Altered.made(target, twice), index("by note", "note")
    with pytest.raises(NotUniqueError, match=r"\(note\)[\s\S]*HAVING COUNT") as refused:
        fixture.alter(AddColumn(Column(name="n", type=ENDS[1][0])), AddUnique(expected))
    assert refused.value.index == expected
    assert "same" not in str(refused.value), "values of rows are in no message"
    assert fixture.real.column_names == (*people("").column_names, "n")
    assert fixture.rows(fixture.real) == [
        (str(row[0]), *row[1:3], str(row[3]), row[4], None) for row in twice
    ]


def test_a_unique_constraint_is_dropped_as_one(target: Target) -> None:
    """Its index goes with it, and could not be dropped alone (ORA-02429)."""
    made = Altered.made(target)
    target.sql("ALTER TABLE people ADD CONSTRAINT one_note UNIQUE (note)")
    [own] = [each for each in made.real.unique if each.columns == ("note",)]
    made.alter(DropUnique(own))
    assert all(each.columns != ("note",) for each in made.real.unique)
    made.lane.apply_net_change(
        NetChange(as_target(made.real), updates=[(each, None, None, None, "same") for each in (1, 2)])
    )


def test_a_change_is_made_over_the_connection_of_its_mark_alone(target: Target) -> None:
    """Who takes the unit over ends the connection, and the change is not made over another one."""
    made = Altered.made(target)
    change, before = AlterTable(made.real, [AddColumn(Column(name="n", type=ENDS[1][0]))]), made.real
    number = made.session.get_connection_id()
    other = target.open()
    other.end_connection(number)
    with pytest.raises(TransientError):
        made.session.alter_table(change, connection=number)
    assert made.session.get_connection_id() != number
    with pytest.raises(TransientError, match="the process that owns the unit now may have ended it"):
        made.session.alter_table(change, connection=number)
    assert made.real == before
    made.session.alter_table(change, connection=made.session.get_connection_id())
    assert made.real.column_names == apply_alterations(change).column_names


def test_a_table_in_use_is_waited_for_and_its_holder_named(target: OracleTarget) -> None:
    made = Altered.made(target)
    change = AlterTable(made.real, [AddColumn(Column(name="n", type=ENDS[1][0]))])
    with contextlib.closing(target._open()) as other:
        other.cursor().execute("INSERT INTO people (id) VALUES (99)")
        with pytest.raises(LockWaitError, match="ROWLOCK"):
            made.session.alter_table(change, connection=made.session.get_connection_id())
        other.rollback()
    made.session.alter_table(change, connection=made.session.get_connection_id())
    assert made.real.column_names == apply_alterations(change).column_names


test_what_refers_to_a_table = targets_alter.test_what_refers_to_a_table_keeps_it_from_being_dropped
test_a_table_that_somebody_else_changed = targets_alter.test_a_table_that_somebody_else_changed_is_left_alone
