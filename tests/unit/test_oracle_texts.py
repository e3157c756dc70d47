"""Oracle's dialect without a server: its statements as they are sent (golden texts, read against Oracle's
reference), types, values, names, errors and rights. What H2 executes of it is in
tests/integration/test_oracle_target.py."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.errors import RefusedError, TargetConfigError
from consumer.ordering.model import ApplyUnit
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    AlterTable,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropUnique,
    RenameColumn,
)
from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.checks.column_fit import accepts_kind, has_room
from consumer.targets.checks.rights import RequiredRights
from consumer.targets.oracle import rights, values
from consumer.targets.oracle.alterer import render_statements
from consumer.targets.oracle.catalog import (
    OracleTargetCatalog,
    _parse_expression_columns,
    render_unique_index,
)
from consumer.targets.oracle.dialect import SYNTAX
from consumer.targets.oracle.locks import decode_connection_id, encode_connection_id
from consumer.targets.oracle.sql import (
    build_oracle_plan,
    explain_name,
    number_marks,
    render_lock_wait,
    restore_spelling,
)
from consumer.targets.oracle.values import from_oracle, list_input_sizes, to_oracle, translate_refusals
from schemas.errors import UnsupportedTypeError
from schemas.table.model import Column, ColumnType, Kind, Table, Value
from schemas.table.oracle_ddl import OracleCatalogType, convert_oracle_type, render_oracle_type
from tests.kits.oracle_types import TYPES, kind
from tests.kits.targets import as_target, index, people, text_type

INT, BIG = ColumnType(kind=Kind.INT, bits=32), ColumnType(kind=Kind.INT, bits=64)
TEXT = ColumnType(kind=Kind.TEXT, length=65535)
PEOPLE = people("bank")
UNIT = ApplyUnit("p", "t")
BOOKS = Bookkeeping("rowlock", SYNTAX)


def column(name: str, type_: ColumnType = INT, *, null: bool = True, default: str | None = None) -> Column:
    return Column(name=name, type=type_, nullable=null, default=default)


def table_of(*columns: Column, key: str = "id") -> Table:
    return Table(db="bank", name="t", columns=columns, key=index("PRIMARY", key))


# -- rows


def test_statements_of_a_table() -> None:
    plan = build_oracle_plan(as_target(PEOPLE))
    assert plan.delete == 'DELETE FROM "BANK"."PEOPLE" WHERE "ID" = :1'
    assert plan.insert == (
        'INSERT INTO "BANK"."PEOPLE" ("ID", "MAIL", "LAND", "PASSPORT", "NOTE") VALUES (:1, :2, :3, :4, :5)'
    )
    assert plan.upsert == (
        'MERGE INTO "BANK"."PEOPLE" t USING dual ON (t."ID" = :1) '
        'WHEN MATCHED THEN UPDATE SET t."MAIL" = :2, t."LAND" = :3, t."PASSPORT" = :4, t."NOTE" = :5 '
        'WHEN NOT MATCHED THEN INSERT ("ID", "MAIL", "LAND", "PASSPORT", "NOTE") VALUES (:6, :7, :8, :9, :10)'
    )


def test_a_merge_never_assigns_a_column_of_its_condition() -> None:
    """ORA-38104, which H2 does not know."""
    both = replace(table_of(column("a"), column("b"), column("c")), key=index("PRIMARY", "b", "a"))
    merge = str(build_oracle_plan(as_target(both)).upsert)
    assert 'ON (t."B" = :1 AND t."A" = :2) WHEN MATCHED THEN UPDATE SET t."C" = :3 WHEN' in merge
    keys = str(build_oracle_plan(as_target(replace(both, columns=both.columns[:2]))).upsert)
    assert "WHEN MATCHED" not in keys


def test_a_table_with_a_lob_is_updated_and_then_inserted() -> None:
    """A LONG is bound into VALUES and SET alone (ORA-01461)."""
    plan = build_oracle_plan(as_target(table_of(column("id"), column("doc", TEXT), column("n"))))
    assert plan.upsert is None
    assert plan.update == 'UPDATE "BANK"."T" SET "DOC" = :1, "N" = :2 WHERE "ID" = :3'


def test_marks_are_the_drivers() -> None:
    assert number_marks("SELECT 'a%%' FROM t WHERE x = %s AND y IN (%s, %s)") == (
        "SELECT 'a%' FROM t WHERE x = :1 AND y IN (:2, :3)",
        3,
    )


# -- bookkeeping


def test_bookkeeping_texts() -> None:
    guard, _ = BOOKS.lanes.build_select(UNIT, [0, 1], lock=True)
    assert guard.endswith(
        'FROM "ROWLOCK"."ROWLOCK_PROGRESS" WHERE pipeline = %s AND topic = %s AND lane IN (%s, %s) '
        "ORDER BY lane FOR UPDATE WAIT 10"
    )
    assert render_lock_wait(guard, 3.6).endswith("FOR UPDATE WAIT 4")
    assert render_lock_wait(guard, 0.2).endswith("FOR UPDATE WAIT 1"), "WAIT 0 is NOWAIT"
    assert render_lock_wait("SELECT 1 FROM dual", 4) == "SELECT 1 FROM dual"
    assert BOOKS.tables.build_create("rowlock_displaced") == (
        'CREATE TABLE "ROWLOCK"."ROWLOCK_DISPLACED" (id NUMBER(19) GENERATED ALWAYS AS IDENTITY, pipeline VARCHAR2(100 CHAR) NOT NULL, '  # noqa: E501
        "topic VARCHAR2(249 CHAR) NOT NULL, table_name CLOB NOT NULL, row_data CLOB NOT NULL, displaced_by CLOB NOT NULL, "  # noqa: E501
        "displaced_at TIMESTAMP(3) WITH LOCAL TIME ZONE DEFAULT SYSTIMESTAMP NOT NULL, PRIMARY KEY (id))"
    )
    assert BOOKS.displaced.build_insert(3) == BOOKS.displaced.build_insert(1), (
        "many rows are an array of one statement"
    )
    assert (
        SYNTAX.page("SELECT 1 FROM t", '"ID"', 7) == 'SELECT 1 FROM t ORDER BY "ID" FETCH FIRST 7 ROWS ONLY'
    )


# -- tables


class OneAnswer:
    """A link that finds what is asked for."""

    def connect(self) -> None: ...

    def execute(self, text: str, params: list[object]) -> list[tuple[object, ...]]:
        return [(1,)] if self.there else []

    there = True


def made(table: Table) -> list[str]:
    link: Any = OneAnswer()
    return OracleTargetCatalog(link).create_statements(table)


def test_a_new_table() -> None:
    create, *indexes = made(PEOPLE)
    assert create == (
        'CREATE TABLE "BANK"."PEOPLE" ("ID" NUMBER(19) NOT NULL, "MAIL" VARCHAR2(60 CHAR), "LAND" '
        'VARCHAR2(3 CHAR), "PASSPORT" NUMBER(10), "NOTE" VARCHAR2(100 CHAR), PRIMARY KEY ("ID"))'
    )
    given = '"LAND" IS NOT NULL AND "PASSPORT" IS NOT NULL'
    assert indexes == [
        'CREATE UNIQUE INDEX "BANK"."PEOPLE_MAIL_KEY" ON "BANK"."PEOPLE" ("MAIL")',
        (
            'CREATE UNIQUE INDEX "BANK"."PEOPLE_PASS_KEY" ON "BANK"."PEOPLE" '
            f'(CASE WHEN {given} THEN "LAND" END, CASE WHEN {given} THEN "PASSPORT" END)'
        ),
    ]


def test_a_text_that_is_never_null_at_the_source_may_be_empty_there() -> None:
    """So its column takes NULL here, unless it is in a key or unique index."""
    table = table_of(
        column("id", text_type(9), null=False),
        column("a", text_type(9), null=False),
        column("u", text_type(9), null=False),
        column("n", null=False),
    )
    [create, _] = made(replace(table, unique=(index("u", "u"),)))
    assert (
        '"ID" VARCHAR2(9 CHAR) NOT NULL, "A" VARCHAR2(9 CHAR), "U" VARCHAR2(9 CHAR) NOT '
        'NULL, "N" NUMBER(10) NOT NULL' in create
    )


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(TargetConfigError, match="CLOB, which cannot be part of a key"):
        made(table_of(column("id", TEXT, null=False)))
    with pytest.raises(TargetConfigError, match="up to 38 digits"):
        made(table_of(column("id"), column("d", ColumnType(kind=Kind.DECIMAL, precision=65, scale=30))))
    with pytest.raises(TargetConfigError, match="no type that rowlock writes for geometry"):
        made(table_of(column("id"), column("g", ColumnType(kind=Kind.GEOMETRY))))
    with pytest.raises(TargetConfigError, match="without quotation marks"):
        made(table_of(column("id"), column('a"b')))
    with pytest.raises(TargetConfigError, match="names of 1 to 128 bytes"):
        made(table_of(column("id"), column("n" * 129)))
    link: Any = OneAnswer()
    link.there = False
    with pytest.raises(TargetConfigError, match="no user BANK, and so no schema"):
        OracleTargetCatalog(link).create_statements(PEOPLE)


def test_names() -> None:
    assert [restore_spelling(name, "acct") for name in ("ID", "Id", "A B", "1")] == ["id", "Id", "a b", "1"]
    assert restore_spelling("ID", "ACCT") == "ID", (
        "a route that writes the table in upper case has its columns so"
    )
    assert encode_connection_id(3, 77, 65_000) != encode_connection_id(3, 77, 65_001)
    assert decode_connection_id(encode_connection_id(3, 77, 65_000)) == (3, 77, 65_000)


def test_names_of_128_bytes_are_the_longest() -> None:
    assert [explain_name(name) for name in ("a" * 128, "é" * 64)] == ["", ""]
    for name in ("a" * 129, "é" * 65, "", 'a"b', "a\0b"):
        assert "Oracle has names of 1 to 128 bytes" in explain_name(name)


def test_a_generated_column_is_one_whose_values_the_server_computes() -> None:
    table = read({"ID": "NUMBER", "NOTE": "VARCHAR2"})
    assert table is not None
    assert [each.generated for each in table.columns] == [False, False]


@pytest.mark.parametrize(
    ("expressions", "columns"),
    [
        (('CASE  WHEN ("A" IS NOT NULL AND "B" IS NOT NULL) THEN "A" END ', 'CASE  WHEN ("A" IS NOT NULL AND "B" IS NOT NULL) THEN "B" END '), ["A", "B"]),  # noqa: E501
        (('CASE WHEN "B" IS NOT NULL THEN "A" END', 'CASE WHEN "B" IS NOT NULL THEN "B" END'), ["A", "B"]),
        (('CASE WHEN "C" IS NOT NULL THEN "A" END', 'CASE WHEN "C" IS NOT NULL THEN "B" END'), None),
        (('CASE WHEN "A" IS NOT NULL THEN "A" END', 'CASE WHEN "B" IS NOT NULL THEN "B" END'), None),
        (('CASE WHEN "A" > 0 THEN "A" END', 'CASE WHEN "A" > 0 THEN "B" END'), None),
        (('UPPER("A")', '"B"'), None),
        (('CASE WHEN "A" IS NOT NULL THEN "A" END', None), None),
    ],
)  # fmt: skip
def test_of_indexes_over_expressions_one_kind_is_understood(
    expressions: tuple[str | None, ...], columns: list[str] | None
) -> None:
    assert _parse_expression_columns([("SYS_NC00001$", each) for each in expressions]) == columns


ALTER = 'ALTER TABLE "BANK"."PEOPLE" '
LAND_INDEX = made(PEOPLE)[2]
CASES: list[tuple[list[Alteration], list[str]]] = [
    ([AddColumn(column("n"))], [ALTER + 'ADD ("N" NUMBER(10))']),
    (
        [AddColumn(column("n", null=False), fill=9)],
        [ALTER + 'ADD ("N" NUMBER(10) DEFAULT 9 NOT NULL)', ALTER + 'MODIFY ("N" DEFAULT NULL)'],
    ),
    ([AddColumn(column("n", TEXT, null=False))], [ALTER + 'ADD ("N" CLOB)']),
    (  # a literal without a type would be a NUMBER, which has no such values
        [AddColumn(column("n", ColumnType(kind=Kind.DOUBLE), null=False), fill=5e-324)],
        [ALTER + "ADD (\"N\" BINARY_DOUBLE DEFAULT CAST('5e-324' AS BINARY_DOUBLE) NOT NULL)",
         ALTER + 'MODIFY ("N" DEFAULT NULL)'],
    ),
    (
        [AddColumn(column("n", text_type(9), default="5%'"))],
        [ALTER + "ADD (\"N\" VARCHAR2(9 CHAR) DEFAULT '5%%''')", ALTER + 'MODIFY ("N" DEFAULT NULL)'],
    ),
    ([DropColumn("note")], [ALTER + 'DROP ("NOTE") CASCADE CONSTRAINTS']),
    (
        [DropColumn("land")],
        ['DROP INDEX "BANK"."PEOPLE_PASS_KEY"', ALTER + 'DROP ("LAND") CASCADE CONSTRAINTS'],
    ),
    ([DropUnique(index("mail", "mail"))], [ALTER + 'DROP CONSTRAINT "PEOPLE_MAIL_KEY"']),
    ([RenameColumn("note", "Remark")], [ALTER + 'RENAME COLUMN "NOTE" TO "Remark"']),
    (
        [RenameColumn("land", "country")],
        ['DROP INDEX "BANK"."PEOPLE_PASS_KEY"', ALTER + 'RENAME COLUMN "LAND" TO "COUNTRY"',
         LAND_INDEX.replace('"LAND"', '"COUNTRY"')],
    ),
    ([ChangeColumn(PEOPLE.columns[4], column("note", text_type(500)), lossless=True)],
     [ALTER + 'MODIFY ("NOTE" VARCHAR2(500 CHAR))']),
    (
        [ChangeColumn(PEOPLE.columns[3], column("passport", BIG), lossless=True)],
        ['DROP INDEX "BANK"."PEOPLE_PASS_KEY"', ALTER + 'MODIFY ("PASSPORT" NUMBER(19))', LAND_INDEX],
    ),
    ([ChangeColumn(PEOPLE.columns[4], replace(PEOPLE.columns[4], nullable=False), lossless=True)], []),
    (
        [RenameColumn("land", "country"), DropColumn("passport")],
        ['DROP INDEX "BANK"."PEOPLE_PASS_KEY"', ALTER + 'RENAME COLUMN "LAND" TO "COUNTRY"',
         ALTER + 'DROP ("PASSPORT") CASCADE CONSTRAINTS'],
    ),
    ([AddUnique(index("n", "note"))],
     ['CREATE UNIQUE INDEX "BANK"."PEOPLE_N_KEY" ON "BANK"."PEOPLE" ("NOTE")']),
]  # fmt: skip
#: As the real table's are: a constraint's, and one over expressions.
REAL = {"PEOPLE_MAIL_KEY": "PEOPLE_MAIL_KEY", "PEOPLE_PASS_KEY": None}
THERE = replace(
    PEOPLE, unique=tuple(replace(each, name=f"PEOPLE_{each.name.upper()}_KEY") for each in PEOPLE.unique)
)


@pytest.mark.parametrize("at", range(len(CASES)))
def test_steps(at: int) -> None:
    steps, expected = CASES[at]
    assert list(render_statements(AlterTable(THERE, steps), {**REAL})) == expected


@pytest.mark.parametrize(
    "step",
    [
        ChangeKey(PEOPLE.key, index("PRIMARY", "id", "land")),
        RenameColumn("note", "mail"),
        ChangeColumn(PEOPLE.columns[4], column("note", TEXT), lossless=True),
        ChangeColumn(PEOPLE.columns[4], column("note", text_type(3)), lossless=False),
    ],
)
def test_what_is_not_done_is_refused_before_the_first_statement(step: Alteration) -> None:
    running = render_statements(AlterTable(THERE, [AddColumn(column("n")), step]), {**REAL})
    with pytest.raises(TargetConfigError, match="not changed as the source's was"):
        next(running)


def test_a_unique_index_that_holds_nulls_equal_is_an_ordinary_one() -> None:
    strict = replace(PEOPLE.unique[1], nulls_distinct=False)
    assert render_unique_index(PEOPLE, strict).endswith('("LAND", "PASSPORT")')


# -- types


@pytest.mark.parametrize(("ours", "theirs", "row"), TYPES)
def test_a_type_and_the_way_back(ours: ColumnType, theirs: str, row: OracleCatalogType) -> None:
    assert render_oracle_type(ours) == theirs
    real = convert_oracle_type(row)
    assert accepts_kind(ours, real)
    assert has_room(ours, real)


def test_every_kind_has_a_type_or_is_refused() -> None:
    assert {ours.kind for ours, _, _ in TYPES} | {Kind.GEOMETRY} == set(Kind)
    with pytest.raises(UnsupportedTypeError):
        convert_oracle_type(OracleCatalogType("SDO_GEOMETRY"))
    assert not accepts_kind(
        kind(Kind.DECIMAL, precision=4), convert_oracle_type(OracleCatalogType("NUMBER", 22, None, 0))
    )
    assert not has_room(kind(Kind.YEAR), convert_oracle_type(OracleCatalogType("NUMBER", 22, 3, 0)))


#: (type, wire value): each comes back as it was.
VALUES: list[tuple[ColumnType, Value]] = [
    (kind(Kind.INT, bits=64, unsigned=True), str(2**64 - 1)),
    (kind(Kind.INT, bits=64), -(2**53)),
    (kind(Kind.BIT, length=64), str(2**63)),
    (kind(Kind.DECIMAL, precision=38, scale=30), "-12345678.000000000000000000000000000001"),
    (kind(Kind.DECIMAL, precision=20, scale=0), "10000000000000000000"),
    (kind(Kind.DOUBLE), 5e-324),
    (kind(Kind.FLOAT), 16777216.0),
    (kind(Kind.DOUBLE), "NaN"),
    (kind(Kind.DOUBLE), "Infinity"),
    (kind(Kind.FLOAT), "-Infinity"),
    (kind(Kind.VARCHAR, length=60), " ä%s'\\\0𝄞 "),
    (kind(Kind.VARBINARY, length=60), "AP8lAA=="),
    (kind(Kind.DATE), "0001-01-01"),
    (kind(Kind.DATE), "9999-12-31"),
    (kind(Kind.DATETIME), "0987-01-02 03:04:05"),
    (kind(Kind.DATETIME, fsp=6), "9999-12-31 23:59:59.999999"),
    (kind(Kind.TIMESTAMP, fsp=3), "2038-01-19T03:14:07.001Z"),
    (kind(Kind.TIME, fsp=1), "-838:59:59.0"),
    (kind(Kind.TIME, fsp=6), "838:59:58.000001"),
    (kind(Kind.JSON), '{"a": 1.0, "b": "\\u0000"}'),
    (kind(Kind.ENUM, members=("x",)), "x"),
    (kind(Kind.YEAR), 2155),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value"), VALUES)
def test_a_value_and_the_way_back(type_: ColumnType, value: Value) -> None:
    table = table_of(column("id"), column("v", type_))
    given = to_oracle(table)((1, value))
    numbers = (Kind.INT, Kind.BIT, Kind.YEAR, Kind.DECIMAL)
    fetched = (Decimal(1), Decimal(given[1]) if type_.kind in numbers else given[1])
    assert from_oracle(table)(fetched) == (1, value)
    assert len(list_input_sizes(table)) == 2


def test_an_empty_value_is_null_and_comes_back_where_null_cannot_be() -> None:
    binary = kind(Kind.VARBINARY, length=9)
    table = table_of(
        column("id"),
        column("a", text_type(9)),
        column("b", text_type(9), null=False),
        column("c", binary, null=False),
        column("n", null=False),
    )
    given = to_oracle(table)((1, "", "", "", 0))
    assert given == (1, None, None, None, 0)
    assert from_oracle(table)(given) == (1, None, "", "", 0)


@pytest.mark.parametrize("unique", [False, True])
def test_an_empty_value_of_a_key_is_refused(unique: bool) -> None:
    table = table_of(column("id", text_type(9), null=False), column("v", text_type(9)))
    table = replace(table, key=index("PRIMARY", "v"), unique=(index("u", "id"),)) if unique else table
    with (
        pytest.raises(RefusedError, match="column id: Oracle stores an empty value as NULL"),
        translate_refusals(),
    ):
        to_oracle(table)(("", "x"))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Kind.DATE, "0000-00-00"),
        (Kind.DATETIME, "2020-02-30 00:00:00"),
        (Kind.TIMESTAMP, "0000-00-00 00:00:00"),
    ],
)
def test_what_is_no_date_of_the_calendar_is_refused(type_: Kind, value: str) -> None:
    table = table_of(column("id"), column("v", kind(type_)))
    with pytest.raises(RefusedError, match="not a date of the calendar"), translate_refusals():
        to_oracle(table)((1, value))


# -- rights

ALL_BOOKS = frozenset(("ROWLOCK", name.upper()) for name in BOOKS.tables.list_names())
HAS = rights.OracleRights("ROWLOCK", frozenset({"CREATE TABLE", "CREATE SEQUENCE"}), frozenset(), {})


def lacks(has: rights.OracleRights, *tables: tuple[str, str], **more: Any) -> list[str]:
    desired = RequiredRights("rowlock", BOOKS.tables.list_rights(), tables, create=True, **more)
    found = rights.find_lacking_rights(has, desired)
    assert all(re.fullmatch(r"GRANT .* TO \"ROWLOCK\";", each.statement) for each in found)
    return [each.statement.removeprefix("GRANT ").removesuffix(' TO "ROWLOCK";') for each in found]


def test_rights_in_the_users_own_schema() -> None:
    own = ("rowlock", "acct")
    assert lacks(HAS, own, alter=frozenset({own}), drop=frozenset({own})) == []
    bare = rights.OracleRights("ROWLOCK", frozenset(), frozenset(), {})
    assert lacks(bare, own) == ["CREATE TABLE, CREATE SEQUENCE", "CREATE TABLE"]
    there = rights.OracleRights("ROWLOCK", frozenset(), ALL_BOOKS | {("ROWLOCK", "ACCT")}, {})
    assert lacks(there, own) == [], "what is there needs no right to be made"


def test_rights_in_another_schema() -> None:
    place = ("bank", "acct")
    assert lacks(HAS, place) == ["CREATE ANY TABLE, CREATE ANY INDEX"]
    there = rights.OracleRights(
        "ROWLOCK",
        HAS.privileges,
        frozenset({("BANK", "ACCT")}),
        {("BANK", "ACCT"): frozenset({"SELECT", "INSERT"})},
    )
    assert lacks(there, place) == ['UPDATE, DELETE ON "BANK"."ACCT"']
    assert lacks(there, place, alter=frozenset({place}), drop=frozenset({place}))[1:] == [
        'ALTER ON "BANK"."ACCT"',
        "DROP ANY TABLE",
    ]
    everything = {f"{right} ANY TABLE" for right in ("SELECT", "INSERT", "UPDATE", "DELETE", "ALTER", "DROP")}
    anything = rights.OracleRights("ROWLOCK", HAS.privileges | everything, there.tables, {})
    assert lacks(anything, place, alter=frozenset({place}), drop=frozenset({place})) == []


# -- CHAR and NCHAR, which are filled with blanks


class OneTable:
    """A link that knows one table: ID, CODE (nullable) and NOTE, with a key and a unique index."""

    def __init__(self, types: dict[str, str], key: str = "ID", unique: str = "") -> None:
        self._types, self._key, self._unique = types, key, unique

    def connect(self) -> None: ...

    def execute(self, text: str, params: list[object]) -> list[tuple[object, ...]]:
        if "data_type, char_length" in text:
            return [
                (name, type_, 10, 10, None, None, "N" if name == self._key else "Y", "NO", None)
                for name, type_ in self._types.items()
            ]
        if "ALL_CONS_COLUMNS" in text and "'P'" in text:
            return [("PK", self._key)]
        if "'UNIQUE'" in text:
            return [("PK", self._key, None), *([("U", self._unique, None)] if self._unique else [])]
        return [(name,) for name, type_ in self._types.items() if f"'{type_}'" in text and "CHAR" in type_]


def read(types: dict[str, str], **more: str) -> Table | None:
    link: Any = OneTable(types, **more)
    return OracleTargetCatalog(link).read_table("bank", "acct")


@pytest.mark.parametrize("type_", ["CHAR", "NCHAR"])
def test_a_key_that_is_filled_with_blanks_is_refused(type_: str) -> None:
    """`DELETE … WHERE "CODE" = :1` with a VARCHAR2 'abc' finds no 'abc       '."""
    types = {"CODE": type_, "NOTE": "VARCHAR2"}
    with pytest.raises(TargetConfigError, match=f"column code of the primary key is {type_}.*VARCHAR2"):
        read(types, key="CODE")
    with pytest.raises(TargetConfigError, match=f"column code of unique index U is {type_}.*RTRIM"):
        read({"ID": "NUMBER", **types}, unique="CODE")
    assert read({"ID": "NUMBER", **types}) is not None
    assert read({"CODE": "VARCHAR2"}, key="CODE") is not None


def test_blanks_of_a_column_that_is_filled_with_them_are_taken_off_where_the_source_has_none() -> None:
    table = table_of(column("id"), column("a", kind(Kind.CHAR, length=9)), column("b", text_type(9)))
    assert from_oracle(table)((Decimal(1), "\tab       ", "cd       ")) == (1, "\tab", "cd       ")
    assert from_oracle(table)((Decimal(1), None, None)) == (1, None, None)


def test_check_says_which_columns_are_filled_with_blanks() -> None:
    link: Any = OneTable({"ID": "NUMBER", "CODE": "CHAR", "NOTE": "VARCHAR2"})
    [remark] = [
        each
        for each in OracleTargetCatalog(link).read_table_facts("bank", "acct").remarks
        if "blanks" in each.message
    ]
    assert (remark.level, remark.columns) == ("warning", ("code",))
    assert "VARCHAR2" in remark.remedy


@pytest.mark.parametrize(
    ("precision", "scale", "text"), [(0, 0, "1.5"), (0, 2, "1.50"), (38, 2, "1.50"), (38, 0, "2")]
)
def test_a_number_is_read_with_the_fraction_of_its_type(precision: int, scale: int, text: str) -> None:
    column = Column(name="v", type=ColumnType(kind=Kind.DECIMAL, precision=precision, scale=scale))
    assert values._read_decimal(column)(Decimal("1.5")) == text
