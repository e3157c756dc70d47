"""Net changes on every kind of target: what ends up in the table, and that nothing else does."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace as replace_struct

from consumer.errors import FencedError, RefusedError, TransientError, UniqueViolationError
from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.ordering.netchange import replace_snapshot_rows
from consumer.tables.router import build_key_table, build_target_table
from consumer.targets.postgres.sql import build_postgres_plan
from consumer.targets.sql import join_conditions
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, UniqueIndex
from tests.kits.targets import Lane, Target, as_target, index, people, rows_of, text_type

PEOPLE = 200  # more than what goes in direct statements


def person(
    id_: int, mail: str | None = None, land: str | None = None, passport: int | None = None, note: str = "n"
) -> Row:
    return (id_, mail, land, passport, note)


def made(target: Target, table: Table) -> tuple[Lane, TargetTable]:
    session = target.open()
    session.create_table(table)
    return Lane.start(session), as_target(table)


@pytest.mark.parametrize("many", [1, PEOPLE])
def test_inserts_updates_and_deletes_repeat_to_the_same(target: Target, many: int) -> None:
    lane, table = made(target, people(target.schema))
    old = [person(each, f"{each}@old", "DE", each, "x%s\\\t'\"\n%%ü") for each in range(many)]
    for _ in range(2):
        lane.apply_net_change(NetChange(table, replaces=old))
        assert rows_of(lane.session, table) == old
    changed = [(*row[:4], "changed") for row in old]
    fresh = [person(each, None, None, each, "fresh") for each in range(many, 2 * many)]
    for _ in range(2):
        lane.apply_net_change(NetChange(table, updates=changed + fresh))
        assert rows_of(lane.session, table) == changed + fresh
    missing: list[Key] = [(each,) for each in range(0, 2 * many, 2)]
    for _ in range(2):
        lane.apply_net_change(NetChange(table, deletes=missing))
        assert rows_of(lane.session, table) == [row for row in changed + fresh if (row[0],) not in missing]


def test_postgres_finds_the_rows_of_a_gather_by_their_key(target: Target) -> None:
    """Without statistics of either table it would read the whole target table at every gather."""
    if target.kind != "postgres":
        pytest.skip("the other servers get lists of keys")
    lane, table = made(target, people(target.schema))
    lane.apply_net_change(NetChange(table, replaces=[person(each) for each in range(5000)]))
    plan, link = build_postgres_plan(table, 99), lane.session._link
    link.execute(plan.create_temporary, [])
    steps = "\n".join(str(row[0]) for row in link.execute(f"EXPLAIN {plan.delete_copied}", []))
    assert "Index Scan" in steps
    assert "Seq Scan on people" not in steps


@pytest.mark.parametrize("where", [None, {"branch": "b1"}])
def test_postgres_begins_a_page_where_the_last_one_ended(
    target: Target, where: dict[str, str] | None
) -> None:
    """Also if all keys have the same first value: each page would read the keys of all former ones."""
    if target.kind != "postgres":
        pytest.skip("the other servers make ranges of a condition for each column")
    columns = (
        Column(name="branch", type=text_type(9), nullable=False),
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
    )
    lane, table = made(
        target, Table(db=target.schema, name="many", columns=columns, key=index("PRIMARY", "branch", "id"))
    )
    lane.apply_net_change(NetChange(table, replaces=[("b1", each) for each in range(20_000)]))
    target.sql(f"VACUUM ANALYZE {target.name('many')}")
    link: Any = lane.session._link
    catalog = lane.session.catalog
    text, params = join_conditions(
        [
            *catalog.build_filter(table, where),
            *catalog.build_page_conditions(table, ("b1", 10_000), ("b1", 19_000), where),
        ]
    )
    select = f"SELECT id FROM {target.name('many')}{text} ORDER BY {catalog.build_page_order(table)} LIMIT 50"
    plan = link.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {select}", params)[0][0][0]["Plan"]["Plans"]
    assert [step["Node Type"] for step in plan] == ["Index Only Scan"]
    assert plan[0].get("Rows Removed by Filter", 0) == 0
    read = [step["Shared Hit Blocks"] + step["Shared Read Blocks"] for step in plan]
    assert read[0] <= 4, plan  # the 10,000 keys before have more than 20


@pytest.mark.parametrize("two", [False, True])
def test_rows_are_read_between_two_keys(target: Target, two: bool) -> None:
    """As a copy reads what it sweeps: behind a key, up to another one, with it."""
    expected = people(target.schema)
    expected = replace_struct(expected, key=index("PRIMARY", "passport", "id")) if two else expected
    expected = replace_struct(
        expected,
        columns=tuple(replace_struct(each,
        nullable=each.name not in expected.key.columns) for each in expected.columns)
    )  # fmt: skip
    lane, table = made(target, expected)
    rows = [person(each, None, None, each // 3) for each in range(12)]
    lane.apply_net_change(NetChange(table, replaces=rows))
    keys: list[Key] = [tuple(row[at] for at in table.key_at) for row in rows]
    for low, high in ((2, 7), (0, 11), (3, 5), (5, 5)):
        found = lane.session.fetch_rows(table, keys[low], 100, upto=keys[high])
        assert found == rows[low + 1 : high + 1]
    assert lane.session.fetch_rows(table, None, 100, upto=keys[4]) == rows[:5]


PACKED: dict[str, tuple[ColumnType, list[object]]] = {
    "signed": (ColumnType(kind=Kind.INT, bits=64), [str(-(2**63)), -(2**53), -1, 0, 7, 10, str(2**63 - 1)]),
    "unsigned": (ColumnType(kind=Kind.INT, bits=64, unsigned=True),
     [0, 9, 10, str(2**53 + 1), str(2**64 - 1)]),
    "tiny": (ColumnType(kind=Kind.INT, bits=8), [-128, 0, 127]),
    "medium": (ColumnType(kind=Kind.INT, bits=24, unsigned=True), [0, 2**24 - 1]),
    "year": (ColumnType(kind=Kind.YEAR), [0, 1901, 2155]),
    "date": (ColumnType(kind=Kind.DATE), ["0001-01-01", "0099-02-03", "2026-02-28", "9999-12-31"]),
    "datetime": (ColumnType(kind=Kind.DATETIME, fsp=3),
     ["1000-01-01 00:00:00.000", "2026-01-01 00:00:00.001", "9999-12-31 23:59:59.999"]),
    "timestamp": (ColumnType(kind=Kind.TIMESTAMP),
     ["1970-01-02T00:00:00Z", "2026-11-29T01:02:03Z", "2038-01-19T03:14:07Z"]),
}  # fmt: skip
"""Keys of kinds that are read packed, in their order."""
ZERO_DATES = ["0000-00-00", "2026-00-01", "2026-02-31"]
"""Dates that only MySQL and MariaDB have."""


@pytest.mark.parametrize("kind", PACKED)
def test_pages_of_keys_are_the_keys_of_the_rows(target: Target, kind: str) -> None:
    """However they are read: packed, packed and cut, or row by row."""
    type_, values = PACKED[kind]
    packs = target.kind in {"mysql", "mariadb"}
    if packs and kind == "date":
        values = sorted([*values, *ZERO_DATES], key=str)
    columns = (
        Column(name="n%", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="k", type=type_, nullable=False),
        Column(name="v", type=ColumnType(kind=Kind.INT, bits=32)),
    )
    lane, table = made(
        target, Table(db=target.schema, name="packed", columns=columns, key=index("PRIMARY", "n%", "k"))
    )
    rows: list[Row] = [(n, value, 1) for n in (-1, 10) for value in values]
    lane.apply_net_change(NetChange(table, replaces=rows))
    session, expected = lane.session, [row[:2] for row in rows]
    real = session.read_table(target.schema, "packed")
    assert real is not None
    keys = build_key_table(build_target_table(table.table, real))
    by_rows = replace(keys, has_same_key_kinds=False)
    assert session.catalog.select_packed_rows(by_rows) is None
    assert (session.catalog.select_packed_rows(keys) is not None) == packs
    for most in (1 << 20, *range(4, 60)) if packs else (0,):
        if packs:
            session._link.execute(f"SET SESSION group_concat_max_len = {most}", [])
        for each in (keys, by_rows) if most > 60 or not packs else (keys,):
            assert session.fetch_rows(each, None, 100) == expected
            assert session.fetch_rows(each, expected[1], 3, upto=expected[-2]) == expected[2:-1][:3]
            assert session.fetch_rows(each, None, 100, {"n%": "10"}) == expected[len(values) :]
            assert session.fetch_rows(each, expected[-1], 100) == []


def test_keys_with_an_added_column_are_read_alike_packed_and_by_rows(target: Target) -> None:
    columns = (
        Column(name="branch", type=text_type(64), nullable=False),
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
    )
    lane, table = made(
        target, Table(db=target.schema, name="many", columns=columns, key=index("PRIMARY", "branch", "id"))
    )
    branches = ["%s", "B", 'a"]\\u0041', "b1", "é😀\t"]
    rows: list[Row] = [(branch, each) for branch in branches for each in range(3)]
    lane.apply_net_change(NetChange(table, replaces=rows))
    real = lane.session.read_table(target.schema, "many")
    assert real is not None
    packed = build_key_table(build_target_table(table.table, real, ("branch",)))
    by_rows = replace(packed, has_same_key_kinds=False)
    is_packed = lane.session.catalog.select_packed_rows(packed) is not None
    assert is_packed == (target.kind in {"mysql", "mariadb"})
    session, order = (
        lane.session,
        {row: at for at, row in enumerate(lane.session.fetch_rows(by_rows, None, 99))},
    )
    assert sorted(order, key=str) == sorted(rows, key=str)
    for each in (packed, by_rows):
        assert session.fetch_rows(each, None, 99) == list(order)
        for branch, after in product(branches, rows):
            theirs = [(branch, id_) for id_ in range(3)]
            later = [row for row in theirs if order[row] > order[after]]
            assert session.fetch_rows(each, after, 2, {"branch": branch}) == later[:2]
            earlier = [row for row in theirs if order[row] <= order[after]]
            assert session.fetch_rows(each, None, 9, {"branch": branch}, upto=after) == earlier


def test_keys_of_other_types_than_the_sources_are_not_packed(target: Target) -> None:
    """A text that was altered by a person may be no number, or JSON of another one."""
    expected = people(target.schema)
    lane, _ = made(target, replace_struct(expected, columns=(
        Column(name="id", type=text_type(20), nullable=False), *expected.columns[1:],
    )))  # fmt: skip
    real = lane.session.read_table(target.schema, "people")
    assert real is not None
    table = build_key_table(build_target_table(expected, real))
    assert lane.session.catalog.select_packed_rows(table) is None


@pytest.mark.parametrize("many", [2, PEOPLE])
def test_unique_values_go_round_in_one_net_change(target: Target, many: int) -> None:
    lane, table = made(target, people(target.schema))
    lane.apply_net_change(NetChange(table, replaces=[person(each, str(each)) for each in range(many)]))
    turned = [person(each, str((each + 1) % many)) for each in range(many)]
    lane.apply_net_change(NetChange(table, replaces=turned))
    assert rows_of(lane.session, table) == turned
    back = [person(each, str(each)) for each in range(many)]
    with pytest.raises(
        UniqueViolationError
    ):  # what a snapshot read meets what the target has, whatever that is
        lane.apply_net_change(NetChange(table, snapshot=back))
    assert rows_of(lane.session, table) == turned
    assert lane.apply_net_change(NetChange(table, snapshot=back), displacing="{}") == many
    assert rows_of(lane.session, table) == back


@pytest.mark.parametrize("many", [0, PEOPLE])
@pytest.mark.parametrize("how", ["replaces", "updates", "updates_missing", "snapshot", "snapshot_missing"])
def test_a_row_of_another_key_is_never_changed_silently(target: Target, how: str, many: int) -> None:
    """`missing` is the trap of ON DUPLICATE KEY UPDATE: the row is not there, another one has its value."""
    lane, table = made(target, people(target.schema))
    before = [person(1, "a@x", "DE", 1, "theirs"), *([] if how.endswith("_missing") else [person(2, "b@x")])]
    others = [person(100 + each, f"{each}@y") for each in range(many)]
    lane.apply_net_change(NetChange(table, replaces=before + others))
    row = person(2, "a@x", note="mine")
    expected: dict[str, Any] = {how.removesuffix("_missing"): [row, *others]}
    with pytest.raises(UniqueViolationError):
        lane.apply_net_change(NetChange(table, **expected))
    assert rows_of(lane.session, table) == before + others
    assert lane.apply_net_change(NetChange(table, **expected), displacing='{"offsets":[7,9]}') == 1
    assert rows_of(lane.session, table) == [row, *others]
    [kept] = target.displaced()
    assert kept["row"]["note"] == "theirs"
    assert kept["row"]["passport"] == 1
    assert (kept["by"], kept["table"]) == ('{"offsets":[7,9]}', f"{target.schema}.people")


def test_every_displaced_row_counts_once(target: Target) -> None:
    """A row that is in the way with two of its values is one row; one change may meet several."""
    lane, table = made(target, people(target.schema))
    others = [person(1, "a@x", "DE", 1), person(2, "b@x", "DE", 2), person(3, "c@x")]
    assert lane.apply_net_change(NetChange(table, replaces=others)) == 0
    expected = [person(7, "a@x", "DE", 1), person(8, "b@x"), person(9, "free", "DE", 2)]
    assert lane.apply_net_change(NetChange(table, replaces=expected), displacing="{}") == 2
    assert lane.apply_net_change(NetChange(table, replaces=expected), displacing="{}") == 0
    assert rows_of(lane.session, table) == [others[2], *expected]
    assert len(target.displaced()) == 2
    assert lane.session.count_displaced_rows(lane.unit.pipeline) == {lane.unit.topic: 2}
    assert lane.session.count_displaced_rows("another") == {}


def test_displaced_rows_are_written_whole_with_columns_rowlock_does_not_know(target: Target) -> None:
    lane, table = made(target, people(target.schema))
    target.sql(f"ALTER TABLE {target.name('people')} ADD COLUMN extra varchar(60) DEFAULT 'only here'")
    lane.apply_net_change(NetChange(table, replaces=[person(1, "a@x")]))
    lane.apply_net_change(NetChange(table, updates=[person(1, "a@x", note="in place")]))
    target.sql(f"UPDATE {target.name('people')} SET extra = 'kept by updates in place'")
    lane.apply_net_change(NetChange(table, updates=[person(1, "a@x", note="again")]))
    lane.apply_net_change(NetChange(table, replaces=[person(2, "a@x")]), displacing="{}")
    assert target.displaced()[0]["row"]["extra"] == "kept by updates in place"


@pytest.mark.parametrize("many", [1, PEOPLE])
def test_rows_of_a_snapshot_change_what_is_there_in_place(target: Target, many: int) -> None:
    """Into an empty table, over rows of which it knows not every column, and twice: also a unique value that
    no other row has changes."""
    lane, table = made(target, people(target.schema))
    old = [person(each, f"{each}@old", "DE", each) for each in range(many)]
    for _ in range(2):
        lane.apply_net_change(NetChange(table, snapshot=old))
        assert rows_of(lane.session, table) == old
    target.sql(f"ALTER TABLE {target.name('people')} ADD COLUMN extra varchar(60) DEFAULT 'of a new row'")
    target.sql(f"UPDATE {target.name('people')} SET extra = 'its own'")
    read = [person(each, f"{each}@new", "FR", each, "read") for each in range(many)]
    fresh = [person(each, f"{each}@new", None, each, "fresh") for each in range(many, 2 * many)]
    for _ in range(2):
        lane.apply_net_change(NetChange(table, snapshot=read + fresh))
        assert rows_of(lane.session, table) == read + fresh
    found = dict(target.sql(f"SELECT id, extra FROM {target.name('people')}"))
    assert found == {each: "its own" if each < many else "of a new row" for each in range(2 * many)}
    assert target.displaced() == []


@pytest.mark.parametrize("many", [1, PEOPLE])
def test_rows_of_a_snapshot_in_one_net_change_with_others(target: Target, many: int) -> None:
    """Values that a deleted row or one that is replaced had are free for them, and what they give up is free
    for a new row."""
    lane, table = made(target, people(target.schema))
    have = [person(each, f"{each}") for each in range(3 * many)]
    lane.apply_net_change(NetChange(table, replaces=have))
    deleted, replaced, read = range(many), range(many, 2 * many), range(2 * many, 3 * many)
    lane.apply_net_change(
        NetChange(
            table,
            deletes=[(each,) for each in deleted],
            replaces=[person(each, f"{each + many}") for each in replaced],
            snapshot=[person(each, f"{each - 2 * many}") for each in read],
        )
    )
    assert rows_of(lane.session, table) == [
        *(person(each, f"{each + many}") for each in replaced),
        *(person(each, f"{each - 2 * many}") for each in read),
    ]


@pytest.mark.parametrize("many", [2, PEOPLE])
def test_rows_of_a_snapshot_that_pass_a_value_on_are_refused_in_place_and_taken_anew(
    target: Target, many: int
) -> None:
    lane, table = made(target, people(target.schema))
    have = [person(each, f"{each}@x", "DE", each) for each in range(many)]
    lane.apply_net_change(NetChange(table, replaces=have))
    around = [person(each, f"{(each + 1) % many}@x", "DE", (each + 1) % many) for each in range(many)]
    net = NetChange(table, snapshot=around)
    with pytest.raises(UniqueViolationError):
        lane.apply_net_change(net)
    assert rows_of(lane.session, table) == have
    lane.apply_net_change(replace_snapshot_rows(net))
    assert rows_of(lane.session, table) == around
    assert target.displaced() == []


def test_nulls_never_collide_and_are_never_displaced(target: Target) -> None:
    lane, table = made(target, people(target.schema))
    rows = [person(each, None, "DE", None) for each in range(5)]
    lane.apply_net_change(NetChange(table, replaces=rows))
    lane.apply_net_change(NetChange(table, replaces=[person(9, None, "DE", None)]), displacing="{}")
    assert len(rows_of(lane.session, table)) == 6
    assert target.displaced() == []


def _letters(schema: str, collation: str) -> Table:
    key = Column(name="name", type=text_type(20, collation), nullable=False)
    return Table(
        db=schema,
        name="letters",
        columns=(key, Column(name="n", type=ColumnType(kind=Kind.INT, bits=32))),
        key=index("PRIMARY", "name"),
    )


def test_a_key_that_changes_its_case_only(target: Target) -> None:
    """'A' → 'a' is a key move at the source; under a _ci key both are one row of the target."""
    lane, table = made(target, _letters(target.schema, "utf8mb4_general_ci"))
    lane.apply_net_change(NetChange(table, replaces=[("A", 1), ("b", 1)]))
    lane.apply_net_change(NetChange(table, deletes=[("A",)], replaces=[("a", 2)]))
    assert sorted(rows_of(lane.session, table)) == [("a", 2), ("b", 1)]
    lane.apply_net_change(NetChange(table, updates=[("a", 3)]))
    assert sorted(rows_of(lane.session, table)) == [("a", 3), ("b", 1)]
    assert lane.session.fetch_keys(table, [("a",), ("zz",)]) == [("a", 3)]


@pytest.mark.parametrize("many", [0, PEOPLE])
def test_a_snapshot_gives_a_key_the_form_that_was_read(target: Target, many: int) -> None:
    """Of two forms that the target's key holds equal, where the change from one to the other was missed."""
    table = _letters(target.schema, "utf8mb4_general_ci")
    others: list[Row] = [(f"c{each}", 1) for each in range(many)]
    old, new = "a", "A"
    if target.kind == "postgres":  # its collations hold nothing equal, its numbers do
        of = ColumnType(kind=Kind.DECIMAL, precision=9, scale=2)
        table = replace_column(table, Column(name="name", type=of, nullable=False))
        old, new, others = "7.5", "7.50", [(f"{each}.00", 1) for each in range(1000, 1000 + many)]
    lane, wrapped = made(target, table)
    if target.kind == "postgres":
        target.sql(f"ALTER TABLE {target.name('letters')} ALTER name TYPE numeric")
    lane.apply_net_change(NetChange(wrapped, replaces=[(old, 1)]))
    lane.apply_net_change(NetChange(wrapped, snapshot=[(new, 2), *others]))
    found = target.sql(f"SELECT name, n FROM {target.name('letters')}")
    assert sorted((str(name), n) for name, n in found) == sorted([(new, 2), *others])


def replace_column(table: Table, column: Column) -> Table:
    from msgspec import structs

    return structs.replace(table, columns=(column, *table.columns[1:]))


def test_rows_under_a_unique_prefix_are_found(target: Target) -> None:
    if target.kind not in ("mariadb", "mysql"):
        pytest.skip("it has no prefix indexes")
    table = replace_unique(
        people(target.schema), UniqueIndex(name="m", parts=(IndexPart(column="mail", prefix=3),))
    )
    lane, wrapped = made(target, table)
    lane.apply_net_change(NetChange(wrapped, replaces=[person(1, "abcdef"), person(2, "xyz")]))
    with pytest.raises(UniqueViolationError):
        lane.apply_net_change(NetChange(wrapped, replaces=[person(3, "abcxyz")]))
    lane.apply_net_change(NetChange(wrapped, replaces=[person(3, "abcxyz")]), displacing="{}")
    assert [row[0] for row in rows_of(lane.session, wrapped)] == [2, 3]


def replace_unique(table: Table, *unique: UniqueIndex) -> Table:
    from msgspec import structs

    return structs.replace(table, unique=unique)


def test_a_composite_key_with_an_added_column(target: Target) -> None:
    columns = (
        Column(name="id", type=ColumnType(kind=Kind.DECIMAL, precision=20, scale=2), nullable=False),
        Column(name="part", type=text_type(10), nullable=False),
        Column(name="branch", type=text_type(64), nullable=False),
        Column(name="v", type=ColumnType(kind=Kind.INT, bits=32)),
    )
    plain = Table(
        db=target.schema, name="many", columns=columns, key=index("PRIMARY", "branch", "id", "part")
    )
    session = target.open()
    session.create_table(plain)
    table = as_target(plain, ("branch",))
    lane = Lane.start(session)
    rows: dict[str, list[Row]] = {
        branch: [(f"{each}.50", part, branch, 0) for each in range(70) for part in ("a", "b")]
        for branch in ("b1", "b2")
    }
    lane.apply_net_change(NetChange(table, replaces=rows["b1"] + rows["b2"]))
    assert rows_of(session, table) == rows["b1"] + rows["b2"]
    lane.apply_net_change(NetChange(table, deletes=[("b1", row[0], row[1]) for row in rows["b1"][1::2]]))
    assert rows_of(session, table) == rows["b1"][::2] + rows["b2"]
    assert session.fetch_rows(table, ("b1", "69.50", "a"), 1) == [("0.50", "a", "b2", 0)]
    assert session.fetch_rows(table, None, 200, {"branch": "b2"}) == rows["b2"]
    keys = [("b2", "1.50", "b"), ("b1", "2.50", "a"), ("b1", "2.50", "b")]
    assert sorted(session.fetch_keys(table, keys)) == [("1.50", "b", "b2", 0), ("2.50", "a", "b1", 0)]
    with session.begin_transaction(lane.unit, [lane.row]) as tx:
        tx.truncate_table(table, {"branch": "b1"})
    assert rows_of(session, table) == rows["b2"]


def test_truncate_leaves_no_row(target: Target) -> None:
    lane, table = made(target, people(target.schema))
    lane.apply_net_change(NetChange(table, replaces=[person(each) for each in range(20)]))
    assert len(rows_of(lane.session, table)) == 20
    with lane.session.begin_transaction(lane.unit, [lane.row]) as tx:
        tx.truncate_table(table, None)
    assert rows_of(lane.session, table) == []


def test_a_value_that_does_not_fit_is_refused_and_nothing_stays(target: Target) -> None:
    lane, table = made(target, people(target.schema))
    for wrong in (person(2, "x" * 61), person(2, passport=2**40), (None, "no key", None, None, "")):
        for many in (0, PEOPLE):
            rows = [person(10 + each) for each in range(many)]
            with pytest.raises(RefusedError) as caught:
                lane.apply_net_change(NetChange(table, replaces=[*rows, wrong]))
            assert not isinstance(caught.value, UniqueViolationError)
    assert rows_of(lane.session, table) == []
    lane.apply_net_change(NetChange(table, replaces=[person(2)]))


def test_a_row_larger_than_the_target_takes_is_refused(target: Target) -> None:
    if target.kind not in ("mariadb", "mysql"):
        pytest.skip("no such limit below 1 GB")
    big = Column(name="big", type=ColumnType(kind=Kind.TEXT, length=2**32 - 1, charset="utf8mb4"))
    table = Table(
        db=target.schema, name="big", columns=(people("").columns[0], big), key=index("PRIMARY", "id")
    )
    [(before,)] = target.sql("SELECT @@max_allowed_packet")
    limit = 1 << 20
    target.sql(f"SET GLOBAL max_allowed_packet = {limit}")
    try:
        lane, wrapped = made(target, table)
        with pytest.raises(RefusedError, match="max_allowed_packet"):
            lane.apply_net_change(NetChange(wrapped, replaces=[(1, "ü" * (limit // 2))]))
        rows: list[Row] = [(each, "ü" * (limit // 8)) for each in range(9)]
        lane.apply_net_change(NetChange(wrapped, replaces=rows))
        assert rows_of(lane.session, wrapped) == rows
    finally:
        target.sql(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_lock_held_too_long_and_a_missing_table(target: Target) -> None:
    lane, table = made(target, people(target.schema))
    missing = as_target(people(target.schema, "gone"))
    with pytest.raises(Exception, match=r"(?i)gone") as caught:
        lane.apply_net_change(NetChange(missing, replaces=[person(1)]))
    assert not isinstance(caught.value, RefusedError | FencedError)
    lane.apply_net_change(NetChange(table, replaces=[person(1)]))
    target.shorten_waits(lane.session)
    with target.row_locked("people", 1), pytest.raises(TransientError):
        lane.apply_net_change(NetChange(table, updates=[person(1, "mine")]))
    lane.apply_net_change(NetChange(table, updates=[person(1, "mine")]))


def test_deadlocks_are_transient_and_lanes_get_through(target: Target) -> None:
    """Four lanes replace neighbouring rows at once; what the database rolls back is tried again."""
    import threading

    lane, table = made(target, people(target.schema))
    unit = ApplyUnit("pipe", "four")
    epoch, _, _ = lane.session.take_over(unit, "id", "{}", 4)
    rows, _, _ = lane.session.begin_attempt(unit, epoch)
    failures: list[BaseException] = []
    retries = []

    def run(number: int) -> None:
        session, row = target.open(), rows[number]
        mine = [person(each * 4 + number, str(each * 4 + number)) for each in range(60)]
        try:
            for turn in range(6):
                while True:
                    try:
                        with session.begin_transaction(unit, [row]) as tx:
                            tx.apply_net_change(
                                NetChange(table, replaces=mine[turn::2], updates=mine[(turn + 1) % 2 :: 2])
                            )
                            after = structs.replace(row, offset=row.offset + 1)
                            tx.write_progress([after])
                        row = after
                        break
                    except TransientError as error:
                        retries.append(error)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [row[0] for row in rows_of(lane.session, table)] == list(range(240))


IDS = st.integers(0, 9)
MAILS = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "d"]))
STEPS = st.lists(
    st.tuples(st.dictionaries(IDS, st.one_of(st.none(), MAILS.map(lambda mail: (mail,)))), st.booleans()),
    min_size=1,
    max_size=6,
)


def _net(
    table: TargetTable, have: dict[int, Row], want: dict[int, tuple[str | None] | None], turn: int
) -> NetChange | None:
    """Return the net change from `have` to `want`, as a gather would make it; None when it would break
    uniqueness."""
    net = NetChange(table)
    after = dict(have)
    for id_, value in sorted(want.items()):
        if value is None:
            net.deletes.append((id_,))
            after.pop(id_, None)
            continue
        row = person(id_, value[0], "DE", id_, f"turn {turn}")
        same = id_ in have and have[id_][1] == value[0]
        (net.updates if same else net.replaces).append(row)
        after[id_] = row
    mails = [row[1] for row in after.values() if row[1] is not None]
    if len(mails) != len(set(mails)):
        return None
    have.clear()
    have.update(after)
    return net


def test_random_net_changes_equal_a_model(target: Target) -> None:
    lane, table = made(target, people(target.schema))

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps=STEPS)
    def run(steps: list[tuple[dict[int, tuple[str | None] | None], bool]]) -> None:
        with lane.session.begin_transaction(lane.unit, [lane.row]) as tx:
            tx.truncate_table(table, None)
        have: dict[int, Row] = {}
        for turn, (want, displacing) in enumerate(steps):
            net = _net(table, have, want, turn)
            if net is not None:
                for _ in range(2):  # the second time it is a replay
                    lane.apply_net_change(net, displacing="{}" if displacing else None)
            assert rows_of(lane.session, table) == [have[id_] for id_ in sorted(have)]

    run()
    assert target.displaced() == []
