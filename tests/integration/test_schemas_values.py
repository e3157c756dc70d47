"""Wire → MySQL, MariaDB, PostgreSQL → wire is the identity, for every type, at every bound and between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deploy.embedded.services import PostgreSQL
from schemas.errors import ValueRefusedError
from schemas.io.mysql_catalog import read_collations, read_table
from schemas.table.collations import make_collation_chooser
from schemas.table.model import Column, ColumnType, Kind, Row, Table
from schemas.table.typemap import are_wire_equal, render_mysql_type, render_postgres_type
from schemas.values.mysql import quote_name
from schemas.values.postgres import (
    SESSION_OPTIONS,
    copy_line,
    make_postgres_row_converter,
    quote_pg,
    select_list_pg,
    to_postgres,
)
from tests.kits.decoder_support import LoggedDatabase
from tests.kits.schemas_strategies import TABLE, bound_rows, rows

RoundTrip = Callable[[Sequence[Row]], list[Row]]
FEW = settings(
    max_examples=50,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


class RoundTripDatabase(LoggedDatabase):
    """A database with tables as apply makes them."""

    def round_trip(self, given_rows: Sequence[Row], table: Table = TABLE) -> list[Row]:
        self.execute(f"DELETE FROM {table.name}")
        self.insert(table, given_rows)
        return self.select(table)

    def create_as_target(self, table: Table) -> None:
        choose = make_collation_chooser(read_collations(self.connection))
        columns = ", ".join(
            f"{quote_name(c.name)} {render_mysql_type(c.type, choose)} {_null(c)}" for c in table.columns
        )
        self.execute(f"CREATE TABLE {table.name} ({columns}, PRIMARY KEY (id)) CHARACTER SET utf8mb4")


def _null(column: Column) -> str:
    return "NULL" if column.nullable else "NOT NULL"


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[RoundTripDatabase]:
    """Each of the two servers, with an empty database."""
    service = request.getfixturevalue(request.param)
    db = request.getfixturevalue(f"{request.param}_db")
    with closing(RoundTripDatabase(service, db)) as made:
        yield made


@pytest.fixture
def everything(server: RoundTripDatabase) -> RoundTripDatabase:
    server.create_as_target(TABLE)
    return server


def assert_same(read: Sequence[Row], written: Sequence[Row], table: Table = TABLE) -> None:
    assert len(read) == len(written)
    for got, desired in zip(read, written, strict=True):
        for column, value, expected in zip(table.columns, got, desired, strict=True):
            assert are_wire_equal(column.type.kind, value, expected), (column, value, expected)
            assert type(value) is type(expected), (column, value, expected)


def numbered(given_rows: Sequence[Row]) -> list[Row]:
    return [(i, *row[1:]) for i, row in enumerate(given_rows)]


def test_every_bound_survives_mysql(everything: RoundTripDatabase) -> None:
    written = bound_rows(TABLE)
    assert_same(everything.round_trip(written), written)


def test_any_value_survives_mysql(everything: RoundTripDatabase) -> None:
    @FEW
    @given(st.lists(rows(TABLE), min_size=1, max_size=6))
    def check(given_rows: list[Row]) -> None:
        written = numbered(given_rows)
        read = everything.round_trip(written)
        assert_same(read, written)
        assert everything.round_trip(read) == read  # also JSON's text, once the server has printed it

    check()


ZEROS = Table(
    db="d",
    name="zeros",
    columns=(
        TABLE.columns[0],
        Column(name="day", type=ColumnType(kind=Kind.DATE)),
        Column(name="wall", type=ColumnType(kind=Kind.DATETIME, fsp=2)),
        Column(name="moment", type=ColumnType(kind=Kind.TIMESTAMP, fsp=6)),
        Column(name="label", type=ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4")),
    ),
    key=TABLE.key,
)
ZERO_ROWS: list[Row] = [
    (1, "0000-00-00", "0000-00-00 00:00:00.00", "0000-00-00 00:00:00.000000", "\0"),
    (2, "2024-00-00", "2024-02-31 10:00:00.50", "1970-01-01T00:00:01.000000Z", "a\0b "),
    (3, "2023-02-29", "2024-01-00 00:00:00.00", None, "\\0"),
]


def test_zero_and_invalid_dates_and_nul_survive_mysql(server: RoundTripDatabase) -> None:
    server.create_as_target(ZEROS)
    assert server.round_trip(ZERO_ROWS, ZEROS) == ZERO_ROWS


def test_strict_session_refuses_what_does_not_fit(server: RoundTripDatabase) -> None:
    import pymysql

    server.create_as_target(ZEROS)
    with pytest.raises(pymysql.MySQLError):
        server.round_trip([(1, None, None, None, "ten letters")], ZEROS)


def test_zerofill_and_rounded_floats_read_as_the_log_has_them(server: RoundTripDatabase) -> None:
    server.execute(
        "CREATE TABLE z (id int(5) zerofill PRIMARY KEY, d decimal(10,2) zerofill, e decimal(4,0) "
        "zerofill, f float(7,2), y bigint(20) zerofill)"
    )
    server.execute("INSERT INTO z VALUES (7, 1.5, 0, 1.1, 18446744073709551615), (8, 0.25, 30, -2.5, 3)")
    read = server.select(read_table(server.connection, server.db, "z"))
    assert read == [(7, "1.50", "0", 1.100000023841858, "18446744073709551615"), (8, "0.25", "30", -2.5, 3)]


def test_the_catalogue_gives_back_the_types_that_were_created(everything: RoundTripDatabase) -> None:
    found = read_table(everything.connection, everything.db, TABLE.name)
    on_mariadb = {Kind.JSON: Kind.TEXT}
    for column, desired in zip(found.columns, TABLE.columns, strict=True):
        if column.type.kind is not desired.type.kind:
            assert on_mariadb[desired.type.kind] is column.type.kind
        else:
            assert column.type == desired.type, column
        assert (column.name, column.nullable) == (desired.name, desired.nullable)
    assert found.key == TABLE.key


@pytest.fixture
def pg(postgres: PostgreSQL, pg_db: str) -> Iterator[psycopg.Connection[Any]]:
    with postgres.connect(pg_db, options=SESSION_OPTIONS) as conn:
        yield conn


def create_pg(conn: psycopg.Connection[Any], table: Table) -> None:
    columns = ", ".join(
        f"{quote_pg(c.name)} {render_postgres_type(c.type)} {_null(c)}" for c in table.columns
    )
    conn.execute(f"CREATE TABLE {quote_pg(table.name)} ({columns}, PRIMARY KEY (id))".encode())


def by_parameters(conn: psycopg.Connection[Any], table: Table, given_rows: Sequence[Row]) -> None:
    places = ", ".join(["%s"] * len(table.columns))
    convert = to_postgres(table)
    statement = f"INSERT INTO {quote_pg(table.name)} VALUES ({places})".encode()
    conn.cursor().executemany(statement, [convert(row) for row in given_rows])


def by_copy_rows(conn: psycopg.Connection[Any], table: Table, given_rows: Sequence[Row]) -> None:
    convert = to_postgres(table)
    with conn.cursor().copy(f"COPY {quote_pg(table.name)} FROM STDIN".encode()) as copy:
        for row in given_rows:
            copy.write_row(convert(row))


def by_copy_lines(conn: psycopg.Connection[Any], table: Table, given_rows: Sequence[Row]) -> None:
    line = copy_line(table)
    with conn.cursor().copy(f"COPY {quote_pg(table.name)} FROM STDIN".encode()) as copy:
        copy.write("".join(line(row) for row in given_rows))


WAYS = (by_parameters, by_copy_rows, by_copy_lines)
Way = Callable[[psycopg.Connection[Any], Table, Sequence[Row]], None]


def read_pg(conn: psycopg.Connection[Any], table: Table) -> list[Row]:
    query = f"SELECT {', '.join(select_list_pg(table))} FROM {quote_pg(table.name)} ORDER BY id"
    return [make_postgres_row_converter(table)(row) for row in conn.execute(query.encode())]


@pytest.mark.parametrize("way", WAYS)
def test_every_bound_survives_postgres(pg: psycopg.Connection[Any], way: Way) -> None:
    create_pg(pg, TABLE)
    written = bound_rows(TABLE)
    way(pg, TABLE, written)
    assert_same(read_pg(pg, TABLE), written)


def test_any_value_survives_postgres(pg: psycopg.Connection[Any]) -> None:
    create_pg(pg, TABLE)

    @FEW
    @given(st.lists(rows(TABLE), min_size=1, max_size=6), st.sampled_from(WAYS))
    def check(given_rows: list[Row], way: Way) -> None:
        pg.execute(b"DELETE FROM everything")
        written = numbered(given_rows)
        way(pg, TABLE, written)
        assert_same(read_pg(pg, TABLE), written)

    check()


@pytest.mark.parametrize("column", [1, 2, 3, 4])
def test_postgres_refuses_zero_dates_and_nul_by_column(column: int) -> None:
    row = tuple(value if i in (0, column) else None for i, value in enumerate(ZERO_ROWS[0]))
    with pytest.raises(ValueRefusedError) as caught:
        to_postgres(ZEROS)(row)
    assert caught.value.column == ZEROS.columns[column].name


def test_postgres_reads_other_real_types(pg: psycopg.Connection[Any]) -> None:
    """The target table may be the user's own: booleans for TINYINT(1) and BIT(1), plain numeric, double for
    FLOAT."""
    table = Table(
        db="d",
        name="own",
        columns=(
            TABLE.columns[0],
            Column(name="yes", type=ColumnType(kind=Kind.INT, bits=8)),
            Column(name="flag", type=ColumnType(kind=Kind.BIT, length=1)),
            Column(name="amount", type=ColumnType(kind=Kind.DECIMAL, precision=10, scale=2)),
            Column(name="rate", type=ColumnType(kind=Kind.FLOAT)),
            Column(name="big", type=ColumnType(kind=Kind.INT, bits=64, unsigned=True)),
            Column(name="code", type=ColumnType(kind=Kind.CHAR, length=5)),
            Column(name="at", type=ColumnType(kind=Kind.TIME)),
            Column(name="seen", type=ColumnType(kind=Kind.DATETIME)),
        ),
        key=TABLE.key,
    )
    pg.execute(
        b"CREATE TABLE own (id bigint, yes boolean, flag boolean, amount numeric(20,4), rate float8, big numeric(30,2), code char(5), at time(6), seen timestamp)"  # noqa: E501
    )
    written: list[Row] = [
        (
            1,
            1,
            1,
            "-0.50",
            0.10000000149011612,
            "18446744073709551615",
            "ab",
            "23:59:59",
            "2024-01-01 00:00:00",
        ),
        (2, 0, 0, "100.00", 1.5, 5, "", "00:00:00", "2024-01-01 10:20:30"),
    ]
    by_copy_rows(pg, table, written)
    assert read_pg(pg, table) == written
