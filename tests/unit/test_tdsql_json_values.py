"""Literals of TDSQL's JSON subscription: every type's are read back, and what is doubtful or does not
fit is an error with the column."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.sources.tdsql_json.literals import LiteralError, LiteralForm, mask_literal
from producer.sources.tdsql_json.rows import RowReader, RowWidthError
from schemas.table.model import ColumnType, Kind, TextOf
from tests.kits.tdsql_json import table_of, values

DECLARED = LiteralForm(
    escapes="backslash", is_text_converted=True, are_floats_exact=True, timestamps="+00:00"
)
UNDECLARED = LiteralForm()
VARCHAR = ColumnType(kind=Kind.VARCHAR, length=40, charset="utf8mb4")
GBK = ColumnType(kind=Kind.VARCHAR, length=40, charset="gbk")


@given(st.lists(st.tuples(values(), st.booleans()), max_size=8))
def test_written_literals_of_every_type_are_read_back(
    drawn: list[tuple[tuple[ColumnType, Any, str], bool]],
) -> None:
    table = table_of(*(type_ for (type_, _, _), _ in drawn))
    literals = ["7", *("NULL" if null else literal for (_, _, literal), null in drawn)]
    expected = [None if null else wire for (_, wire, _), null in drawn]
    row = RowReader(table, DECLARED).read_row(literals)
    assert row == (
        7,
        *(base64.b64encode(each[1]).decode() if isinstance(each, tuple) else each for each in expected),
    )


@given(values())
def test_no_literal_is_read_as_another_value_where_nothing_is_declared(
    drawn: tuple[ColumnType, Any, str],
) -> None:
    type_, wire, literal = drawn
    with contextlib.suppress(LiteralError):
        value = RowReader(table_of(type_), UNDECLARED).read_row(["7", literal])[1]
        assert value == (base64.b64encode(wire[1]).decode() if isinstance(wire, tuple) else wire)


def read(
    type_: ColumnType, literal: str | None, form: LiteralForm = UNDECLARED, *, nullable: bool = True
) -> Any:
    return RowReader(table_of(type_, nullable=nullable), form).read_row(["7", literal])[1]


@pytest.mark.parametrize(
    ("type_", "literal", "declared"),
    [
        (VARCHAR, r"'a\nb'", {"backslash": "a\nb", "none": r"a\nb"}),
        (VARCHAR, "'it''s'", {"backslash": "it's", "none": "it''s"}),
        (VARCHAR, r"'\\'", {"backslash": "\\", "none": r"\\"}),
    ],
)
def test_escapes_are_doubtful_until_they_are_declared(type_: ColumnType, literal: str, declared: Any) -> None:
    with pytest.raises(LiteralError, match="could mean two values"):
        read(type_, literal)
    for escapes, value in declared.items():
        assert read(type_, literal, LiteralForm(escapes=escapes)) == value


@pytest.mark.parametrize(
    ("type_", "literal"),
    [
        (VARCHAR, "'\ufffd'"),
        (VARCHAR, None),
        (GBK, "'中'"),
        (GBK, "0xE4B8AD"),
        (ColumnType(kind=Kind.VARCHAR, length=9, charset="ucs2"), "'ab'"),
        (ColumnType(kind=Kind.VARBINARY, length=9), "'YWJj'"),
        (ColumnType(kind=Kind.BIT, length=8), "10"),
        (ColumnType(kind=Kind.FLOAT), "1.5"),
        (ColumnType(kind=Kind.DOUBLE), "0.3333333333"),
        (ColumnType(kind=Kind.TIMESTAMP), "'2020-01-01 00:00:00'"),
        (ColumnType(kind=Kind.TIMESTAMP), "1511350073"),
        (ColumnType(kind=Kind.GEOMETRY), "X'00'"),
        (ColumnType(kind=Kind.TEXT, text_of=TextOf.VECTOR), "'[1]'"),
        (ColumnType(kind=Kind.ENUM_NUMBER, members=("", "a")), "''"),
        (ColumnType(kind=Kind.SET_NUMBER, members=("", "a")), "',a'"),
    ],
)
def test_doubtful_literals_are_errors(type_: ColumnType, literal: str | None) -> None:
    with pytest.raises(LiteralError, match="could mean two values") as caught:
        read(type_, literal)
    assert (caught.value.column, caught.value.value) == ("c0", literal)


@pytest.mark.parametrize(
    ("type_", "literal"),
    [
        (ColumnType(kind=Kind.INT, bits=8), "128"),
        (ColumnType(kind=Kind.INT, bits=8, unsigned=True), "-1"),
        (ColumnType(kind=Kind.INT, bits=8), "-56 (200)"),
        (ColumnType(kind=Kind.INT, bits=8), "'1'"),
        (ColumnType(kind=Kind.INT, bits=8), "1_0"),
        (ColumnType(kind=Kind.INT, bits=8), "007"),
        (ColumnType(kind=Kind.INT, bits=8), "٣"),
        (ColumnType(kind=Kind.INT, bits=8), ""),
        (VARCHAR, "abc"),
        (VARCHAR, "'"),
        (VARCHAR, "null"),
        (VARCHAR, f"'{'a' * 41}'"),
        (VARCHAR, "0xFF"),
        (VARCHAR, "0xABC"),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "1000.00"),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "1.005"),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "-"),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2, unsigned=True), "-1.00"),
        (ColumnType(kind=Kind.DOUBLE), "nan"),
        (ColumnType(kind=Kind.FLOAT), "3.402823500e+39"),
        (ColumnType(kind=Kind.BIT, length=2), "b'101'"),
        (ColumnType(kind=Kind.BIT, length=2), "x"),
        (ColumnType(kind=Kind.YEAR), "70"),
        (ColumnType(kind=Kind.DATE), "'2020:01:01'"),
        (ColumnType(kind=Kind.DATE), "'2020-13-01'"),
        (ColumnType(kind=Kind.DATETIME), "'2020-01-01 24:00:00'"),
        (ColumnType(kind=Kind.DATETIME, fsp=3), "'2020-01-01 00:00:00'"),
        (ColumnType(kind=Kind.DATETIME), "'2020-01-01 00:00:00.5'"),
        (ColumnType(kind=Kind.TIME), "'839:00:00'"),
        (ColumnType(kind=Kind.BINARY, length=1), "0xABCD"),
        (ColumnType(kind=Kind.BINARY, length=1), "abc"),
        (ColumnType(kind=Kind.ENUM, members=("a",)), "2"),
        (ColumnType(kind=Kind.ENUM, members=("a",)), "'b'"),
        (ColumnType(kind=Kind.SET, members=("a", "b")), "'b,a'"),
        (ColumnType(kind=Kind.SET, members=("a", "b")), "4"),
        (ColumnType(kind=Kind.JSON), """'{"a":1}'"""),
        (ColumnType(kind=Kind.JSON), """'{"bb": 1, "a": 2}'"""),
        (ColumnType(kind=Kind.JSON), "'NaN'"),
        (ColumnType(kind=Kind.JSON), "'{'"),
        (ColumnType(kind=Kind.CHAR, length=36, text_of=TextOf.UUID), "'X'"),
    ],
)
def test_literals_of_another_type_are_errors(type_: ColumnType, literal: str) -> None:
    with pytest.raises(LiteralError, match="does not fit the type"):
        read(type_, literal)


@pytest.mark.parametrize(
    ("type_", "literal", "form", "value"),
    [
        (GBK, "'中'", LiteralForm(is_text_converted=True), "中"),
        (GBK, "'abc'", UNDECLARED, "abc"),
        (GBK, "0x6162", UNDECLARED, "ab"),
        (ColumnType(kind=Kind.INT, bits=32, unsigned=True), "0042", UNDECLARED, 42),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "-007.5", UNDECLARED, "-7.50"),
        (ColumnType(kind=Kind.DECIMAL, precision=5, scale=2), "-0.000", UNDECLARED, "0.00"),
        (ColumnType(kind=Kind.DOUBLE), "0.33333333333333331", UNDECLARED, 1 / 3),
        (ColumnType(kind=Kind.BIT, length=8), "25", UNDECLARED, 25),
        (ColumnType(kind=Kind.BIT, length=8), "0x19", UNDECLARED, 25),
        (ColumnType(kind=Kind.TIMESTAMP), "'0000-00-00 00:00:00'", UNDECLARED, "0000-00-00 00:00:00"),
        (ColumnType(kind=Kind.TIMESTAMP), "0", LiteralForm(timestamps="epoch"), "0000-00-00 00:00:00"),
        (
            ColumnType(kind=Kind.TIMESTAMP),
            "1511350073",
            LiteralForm(timestamps="epoch"),
            "2017-11-22T11:27:53Z",
        ),
        (
            ColumnType(kind=Kind.TIMESTAMP, fsp=1),
            "'2020-01-01 07:00:00.50'",
            LiteralForm(timestamps="+08:00"),
            "2019-12-31T23:00:00.5Z",
        ),
        (
            ColumnType(kind=Kind.TIMESTAMP),
            "'2020-01-01 00:00:00'",
            LiteralForm(timestamps="-03:30"),
            "2020-01-01T03:30:00Z",
        ),
        (ColumnType(kind=Kind.DATE), "'0000-00-00'", UNDECLARED, "0000-00-00"),
        (ColumnType(kind=Kind.CHAR, length=9, charset="utf8mb4"), "'ab  '", UNDECLARED, "ab"),
        (VARCHAR, "'ab  '", UNDECLARED, "ab  "),
        (ColumnType(kind=Kind.YEAR), "0000", UNDECLARED, 0),
        (ColumnType(kind=Kind.BLOB, length=9), "''", UNDECLARED, ""),
        (ColumnType(kind=Kind.ENUM_NUMBER, members=("", "a")), "'a'", UNDECLARED, 2),
        (ColumnType(kind=Kind.SET_NUMBER, members=("", "a")), "3", UNDECLARED, 3),
        (ColumnType(kind=Kind.SET, members=("a", "b")), "3", UNDECLARED, "a,b"),
        (ColumnType(kind=Kind.JSON, charset="utf8mb4"), """'{"bb":1,"a":2}'""", UNDECLARED, '{"bb":1,"a":2}'),
        (VARCHAR, "'NULL'", UNDECLARED, "NULL"),
    ],
)
def test_literals_with_one_meaning_are_read(
    type_: ColumnType, literal: str, form: LiteralForm, value: Any
) -> None:
    assert read(type_, literal, form) == value


def test_null_needs_a_nullable_column() -> None:
    assert read(VARCHAR, "NULL") is None
    with pytest.raises(LiteralError, match="NOT NULL"):
        read(VARCHAR, "NULL", nullable=False)


@pytest.mark.parametrize("literals", [["7"], ["7", "1", "2"], []])
def test_another_number_of_literals_is_an_error(literals: list[str]) -> None:
    with pytest.raises(RowWidthError, match=f"has {len(literals)} values where its definition has 2 columns"):
        RowReader(table_of(VARCHAR), UNDECLARED).read_row(literals)


def test_messages_show_no_value() -> None:
    with pytest.raises(LiteralError) as caught:
        read(VARCHAR, r"'Lucy 中 42\x27'")
    assert r"'aaaa a 99\x99'" in str(caught.value)
    assert "Lucy" not in str(caught.value)
    assert mask_literal("'" + "x" * 100 + "'").endswith("… (102 characters)")
