"""Limits of a target's server: one of the table stops its change with a remedy, one that a row meets refuses
that row."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.errors import (
    ConsumerError,
    RefusedError,
    TableTooLargeError,
    TargetConfigError,
    UniqueViolationError,
)
from consumer.ordering.model import NetChange
from consumer.targets.alterations import AddColumn, AddUnique, Alteration, AlterTable, ChangeColumn
from consumer.targets.checks.table_findings import check_table
from consumer.targets.mysql import alterer, catalog
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from tests.kits.alter import Altered, column
from tests.kits.targets import Lane, Target, as_target, index, people, rows_of, text_type

MYSQL = ("mysql", "mariadb")
LATIN = "latin1_bin"


def varchar(length: int, collation: str = "utf8mb4_bin") -> ColumnType:
    return replace(text_type(length, collation), charset=collation.partition("_")[0])


def keyed(
    target: Target, *types: ColumnType, prefix: int | None = None, more: tuple[Column, ...] = ()
) -> Table:
    """A table with a key of `types`."""
    columns = tuple(column(f"k{at}", each, null=False) for at, each in enumerate(types))
    parts = tuple(IndexPart(column=each.name, prefix=prefix) for each in columns)
    return Table(
        db=target.schema,
        name="wide",
        columns=(*columns, *more),
        key=UniqueIndex(name="PRIMARY", parts=parts),
    )


def filled(target: Target, *types: ColumnType) -> Table:
    """A table with a short key and other columns of `types`."""
    more = tuple(column(f"c{at}", each, null=False) for at, each in enumerate(types))
    return keyed(target, ColumnType(kind=Kind.INT, bits=32), more=more)


#: 8 + 9 + 8 + 5 + 3 + 1 + 1 + 2 + 1 + 4 = 42 bytes
MIXED = (
    ColumnType(kind=Kind.INT, bits=64),
    ColumnType(kind=Kind.DECIMAL, precision=20, scale=2),
    ColumnType(kind=Kind.DATETIME, fsp=6),
    ColumnType(kind=Kind.TIME, fsp=3),
    ColumnType(kind=Kind.DATE),
    ColumnType(kind=Kind.YEAR),
    ColumnType(kind=Kind.ENUM, members=("a", "b"), charset="utf8mb4", collation="utf8mb4_bin"),
    ColumnType(
        kind=Kind.SET, members=tuple(string.ascii_letters[:9]), charset="utf8mb4", collation="utf8mb4_bin"
    ),
    ColumnType(kind=Kind.CHAR, length=1, charset="latin1", collation=LATIN),
    ColumnType(kind=Kind.TIMESTAMP),
)


def with_table_of(name: str, target: Target, more: int) -> Table:
    """Return a table that is at a limit, or `more` beyond it."""
    match name:
        case "key of characters":
            return keyed(target, varchar(768 + more))
        case "key of bytes":
            return keyed(target, varchar(3072 + more, LATIN))
        case "key of many types":
            return keyed(target, *MIXED, ColumnType(kind=Kind.VARBINARY, length=3072 - 42 + more))
        case "key of a prefix":
            return keyed(target, varchar(1000), prefix=768 + more)
        case "key of a prefix of bytes":
            return keyed(target, ColumnType(kind=Kind.BLOB, length=65_535), prefix=3072 + more)
        case "key of many columns":
            return keyed(target, *[ColumnType(kind=Kind.INT, bits=8)] * (PARTS[target.kind] + more))
        case "columns":
            return filled(target, *[ColumnType(kind=Kind.INT, bits=8)] * (1016 + more))
        case "row":
            return filled(target, varchar(32_765, LATIN), varchar(65_535 - 4 - 32_767 - 2 + more, LATIN))
        case _:
            assert name == "row of nullable columns"
            nullable = [column(f"n{at}", varchar(80, LATIN)) for at in range(9)]  # two bytes for their NULLs
            return keyed(
                target,
                ColumnType(kind=Kind.INT, bits=32),
                more=(*nullable, column("v", varchar(65_535 - 4 - 9 * 81 - 2 - 2 + more, LATIN), null=False)),
            )


PARTS = {"mysql": 16, "mariadb": 32}
LIMITS = (
    "key of characters", "key of bytes", "key of many types", "key of a prefix", "key of a prefix of bytes",
    "key of many columns", "columns", "row", "row of nullable columns",
)  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_a_table_beyond_a_limit_is_refused_by_check_and_creation(target: Target, name: str) -> None:
    if target.kind not in MYSQL:
        pytest.skip("its limits are others")
    session = target.open()
    beyond = with_table_of(name, target, 1)
    [finding] = check_table(session, beyond)
    assert finding.level == "error"
    assert "the limit is" in finding.message
    assert finding.remedy
    with pytest.raises(TargetConfigError, match="the limit is") as refused:
        session.create_table(beyond)
    assert refused.value.problem.remedy == finding.remedy
    at_limit = with_table_of(name, target, 0)
    assert check_table(session, at_limit) == []
    session.create_table(at_limit)
    assert session.read_table(target.schema, "wide") is not None


@pytest.mark.parametrize("name", LIMITS)
def test_a_refusal_of_the_server_is_one_of_the_table(
    target: Target, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rowlock does not compute the limit (another page size, a later server)."""
    if target.kind not in MYSQL:
        pytest.skip("its limits are others")
    monkeypatch.setattr(catalog, "refuse_table_limit", lambda *_: None)
    with pytest.raises(TargetConfigError) as refused:
        target.open().create_table(with_table_of(name, target, 1))
    assert "by hand" in refused.value.problem.remedy


def test_a_row_that_no_page_can_hold_is_refused_with_the_table(target: Target) -> None:
    """The server names neither the table nor a column."""
    if target.kind not in MYSQL:
        pytest.skip("it has no such limit of a definition")
    chars = ColumnType(kind=Kind.CHAR, length=255, charset="latin1", collation=LATIN)
    with pytest.raises(TableTooLargeError) as refused:
        target.open().create_table(filled(target, *[chars] * 50))
    assert refused.value.problem.what == (
        f"target table {target.schema}.wide: its 51 columns may take 12754 bytes in a page "
        "(the longest: c0 255, c1 255, c2 255), and the limit is 8126"
    )
    assert "TEXT or BLOB by hand" in refused.value.problem.remedy


def test_a_table_with_too_many_columns_of_any_length_is_told_to_have_fewer(target: Target) -> None:
    """A TEXT takes as much of the page as they do."""
    if target.kind not in MYSQL:
        pytest.skip("it has no such limit of a definition")
    with pytest.raises(TableTooLargeError, match=r"\(the longest: c0 (20|40), c1") as refused:
        target.open().create_table(filled(target, *[ColumnType(kind=Kind.BLOB, length=65_535)] * 450))
    assert "fewer columns" in refused.value.problem.remedy


def test_a_change_after_which_no_page_can_hold_a_row_is_refused(target: Target) -> None:
    if target.kind not in MYSQL:
        pytest.skip("it has no such limit of a definition")
    if target.kind == "mysql" and (8,) <= target.version < (9,):
        pytest.skip("an ADD COLUMN that is instant does not look at the page")
    altered = Altered.made(target)
    before = altered.real
    chars = ColumnType(kind=Kind.CHAR, length=255, charset="latin1", collation=LATIN)
    with pytest.raises(TableTooLargeError, match=r"c0 255, c1 255, c2 255\), and the limit is 8126"):
        altered.alter(*(AddColumn(column(f"c{at}", chars)) for at in range(50)))
    assert altered.real == before


def test_unique_indexes_beyond_a_limit_are_left_out_and_reported(target: Target) -> None:
    session, table = target.open(), people(target.schema)
    ints = tuple(column(f"n{at}", ColumnType(kind=Kind.INT, bits=32)) for at in range(33))
    of_columns = index("many", *(each.name for each in ints[: 33 if target.kind == "mariadb" else 17]))
    columns = [replace(each, type=text_type(769)) if each.name == "mail" else each for each in table.columns]
    wide = replace(table, columns=(*columns, *ints), unique=(*table.unique, of_columns))
    found = check_table(session, wide)
    left_out = ["many"] if target.has_whole_texts else ["mail", "many"] if target.kind in MYSQL else []
    assert [each.level for each in found] == ["warning"] * len(left_out)
    for name, each in zip(left_out, found, strict=True):
        assert f"unique index {name} (" in each.message
        assert "and the limit is" in each.message
    session.create_table(wide)
    real = session.read_table(target.schema, "people")
    assert real is not None
    assert len(real.unique) == 3 - len(left_out)


def test_more_unique_indexes_than_a_table_may_have_are_left_out(target: Target) -> None:
    if target.kind not in MYSQL:
        pytest.skip("it has no such limit")
    session = target.open()
    table = filled(target, *[ColumnType(kind=Kind.INT, bits=32)] * 64)
    table = replace(table, unique=tuple(index(f"u{at}", f"c{at}") for at in range(64)))
    [finding] = check_table(session, table)
    assert "u63 (c63), which is beyond the limit of 64 indexes" in finding.message
    session.create_table(table)
    real = session.read_table(target.schema, "wide")
    assert real is not None
    assert len(real.unique) == 63


def long_text(length: int) -> str:
    """A text that no server compresses."""
    return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))


# -- changes of a table


STEPS: dict[str, tuple[Alteration, ...]] = {
    "index": (AddUnique(index("notes", "note", "mail", "extra")),),
    "widened column of an index": (
        ChangeColumn(column("mail", text_type(60)), column("mail", text_type(800)), lossless=True),
    ),
    "row": (AddColumn(column("v", varchar(16_300))),),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("computed", [True, False])
def test_a_change_beyond_a_limit_is_refused_and_changes_nothing(
    target: Target, name: str, computed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target.kind not in MYSQL:
        pytest.skip("its limits are others")
    altered = Altered.made(target)
    altered.alter(AddColumn(column("extra", text_type(700))))
    before = altered.real
    if not computed:
        monkeypatch.setattr(alterer, "refuse_table_limit", lambda *_: None)
        monkeypatch.setattr(alterer, "refuse_index_limit", lambda *_: None)
    if target.has_whole_texts and name != "row":
        altered.alter(*STEPS[name])  # the index compares hashes
        return
    with pytest.raises(TargetConfigError) as refused:
        altered.alter(*STEPS[name])
    assert refused.value.problem.remedy
    assert "by hand as the source's is" not in refused.value.problem.remedy
    if computed:
        assert "the limit is" in refused.value.problem.what
        named = {"index": "notes", "widened column of an index": "mail", "row": "v"}[name]
        assert named in refused.value.problem.what
    assert altered.real == before


def test_an_index_that_the_server_has_does_not_stop_another_change(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is computed of it: another page size, or an index that a person made."""
    if target.kind not in MYSQL:
        pytest.skip("its limits are others")
    altered = Altered.made(target)
    monkeypatch.setattr("consumer.targets.mysql.limits.MAX_KEY_BYTES", 10)
    monkeypatch.setattr(alterer, "refuse_table_limit", lambda *_: None)
    altered.alter(AddColumn(column("extra", ColumnType(kind=Kind.INT, bits=32))))
    assert altered.real.unique
    assert "extra" in altered.real.column_names


def test_more_columns_than_the_server_has_are_refused(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = ColumnType(kind=Kind.INT, bits=8)
    limit = 1600 if target.kind == "postgres" else 1017
    session = target.open()
    [finding] = check_table(session, filled(target, *[tiny] * limit))
    assert f"it has {limit + 1} columns, and the limit is {limit}" in finding.message
    table = filled(target, *[tiny] * (limit - 1))
    assert check_table(session, table) == []
    session.create_table(table)
    real = session.read_table(target.schema, "wide")
    assert real is not None
    altered = Altered(target, session, Lane.start(session))
    for computed in (True, False):
        if not computed:
            monkeypatch.setattr(alterer, "refuse_table_limit", lambda *_: None)
        with pytest.raises(TargetConfigError, match="columns") as refused:
            altered.run(AlterTable(real, [AddColumn(column("more", tiny))]))
        assert "fewer columns" in refused.value.problem.remedy


# -- rows


def refused_alone(target: Target, table: Table, good: list[Row], bad: Row, match: str) -> None:
    """Assert that the target refuses `bad`, with its limit and a remedy, and takes every other row."""
    session = target.open()
    lane, wrapped = Lane.start(session), as_target(table)
    for many in (0, 150):  # in direct statements, and by COPY
        rows = [*good, *((at, str(at), *good[0][2:]) for at in range(100, 100 + many))]
        for net in ({"replaces": [*rows, bad]}, {"updates": [*rows, bad]}, {"snapshot": [*rows, bad]}):
            with pytest.raises(RefusedError, match=match) as refused:
                lane.apply_net_change(NetChange(wrapped, **net))  # type: ignore[arg-type]
            assert not isinstance(refused.value, UniqueViolationError)
            assert "rowlock quarantine retry" in refused.value.problem.remedy
    assert rows_of(session, wrapped) == []
    lane.apply_net_change(NetChange(wrapped, replaces=good))
    assert rows_of(session, wrapped) == good


def test_an_index_entry_that_is_too_long_refuses_its_row(target: Target) -> None:
    if target.kind != "postgres":
        pytest.skip("a longer value has no place in its columns")
    text = ColumnType(kind=Kind.TEXT, length=2**24 - 1, charset="utf8mb4", collation="utf8mb4_bin")
    table = filled(target, text)
    table = replace(table, unique=(index("of_text", "c0"),))
    session = target.open()
    assert check_table(session, table) == [], "how long its values are is not known"
    session.create_table(table)
    refused_alone(target, table, [(1, "a"), (2, "b" * 9000)], (3, long_text(9000)),
                  r"index row (size|requires) \d+ bytes.*maximum|index row size \d+ exceeds")  # fmt: skip


def test_a_row_that_is_larger_than_a_page_is_refused(target: Target) -> None:
    if target.kind == "postgres":  # each long value takes 18 bytes
        text = ColumnType(kind=Kind.TEXT, length=65_535, charset="utf8mb4", collation="utf8mb4_bin")
        table = filled(target, *[text] * 500)
        target.open().create_table(table)
        good: list[Row] = [(1, *[""] * 500)]
        match = r"row is too big: size \d+, maximum size \d+"
        bad: Row = (3, *[long_text(2500)] * 500)
    else:
        table = filled(target, *[varchar(255, LATIN)] * 40)
        listed = ", ".join(f"c{at} varchar(255) CHARACTER SET latin1 NOT NULL" for at in range(40))
        create_lenient(target, f"CREATE TABLE wide (k0 int PRIMARY KEY, {listed}) ENGINE=InnoDB")
        good = [(1, *[""] * 40)]
        match = r"Row size too large"
        bad = (3, *["x" * 255] * 40)
    refused_alone(target, table, good, bad, match)


def create_lenient(target: Target, ddl: str) -> None:
    """Create a table of MySQL whose rows may be larger than a page has room for."""
    connection: Any = target.service.connect(target.database, autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_strict_mode = OFF")
        cursor.execute(ddl)
    connection.close()


def test_a_row_whose_undo_log_is_too_long_is_refused(target: Target) -> None:
    if target.kind != "mysql":
        pytest.skip("it has no such limit")
    many = 20
    table = filled(target, *[varchar(760)] * many)
    table = replace(table, unique=tuple(index(f"u{at}", f"c{at}") for at in range(many)))
    session = target.open()
    session.create_table(table)
    lane, wrapped = Lane.start(session), as_target(table)

    def row(key: int, length: int) -> Row:
        return (key, *(f"{key} {at} {'x' * length}" for at in range(many)))

    good = [row(1, 5), row(2, 5)]
    lane.apply_net_change(NetChange(wrapped, replaces=[*good, row(3, 700)]))
    lane.apply_net_change(NetChange(wrapped, updates=good))
    with pytest.raises(ConsumerError) as refused:
        lane.apply_net_change(NetChange(wrapped, updates=[row(3, 710)]))
    assert isinstance(refused.value, RefusedError), refused.value
    assert "rowlock quarantine retry" in refused.value.problem.remedy
