"""The type map is total, its page is up to date, and equality is as exact as it claims."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UnsupportedTypeError, ValueRefusedError
from schemas.table.collations import make_collation_chooser, make_key_collation_chooser
from schemas.table.equality import compute_wire_digest
from schemas.table.model import (
    Column,
    ColumnType,
    IndexPart,
    Kind,
    Table,
    UniqueIndex,
    Value,
    is_same_definition,
)
from schemas.table.typemap import (
    are_wire_equal,
    convert_postgres_type,
    quote_literal,
    render_mysql_type,
    render_postgres_type,
)
from schemas.values.mysql import make_select_row_converter, select_list, to_mysql
from schemas.values.postgres import copy_line, escape_copy, make_postgres_row_converter, to_postgres
from tests.kits.schemas_strategies import TABLE, TYPES
from tools.docs.typemap import page


def test_the_page_is_up_to_date() -> None:
    stored = Path(__file__).parents[2] / "docs" / "reference" / "types.md"
    assert stored.read_text() == page(), "run: python -m tools.docs.typemap > docs/reference/types.md"


def test_every_kind_is_in_the_strategies() -> None:
    assert {type_.kind for type_ in TYPES.values()} == set(Kind)


@pytest.mark.parametrize(
    ("type_", "postgres", "mysql"),
    [
        (ColumnType(kind=Kind.INT, bits=8), "smallint", "tinyint"),
        (ColumnType(kind=Kind.INT, bits=16, unsigned=True), "integer", "smallint unsigned"),
        (ColumnType(kind=Kind.INT, bits=24, unsigned=True), "integer", "mediumint unsigned"),
        (ColumnType(kind=Kind.INT, bits=32, unsigned=True), "bigint", "int unsigned"),
        (ColumnType(kind=Kind.INT, bits=64, unsigned=True), "numeric(20,0)", "bigint unsigned"),
        (ColumnType(kind=Kind.DECIMAL, precision=65, scale=30), "numeric(65,30)", "decimal(65,30)"),
        (ColumnType(kind=Kind.BIT, length=7), "bit(7)", "bit(7)"),
        (ColumnType(kind=Kind.CHAR, length=0), "varchar(1)", "char(0)"),
        (ColumnType(kind=Kind.TIME, fsp=3), "interval(3)", "time(3)"),
        (ColumnType(kind=Kind.TIMESTAMP), "timestamptz(0)", "timestamp(0)"),
        (ColumnType(kind=Kind.ENUM, members=("it's", "b\\")), "text", r"enum('it''s','b\\')"),
        (ColumnType(kind=Kind.TEXT, length=255), "text", "tinytext"),
        (ColumnType(kind=Kind.TEXT, length=256), "text", "longtext"),
    ],
)
def test_types(type_: ColumnType, postgres: str, mysql: str) -> None:
    assert (render_postgres_type(type_), render_mysql_type(type_)) == (postgres, mysql)


def test_collations_are_kept_replaced_or_left_to_the_server() -> None:
    text = ColumnType(kind=Kind.VARCHAR, length=5, charset="utf8mb4", collation="utf8mb4_0900_ai_ci")
    assert render_mysql_type(text) == "varchar(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci"
    mariadb = make_collation_chooser(["utf8mb4_bin", "utf8mb4_uca1400_nopad_ai_ci"])
    assert render_mysql_type(text, mariadb).endswith("COLLATE utf8mb4_uca1400_nopad_ai_ci")
    assert render_mysql_type(text, make_collation_chooser(["utf8mb4_bin"])).endswith("COLLATE utf8mb4_bin")
    assert render_mysql_type(text, make_collation_chooser([])) == "varchar(5) CHARACTER SET utf8mb4"


@pytest.mark.parametrize(
    ("source", "near", "key"),
    [
        ("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_nopad_bin"),
        ("utf8mb4_tr_0900_as_cs", "utf8mb4_uca1400_turkish_nopad_as_cs", "utf8mb4_nopad_bin"),
        ("utf8mb4_ja_0900_as_cs_ks", "utf8mb4_uca1400_nopad_as_cs", "utf8mb4_nopad_bin"),
        ("utf8mb4_0900_bin", "utf8mb4_nopad_bin", "utf8mb4_nopad_bin"),
        ("utf8_general_ci", "utf8mb3_general_ci", "utf8mb3_general_ci"),
        ("gb18030_chinese_ci", "utf8mb4_unicode_520_ci", "utf8mb4_nopad_bin"),
    ],
)
def test_what_mariadb_has_for_collations_of_mysql(source: str, near: str, key: str) -> None:
    mariadb = [
        "utf8mb4_bin", "utf8mb4_nopad_bin", "utf8mb4_unicode_520_ci", "utf8mb4_uca1400_nopad_ai_ci",
        "utf8mb3_general_ci", "utf8mb4_uca1400_nopad_as_cs", "utf8mb4_uca1400_turkish_nopad_as_cs",
    ]  # fmt: skip
    assert (
        make_collation_chooser(mariadb)(_text(source)),
        make_key_collation_chooser(mariadb)(_text(source)),
    ) == (near, key)


@pytest.mark.parametrize(
    ("source", "near", "key"),
    [
        ("utf8mb4_uca1400_ai_ci", "utf8mb4_0900_ai_ci", "utf8mb4_0900_bin"),
        ("utf8mb4_uca1400_turkish_nopad_as_cs", "utf8mb4_tr_0900_as_cs", "utf8mb4_0900_bin"),
        ("utf8mb3_uca1400_turkish_ai_ci", "utf8mb3_turkish_ci", "utf8mb3_bin"),
        ("utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_0900_bin"),
        ("utf8mb4_bin", "utf8mb4_bin", "utf8mb4_bin"),
        ("gbk_chinese_nopad_ci", "gbk_chinese_ci", "utf8mb4_0900_bin"),
        ("gbk_nopad_bin", "gbk_bin", "utf8mb4_0900_bin"),
        ("gbk_chinese_ci", "gbk_chinese_ci", "gbk_chinese_ci"),
    ],
)
def test_what_mysql_has_for_collations_of_mariadb(source: str, near: str, key: str) -> None:
    mysql = [
        "utf8mb4_bin", "utf8mb4_0900_bin", "utf8mb4_0900_ai_ci", "utf8mb4_tr_0900_as_cs", "utf8mb3_bin",
        "utf8mb3_turkish_ci", "gbk_chinese_ci", "gbk_bin",
    ]  # fmt: skip
    assert (
        make_collation_chooser(mysql)(_text(source)),
        make_key_collation_chooser(mysql)(_text(source)),
    ) == (near, key)


def test_a_server_without_a_collation_that_is_fine_enough_is_refused() -> None:
    old = make_key_collation_chooser(["utf8_general_ci", "utf8_bin", "utf8mb4_bin", "utf8mb4_unicode_ci"])
    assert old(_text("utf8mb3_general_ci")) == "utf8_general_ci"
    assert old(_text("utf8mb4_unicode_520_ci")) == "utf8mb4_bin"
    with pytest.raises(
        UnsupportedTypeError, match=r"utf8mb4_nopad_bin \(MariaDB\) or utf8mb4_0900_bin \(MySQL\)"
    ):
        old(_text("utf8mb4_0900_ai_ci"))


def test_a_definition_by_the_name_that_mariadb_showed_before_is_the_same() -> None:
    def table(collation: str) -> Table:
        key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="a"),))
        return Table(
            db="d", name="t", columns=(Column(name="a", type=_text(collation)),), key=key, collation=collation
        )

    now = table("utf8mb4_uca1400_nopad_ai_ci")
    assert is_same_definition(table("utf8mb4_0900_ai_ci"), now)
    assert not is_same_definition(now, table("utf8mb4_0900_ai_ci"))
    assert not is_same_definition(table("utf8mb4_0900_as_cs"), now)


def _text(collation: str) -> ColumnType:
    return ColumnType(kind=Kind.VARCHAR, length=5, charset=collation.partition("_")[0], collation=collation)


@pytest.mark.parametrize(
    ("shown", "type_"),
    [
        ("numeric(20,4)", ColumnType(kind=Kind.DECIMAL, precision=20, scale=4)),
        ("character varying(7)", ColumnType(kind=Kind.VARCHAR, length=7)),
        ("timestamp(3) without time zone", ColumnType(kind=Kind.DATETIME, fsp=3)),
        ("timestamp with time zone", ColumnType(kind=Kind.TIMESTAMP, fsp=6)),
        ("bit(5)", ColumnType(kind=Kind.BIT, length=5)),
        ("interval(0)", ColumnType(kind=Kind.TIME, fsp=0)),
    ],
)
def test_types_of_postgres(shown: str, type_: ColumnType) -> None:
    assert convert_postgres_type(shown) == type_


@pytest.mark.parametrize("shown", ["integer[]", "point", "public.mood", ""])
def test_unknown_types_of_postgres_are_refused(shown: str) -> None:
    with pytest.raises(UnsupportedTypeError):
        convert_postgres_type(shown)


@pytest.mark.parametrize(
    ("kind", "a", "b", "same"),
    [
        (Kind.INT, 1, 1, True),
        (Kind.INT, None, None, True),
        (Kind.INT, None, 0, False),
        (Kind.DOUBLE, 0.0, -0.0, False),
        (Kind.DOUBLE, 1, 1.0, True),
        (Kind.DECIMAL, "1.0", "1.00", False),
        (Kind.TEXT, "a", "a ", False),
        (Kind.SET, "a,b", "b,a", False),
        (Kind.JSON, '{"a":1,"b":[]}', '{"b": [], "a": 1.0}', True),
        (Kind.JSON, "[1,2]", "[2,1]", False),
        (Kind.JSON, "9007199254740993", "9007199254740992", False),
        (Kind.JSON, "1e2", "100", True),
        (Kind.JSON, "-0.0", "0", True),
        (Kind.JSON, "12300", "1.23e4", True),
        (Kind.JSON, "0.0012", "12e-4", True),
        (Kind.JSON, "12", "120", False),
        (Kind.JSON, "-1", "1", False),
        (Kind.JSON, '["number","1",0]', "1", False),
        (Kind.JSON, '{"a":{}}', '{"a":[]}', False),
        (Kind.JSON, '[["b",1]]', '{"b":1}', False),
        (Kind.INT, 5, "5", False),
        (Kind.GEOMETRY, {"wkb": "AA==", "srid": 1}, {"srid": 1, "wkb": "AA=="}, True),
        (Kind.DOUBLE, "NaN", "NaN", True),
        (Kind.JSON, "true", "1", False),
        (Kind.JSON, '{"a":[true]}', '{"a":[1]}', False),
        (Kind.JSON, '"1"', "1", False),
        (Kind.JSON, "null", None, False),
        (Kind.JSON, "not json", "not  json", False),
        (Kind.TEXT, '{"a":1}', '{"a": 1}', False),
    ],
)
def test_equality(kind: Kind, a: Value, b: Value, same: bool) -> None:
    assert are_wire_equal(kind, a, b) is same
    assert are_wire_equal(kind, b, a) is same
    assert (compute_wire_digest(kind, a) == compute_wire_digest(kind, b)) is same


_SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False).map(float)
    | st.text()
)
_DOCUMENT = st.recursive(
    _SCALAR, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(_DOCUMENT)
def test_json_spelling_does_not_count(document: object) -> None:
    spellings = (json.dumps(document), json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False))
    assert are_wire_equal(Kind.JSON, *spellings)
    assert len({compute_wire_digest(Kind.JSON, each) for each in spellings}) == 1


@given(_DOCUMENT, _DOCUMENT)
def test_digests_of_documents_are_the_same_where_these_are(one: object, other: object) -> None:
    texts = json.dumps(one), json.dumps(other)
    assert (len({compute_wire_digest(Kind.JSON, each) for each in texts}) == 1) is are_wire_equal(
        Kind.JSON, *texts
    )


def one(type_: ColumnType, default: str | None = None) -> Table:
    column = Column(name="v", type=type_, default=default)
    return Table(
        db="d", name="t", columns=(column,), key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="v"),))
    )


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (r'"\u0000"', True),
        (r'"\\u0000"', False),
        (r'"\\\u0000"', True),
        (r'"\\\\u0000"', False),
        ('"u0000"', False),
    ],
)
def test_nul_in_json_is_told_from_its_text(text: str, refused: bool) -> None:
    convert = to_postgres(one(ColumnType(kind=Kind.JSON)))
    assert refused is ("\0" in json.loads(text))
    if refused:
        with pytest.raises(ValueRefusedError, match=r"column v: .*U\+0000"):
            convert((text,))
    else:
        assert convert((text,)) == (text,)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_copy_line_is_one_line(text: str) -> None:
    line = copy_line(one(ColumnType(kind=Kind.TEXT)))((text,))
    assert line.endswith("\n")
    assert not {"\n", "\t", "\r"} & set(line[:-1])


def test_copy_tells_null_from_its_spelling() -> None:
    line = copy_line(one(ColumnType(kind=Kind.TEXT)))
    assert (line((None,)), line((r"\N",))) == ("\\N\n", "\\\\N\n")


_CELLS: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.INT: st.integers(-5, 5),
    Kind.DECIMAL: st.sampled_from(["1.50", "-0.00"]),
    Kind.TEXT: st.text(st.sampled_from("ab\\\t\n\r\0N"), max_size=4),
    Kind.JSON: st.sampled_from(['{"a": "\\\\n"}', "[]", '"\\u0000"']),
    Kind.DATETIME: st.sampled_from(
        ["2026-11-21 12:41:49.753328", "0000-00-00 00:00:00", "2026-02-31 00:00:00"]
    ),
    Kind.TIMESTAMP: st.sampled_from(
        ["2026-11-21T12:41:49.753Z", "2026-11-22T00:00:00Z", "0000-00-00 00:00:00"]
    ),
    Kind.DOUBLE: st.floats(allow_nan=False),
    Kind.BLOB: st.sampled_from(["", "AP8="]),
}


@pytest.mark.parametrize("kinds", [tuple(_CELLS), tuple(_CELLS)[:-1]], ids=["with bytes", "without bytes"])
@given(data=st.data())
def test_a_whole_copy_line_is_its_escaped_values(kinds: tuple[Kind, ...], data: st.DataObject) -> None:
    columns = tuple(Column(name=f"c{i}", type=ColumnType(kind=kind)) for i, kind in enumerate(kinds))
    table = msgspec.structs.replace(one(ColumnType(kind=Kind.INT)), columns=columns)
    row = data.draw(st.tuples(*(st.none() | _CELLS[kind] for kind in kinds)))
    try:
        values = to_postgres(table)(row)
    except ValueRefusedError:
        with pytest.raises(ValueRefusedError):
            copy_line(table)(row)
    else:
        cells = [r"\N" if value is None else escape_copy(str(value)) for value in values]
        assert copy_line(table)(row) == "\t".join(cells) + "\n"


@pytest.mark.parametrize(
    ("type_", "seen", "wire"),
    [
        (ColumnType(kind=Kind.DECIMAL, scale=2), "1.5000", "1.50"),
        (ColumnType(kind=Kind.DECIMAL, scale=2), "1.505", "1.505"),
        (ColumnType(kind=Kind.DECIMAL, scale=0), "-3.00", "-3"),
        (ColumnType(kind=Kind.DECIMAL, scale=2), "NaN", "NaN"),
        (ColumnType(kind=Kind.INT, bits=64), "1.5", "1.5"),
        (ColumnType(kind=Kind.INT, bits=64), "NaN", "NaN"),
        (ColumnType(kind=Kind.TIME, fsp=2), "-00:00:01.5", "-00:00:01.50"),
        (ColumnType(kind=Kind.DATETIME, fsp=0), "2024-01-01 00:00:00.5", "2024-01-01 00:00:00.5"),
        (ColumnType(kind=Kind.TIMESTAMP, fsp=3), "infinity", "infinity"),
        (ColumnType(kind=Kind.BIT, length=3), "101", 5),
    ],
)
def test_values_of_postgres_that_do_not_fit_stay_visible(type_: ColumnType, seen: str, wire: Value) -> None:
    assert make_postgres_row_converter(one(type_))((seen,)) == (wire,)


@given(st.integers(0, 10**10 - 1), st.integers(0, 10))
def test_zerofill_is_removed_from_decimals(unscaled: int, scale: int) -> None:
    exact = format(Decimal(unscaled).scaleb(-scale), "f")
    table = one(ColumnType(kind=Kind.DECIMAL, unsigned=True, precision=20, scale=scale))
    assert make_select_row_converter(table)(("000" + exact,)) == (exact,)
    assert make_select_row_converter(table)((exact,)) == (exact,)


@pytest.mark.parametrize(
    ("length", "wire", "written"),
    [
        (53, 2**53 - 1, 2**53 - 1),
        (54, str(2**54 - 1), 2**54 - 1),
        (54, 7, 7),
        (64, str(2**64 - 1), 2**64 - 1),
    ],
)
def test_wide_bits_are_written_to_mysql_as_a_number(length: int, wire: Value, written: int) -> None:
    assert to_mysql(one(ColumnType(kind=Kind.BIT, length=length)))((wire,)) == (written,)


def test_names_are_quoted_in_select_lists() -> None:
    table = Table(
        db="d", name="t", columns=(Column(name="a`b", type=ColumnType(kind=Kind.DATE)),), key=TABLE.key
    )
    assert select_list(table) == ["CAST(`a``b` AS CHAR)"]


def test_null_is_null_in_every_kind() -> None:
    nothing = (None,) * len(TABLE.columns)
    for convert in (
        to_mysql(TABLE),
        make_select_row_converter(TABLE),
        to_postgres(TABLE),
        make_postgres_row_converter(TABLE),
    ):
        assert convert(nothing) == nothing


def test_literals_are_quoted() -> None:
    assert quote_literal("a'b\\c") == "'a''b\\\\c'"


@pytest.mark.parametrize(
    ("length", "charset", "there", "made"),
    [
        (2**16 - 1, "gb18030", "utf8mb4_unicode_ci", "mediumtext"),
        (2**8 - 1, "latin1", "utf8mb4_bin", "text"),
        (2**8 - 1, "utf8mb4", "utf8mb3_bin", "text"),
        (2**24 - 1, "gb18030", "utf8mb4_bin", "longtext"),
        (2**32 - 1, "gb18030", "utf8mb4_bin", "longtext"),
        (2**16 - 1, "gbk", "gbk_bin", "text"),
        (2**16 - 1, "utf8", "utf8mb3_bin", "text"),
        (2**16 - 1, None, "utf8mb4_bin", "text"),
    ],
)
def test_a_text_has_room_for_all_in_another_character_set(
    length: int, charset: str | None, there: str, made: str
) -> None:
    """Its limit is one of bytes: a TEXT of gb18030 did not go into the TEXT of utf8mb4 that MariaDB was given
    for it."""
    text = ColumnType(kind=Kind.TEXT, length=length, charset=charset, collation=charset and f"{charset}_bin")
    assert render_mysql_type(text, lambda _: there).partition(" ")[0] == made
