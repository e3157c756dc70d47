"""Rendered predicates against what they mean (SQLite evaluates them), chunks, and the statements of
progress."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from consumer.errors import ConsumerError, LockWaitError, TransientError, UniqueViolationError
from consumer.ordering.model import ApplyUnit, LaneProgress, QuarantineEntry
from consumer.targets.bookkeeping import Bookkeeping, parse_lane_row, parse_quarantine_row, parse_unit_rows
from consumer.targets.dialect_components import DialectComponents, Link, SingleStatements
from consumer.targets.kafka.target import KafkaTarget
from consumer.targets.mysql import dialect as mysql_dialect
from consumer.targets.mysql.alterer import MySqlAlterer
from consumer.targets.mysql.catalog import MySqlTargetCatalog
from consumer.targets.mysql.sql import (
    MAX_ROWS,
    build_mysql_plan,
    measure_bytes,
    render_key_predicate,
    split_chunks,
)
from consumer.targets.mysql.values import make_key_encoder, order_encoder, render_literal
from consumer.targets.oracle.alterer import OracleAlterer
from consumer.targets.oracle.catalog import OracleTargetCatalog
from consumer.targets.postgres import dialect as postgres_dialect
from consumer.targets.postgres.alterer import PostgresAlterer
from consumer.targets.postgres.catalog import PostgresTargetCatalog
from consumer.targets.postgres.sql import build_postgres_plan
from consumer.targets.progress import TAKEOVER_TRIES, SqlProgressWriter, SqlTakeover
from consumer.targets.session import SqlSession
from consumer.targets.shared.column_values import parse_default_value
from consumer.targets.sql import (
    Fragment,
    Syntax,
    join_conditions,
    quote_with,
    render_after_key,
    render_keys_in,
)
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.table.names import EXACT
from schemas.values.converter import compile_row
from schemas.wire.position import ZERO
from tests.kits.targets import as_target, index, people

NUMBERS = st.integers(0, 2)
COLUMNS = ("a", "b", "c")
KEYS = st.tuples(NUMBERS, NUMBERS, NUMBERS)
ALL = list(product(range(3), repeat=3))


def selected(where: str, params: list[object]) -> set[tuple[int, ...]]:
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE t (a, b, c)")
        db.executemany("INSERT INTO t VALUES (?, ?, ?)", ALL)
        found = set(db.execute(f"SELECT a, b, c FROM t{where.replace('%s', '?')}", params).fetchall())
    db.close()
    return found


@settings(deadline=None)
@given(KEYS)
def test_a_page_holds_what_is_after_a_key(after: tuple[int, ...]) -> None:
    where, params = join_conditions([render_after_key(COLUMNS, after)])
    assert selected(where, params) == {key for key in ALL if after < key}


def test_no_bounds_are_no_condition() -> None:
    assert join_conditions([]) == ("", [])


@settings(deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=5))
def test_a_list_of_keys_selects_exactly_them(keys: list[tuple[int, ...]]) -> None:
    text, params = render_keys_in(COLUMNS, keys)
    assert selected(" WHERE " + text, params) == set(keys)
    literals = render_key_predicate(COLUMNS, [[str(value) for value in key] for key in keys])
    assert selected(" WHERE " + literals, []) == set(keys)


def test_a_column_with_one_value_is_taken_out_of_the_list() -> None:
    assert render_keys_in(("branch", "id"), [("b", 1), ("b", 2)]) == (
        "branch = %s AND id IN (%s, %s)",
        ["b", 1, 2],
    )


@pytest.mark.parametrize(
    ("catalog", "values"),
    [
        (MySqlTargetCatalog, "schemas.values.mysql"),
        (OracleTargetCatalog, "consumer.targets.oracle.values"),
        (PostgresTargetCatalog, "schemas.values.postgres"),
    ],
)
def test_one_function_converts_all_keys_of_a_statement(
    monkeypatch: pytest.MonkeyPatch, catalog: Any, values: str
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(f"{values}.compile_row", lambda each: made.append(each) or compile_row(each))
    found = catalog.build_key_params(cast(Any, None), as_target(people("hq")), [(1,), (2,), (3,)])
    assert [list(map(str, key)) for key in found] == [["1"], ["2"], ["3"]]
    assert len(made) == 1, "a function for each key took half of a key sweep's time in the target"


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), max_size=200), st.integers(1, 200))
def test_chunks_cover_everything_once_and_respect_the_limit(sizes: list[int], limit: int) -> None:
    found = list(split_chunks(sizes, limit))
    assert [at for start, end in found for at in range(start, end)] == list(range(len(sizes)))
    assert all(sum(sizes[start:end]) <= limit or end - start == 1 for start, end in found)


def test_a_statement_has_a_bounded_number_of_rows() -> None:
    assert list(split_chunks([1] * (MAX_ROWS + 1), 10**9)) == [(0, MAX_ROWS), (MAX_ROWS, MAX_ROWS + 1)]


def test_sizes_are_bytes_not_characters() -> None:
    assert (measure_bytes("ab"), measure_bytes("ü€")) == (2, 5)


def test_literals_are_escaped() -> None:
    assert render_literal("it's \\ %s") == "'it\\'s \\\\ %s'"
    assert [render_literal(value) for value in (None, 7, b"\0'", 0.1)] == ["NULL", "7", "X'0027'", "0.1e0"]


def test_names_are_quoted_and_percent_signs_survive_formatting() -> None:
    assert quote_with("`")("a`b%") == "`a``b%%`"
    assert quote_with("`", formatted=False)("a`b%") == "`a``b%`"


def test_keys_compare_by_the_type_of_their_column() -> None:
    columns = (
        Column(name="d", type=ColumnType(kind=Kind.DECIMAL, precision=9, scale=2)),
        Column(name="e", type=ColumnType(kind=Kind.ENUM, members=("z", "a"))),
        Column(name="s", type=ColumnType(kind=Kind.SET, members=("p", "q"))),
    )
    table = Table(db="s", name="t", columns=columns, key=index("PRIMARY", "d", "e", "s"))
    assert [render_literal(value) for value in make_key_encoder(table)(("1.50", "a", "p,q"))] == [
        "1.50",
        "'a'",
        "'p,q'",
    ]
    assert [render_literal(value) for value in order_encoder(table)(("1.50", "a", "p,q"))] == [
        "1.50",
        "2",
        "3",
    ]


def test_updates_in_place_never_touch_a_key_column() -> None:
    table = as_target(people("s"))
    on_duplicate = build_mysql_plan(table).on_duplicate
    assert "`id` =" not in on_duplicate
    assert "`mail` = VALUES(`mail`)" in on_duplicate
    assert '"id" =' not in build_postgres_plan(table, 0).on_conflict
    keys_only = as_target(
        Table(db="s", name="k", columns=(people("s").columns[0],), key=index("PRIMARY", "id"))
    )
    assert build_postgres_plan(keys_only, 0).on_conflict.endswith("DO NOTHING")
    assert build_mysql_plan(keys_only).on_duplicate.endswith("`id` = `id`")


def test_a_key_written_in_place_gets_its_bytes_in_the_row_of_that_key_only() -> None:
    """Else a row of another key that has one of its unique values would take over its key, unnoticed."""
    columns = (*people("s").columns[:2], Column(name="n", type=ColumnType(kind=Kind.INT, bits=32)))
    table = as_target(Table(db="s", name="k", columns=columns, key=index("PRIMARY", "id", "mail")))
    same = "`id` = VALUES(`id`) AND `mail` = VALUES(`mail`)"
    assert build_mysql_plan(table).on_duplicate == (
        f" ON DUPLICATE KEY UPDATE `mail` = IF({same}, VALUES(`mail`), `mail`), `n` = VALUES(`n`)"
    )
    assert build_postgres_plan(table, 0).on_conflict == (
        ' ON CONFLICT ("id", "mail") DO UPDATE SET "mail" = EXCLUDED."mail", "n" = EXCLUDED."n"'
    )
    numbered = as_target(people("s"))
    assert "`id` =" not in build_mysql_plan(numbered).on_duplicate  # of an integer there are no other bytes
    assert 'SET "id"' not in build_postgres_plan(numbered, 0).on_conflict
    keys_only = as_target(Table(db="s", name="k", columns=columns[1:2], key=index("PRIMARY", "mail")))
    only = "`mail` = IF(`mail` = VALUES(`mail`), VALUES(`mail`), `mail`)"
    assert build_mysql_plan(keys_only).on_duplicate == f" ON DUPLICATE KEY UPDATE {only}"


def test_nulls_not_distinct_are_found_as_equal() -> None:
    loose = replace(as_target(people("s")), table=_loose())
    [statement] = build_postgres_plan(loose, 0).displaced
    assert 't."mail" IS NOT DISTINCT FROM n."mail"' in statement


def _loose() -> Table:
    from msgspec import structs

    return structs.replace(people("s"), unique=(structs.replace(index("m", "mail"), nulls_distinct=False),))


BOOKS = postgres_dialect.build_bookkeeping()
UNIT = ApplyUnit("p", "t")


@pytest.mark.parametrize("syntax", [mysql_dialect.SYNTAX, postgres_dialect.SYNTAX])
def test_a_guard_locks_its_rows_and_a_look_does_not(syntax: Syntax) -> None:
    kept = Bookkeeping("s", syntax)
    assert kept.lanes.build_select(UNIT, lock=True)[0] == kept.lanes.build_select(UNIT)[0] + " FOR UPDATE"


LOCKED = (
    "another session keeps the rows of t (pipeline p) in rowlock_progress locked; "
    f"rowlock has tried {TAKEOVER_TRIES} times: x"
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (LockWaitError("x"), LOCKED),
        (UniqueViolationError("x"), LOCKED.replace("keeps", "creates").replace(" locked", ", too")),
        (TransientError("Connection refused"), "Connection refused"),
    ],
    ids=["locked", "created", "no connection"],
)
def test_takeover_ends_after_some_tries_with_their_cause(error: ConsumerError, text: str) -> None:
    """Only a lock that was not granted shows that another session keeps the rows."""
    sent: list[str] = []

    def begin(_seconds: float, text: str, _params: object) -> None:
        sent.append(text)
        raise error

    link = SimpleNamespace(connect=lambda: None, roll_back=lambda: None, begin_transaction=begin)
    takeover = SqlTakeover(cast(Link, link), BOOKS, lambda: cast(Link, link))
    with pytest.raises(TransientError) as raised:
        takeover.take_over_unit(UNIT, "id", "1", 1, assigned=None, above=0)
    assert str(raised.value) == text
    assert sent == [BOOKS.lanes.build_select(UNIT, lock=True)[0]] * TAKEOVER_TRIES


@pytest.mark.parametrize("moves", [True, False])
def test_the_quarantine_is_written_together_with_the_progress(moves: bool) -> None:
    """In PostgreSQL one answer is awaited for all of these statements. Their order stays."""
    sent: list[list[str]] = []

    def execute_all(fragments: Sequence[Fragment]) -> list[int]:
        sent.append([" ".join(text.split()[:3]) for text, _ in fragments])
        return [1] * len(fragments)

    writer = SqlProgressWriter(UNIT, cast(Link, SimpleNamespace(execute_all=execute_all)), BOOKS)
    writer.drop_held([(1, 0)])
    writer.write_quarantine([QuarantineEntry(2, 0, "s.t", "[1]", "31", "{}", "too long", 0)])
    assert sent == []
    if moves:
        writer.write_progress([LaneProgress(0, 1, 1, "id", 2, ZERO, 0, "1")])
    writer.send_waiting()
    place = BOOKS.tables.qualify_name
    quarantine = [f"DELETE FROM {place('rowlock_quarantine')}", f"INSERT INTO {place('rowlock_quarantine')}"]
    assert sent == [[*quarantine, f"UPDATE {place('rowlock_progress')} SET"] if moves else quarantine]


def test_single_statements_are_sent_in_order_and_each_counts_its_rows() -> None:
    class CountingLink(SingleStatements):
        affected = 0

        def __init__(self) -> None:
            self.sent: list[tuple[str, list[object]]] = []

        def execute(self, text: str, params: list[object]) -> list[object]:
            self.sent.append((text, params))
            self.affected += 10
            return []

    link = CountingLink()
    fragments: list[Fragment] = [("UPDATE a SET b = %s", [1]), ("DELETE FROM a", []), ("DELETE FROM b", [])]
    assert SingleStatements.execute_all(cast(Link, link), fragments) == [10, 20, 30]
    assert link.sent == fragments


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_a_transaction_is_reported_to_the_applier(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps temporary tables, which a rollback may take away."""
    ends: list[bool] = []
    applier = SimpleNamespace(on_transaction_end=lambda *, committed: ends.append(committed))
    parts = SimpleNamespace(
        link=SimpleNamespace(connect=lambda: None),
        books=BOOKS,
        fresh=None,
        catalog=SimpleNamespace(column_names=EXACT, table_names=EXACT),
        applier=applier,
        alterer=SimpleNamespace(transactional=True),
    )
    session = SqlSession(cast(DialectComponents, parts))
    monkeypatch.setattr(session, "begin_guarded", lambda *_: nullcontext())
    with suppress(ZeroDivisionError), session.begin_transaction(UNIT, []):
        assert ends == []
        if fails:
            raise ZeroDivisionError
    assert ends == [not fails]


def test_only_postgresql_and_kafka_commit_a_changed_table_with_its_rows() -> None:
    """MySQL, MariaDB and Oracle commit before and after each statement that changes a table."""
    alterers = {"mysql": MySqlAlterer, "oracle": OracleAlterer, "postgres": PostgresAlterer}
    assert [name for name, alterer in alterers.items() if alterer.transactional] == ["postgres"]
    assert KafkaTarget.transactional_ddl


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.TIMESTAMP, "2026-01-02 03:04:05", "2026-01-02T03:04:05Z"),
        (Kind.TIMESTAMP, "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        (Kind.TIMESTAMP, "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        (Kind.DATETIME, "2026-01-02 03:04:05", "2026-01-02 03:04:05"),
        (Kind.INT, "7", 7),
        (Kind.INT, "9007199254740993", "9007199254740993"),
        (Kind.DOUBLE, "1.5", 1.5),
        (Kind.VARCHAR, None, None),
    ],
)
def test_a_default_is_read_as_a_value_of_the_wire(kind: Kind, text: str | None, value: object) -> None:
    assert parse_default_value(Column(name="c", type=ColumnType(kind=kind), default=text)) == value


def test_lanes_with_the_same_content_are_written_by_one_statement() -> None:
    row = LaneProgress(0, 1, 2, "id", 9, (0, 1, 2, 3), 4, "{}", 5)
    rows = [
        row,
        structs.replace(row, lane=1),
        structs.replace(row, lane=2, offset=7),
        structs.replace(row, lane=3),
    ]
    updates = BOOKS.lanes.build_updates(UNIT, rows)
    assert sorted(expected for _, expected in updates) == [1, 3]
    for (text, params), _ in updates:
        assert text.count("%s") == len(params)
        assert params[-2:] == [1, 2]


def test_rows_of_the_books_are_read_as_they_were_written() -> None:
    row = LaneProgress(0, 1, 2, "id", -1, (0, 1, 2, -(2**53)), 4, "{}", 5)
    _, params = BOOKS.lanes.build_insert(UNIT, [row])
    assert parse_lane_row(params[2:]) == row
    assert parse_unit_rows([]) is None
    assert parse_quarantine_row([1, 0, "t", "k", "f", "e", "why", 3]).error == "why"


def test_labels_with_an_empty_one_are_copied_by_number_in_place() -> None:
    """The servers copy ENUM and SET by their text, in which two numbers look alike where a label is empty."""
    labels = ColumnType(kind=Kind.SET_NUMBER, members=("", "a"))
    columns = (*people("s").columns[:1], Column(name="s", type=labels))
    table = as_target(Table(db="s", name="l", columns=columns, key=index("PRIMARY", "id")))
    assert (
        build_mysql_plan(table).on_duplicate == " ON DUPLICATE KEY UPDATE `s` = CAST(VALUES(`s`) AS UNSIGNED)"
    )
    keyed = as_target(
        Table(db="s", name="l", columns=(*columns, people("s").columns[1]), key=index("PRIMARY", "s", "mail"))
    )
    same = "CAST(`s` AS UNSIGNED) = CAST(VALUES(`s`) AS UNSIGNED) AND `mail` = VALUES(`mail`)"
    assert f"`mail` = IF({same}, VALUES(`mail`), `mail`)" in build_mysql_plan(keyed).on_duplicate
