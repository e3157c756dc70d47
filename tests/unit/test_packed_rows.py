"""Keys that a server returns as one JSON text: what is taken for all of them, and what is read row by row."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from producer.snapshot.reader import build_chunk_query
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.values.mysql import pack_rows
from schemas.values.packed import can_pack, decode_packed_rows

INT = ColumnType(kind=Kind.INT, bits=64)
UNSIGNED = ColumnType(kind=Kind.INT, bits=64, unsigned=True)
DATE = ColumnType(kind=Kind.DATE)
TEXT = ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4")


def key_table(*types: ColumnType) -> Table:
    columns = tuple(Column(name=f"k{n}", type=kind, nullable=False) for n, kind in enumerate(types))
    parts = tuple(IndexPart(column=column.name) for column in columns)
    return Table(db="d", name="t", columns=columns, key=UniqueIndex(name="PRIMARY", parts=parts))


ROWS: dict[tuple[ColumnType, ...], tuple[str, list[Row]]] = {
    (INT,): ("[-9223372036854775808],[-1],[0],[9223372036854775807]",
     [(-(2**63),), (-1,), (0,), (2**63 - 1,)]),
    (UNSIGNED,): ("[0],[9007199254740993],[18446744073709551615]", [(0,), (2**53 + 1,), (2**64 - 1,)]),
    (DATE,): ('["0000-00-00"],["0099-01-02"],["2026-00-31"]',
     [("0000-00-00",), ("0099-01-02",), ("2026-00-31",)]),
    (INT, DATE, INT): ('[1,"2026-01-01",2],[1,"2026-01-01",10],[10,"2026-01-01",1]',
     [(1, "2026-01-01", 2), (1, "2026-01-01", 10), (10, "2026-01-01", 1)]),
}  # fmt: skip


@pytest.mark.parametrize("types", ROWS)
def test_all_rows_are_decoded_with_exact_values(types: tuple[ColumnType, ...]) -> None:
    text, rows = ROWS[types]
    assert decode_packed_rows(key_table(*types), (len(rows), text)) == rows


@pytest.mark.parametrize("types", ROWS)
def test_a_cut_text_is_refused_wherever_it_ends(types: tuple[ColumnType, ...]) -> None:
    """The text may end between two rows: then only the number of rows shows it."""
    text, rows = ROWS[types]
    cut = [decode_packed_rows(key_table(*types), (len(rows), text[:end])) for end in range(len(text))]
    assert cut == [None] * len(text)


@pytest.mark.parametrize(
    "packed",
    [
        (2, None),  # all rows have a NULL
        (2, "[1]"),  # one row has a NULL
        (1, "[1],[2]"),
        (2, "[2],[1]"),
        (2, "[1],[1]"),
        (2, "[1],[null]"),
        (2, "[1],[true]"),
        (2, "[1],[2.5]"),
        (2, "[1],[02]"),
        (2, '[1],["2"]'),
        (2, "[1],[2,3]"),
        (2, b"[1],[2]"),
    ],
)
def test_what_is_not_certainly_complete_is_refused(packed: tuple[int, object]) -> None:
    assert decode_packed_rows(key_table(INT), packed) is None


def test_no_rows_are_no_text() -> None:
    assert decode_packed_rows(key_table(INT), (0, None)) == []


def test_only_keys_of_integers_and_times_are_packed() -> None:
    wide = replace(key_table(INT), columns=(*key_table(INT).columns, Column(name="v", type=INT)))
    turned = replace(key_table(INT, INT), columns=key_table(INT, INT).columns[::-1])
    times = [ColumnType(kind=kind) for kind in (Kind.YEAR, Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP)]
    assert can_pack(key_table(INT, *times))
    others = {each for each in Kind if not can_pack(key_table(INT, ColumnType(kind=each)))}
    assert others == {*Kind} - {Kind.INT, *(each.kind for each in times)}
    assert not can_pack(wide)
    assert not can_pack(turned)


def test_a_text_is_packed_only_where_it_is_an_added_column() -> None:
    """Python does not order texts as servers do; of most tables one source's keys are read."""
    table = key_table(TEXT, INT)
    assert not can_pack(table)
    assert not can_pack(table, {"k1"})
    assert can_pack(table, {"k0"})
    assert pack_rows(table).values == "GROUP_CONCAT('[', JSON_QUOTE(`k0`), ',', `k1`, ']')"
    assert decode_packed_rows(table, (2, r'["\"]",1],["\"]",2]')) == [('"]', 1), ('"]', 2)]
    assert decode_packed_rows(table, (2, '["a",1],["B",2]')) is None


def test_the_select_of_a_packed_chunk() -> None:
    table = key_table(INT, UNSIGNED, DATE)
    sql, parameters = build_chunk_query(table, ("1", 2, "2026-01-01"), 5, packed=pack_rows(table))
    start, _, end = sql.partition("(SELECT ")
    assert start == (
        "SELECT COUNT(*), GROUP_CONCAT('[', `k0`, ',', `k1`+0, ',\"', CAST(`k2` AS CHAR), '\"]') FROM "
    )
    assert end.startswith("`k0`, `k1`, `k2` FROM `d`.`t` WHERE `k0` >= %s AND ")
    assert end.endswith(" ORDER BY `k0`, `k1`, `k2` LIMIT 5) AS page")
    assert parameters == (1, 1, 2, 2, "2026-01-01")


def test_a_percent_sign_of_a_name_is_no_parameter() -> None:
    table = replace(
        key_table(INT),
        columns=(Column(name="100%", type=INT, nullable=False),),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="100%"),)),
    )
    for after in (None, (7,)):
        sql, parameters = build_chunk_query(table, after, 5, packed=pack_rows(table))
        text = sql % parameters if parameters else sql
        assert text.startswith("SELECT COUNT(*), GROUP_CONCAT('[', `100%`, ']') FROM (SELECT `100%` FROM ")
