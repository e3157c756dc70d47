"""Oracle's catalog as capture reads it: which tables can be captured and as what, what has happened to
them, how values are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from producer.sources.oracle import sql
from producer.sources.oracle.table_checks import (
    Constraint,
    LoggedTable,
    MlogOptions,
    is_followable,
    judge_oracle_table,
)
from producer.sources.oracle.types import _FORMS, OracleColumn, _build_number_form, build_column_form
from schemas.errors import UnsupportedTypeError
from schemas.table.oracle_ddl import render_oracle_type
from schemas.table.typemap import render_mysql_type, render_postgres_type

NAME, LOG = ("BANK", "ACCT"), ("BANK", "MLOG$_ACCT")
GOLDEN = Path(__file__).parents[1] / "golden" / "oracle_types.jsonl"


def column(
    name: str, declared: str = "NUMBER", size: int = 10, scale: int | None = 0, **more: Any
) -> OracleColumn:
    text = declared in ("CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "RAW")
    found = OracleColumn(
        name,
        declared,
        size,
        size if text else 0,
        None if text else size,
        None if text else scale,
        True,
        False,
        False,
    )
    return found._replace(**more)


KEY, NAMED = column("ID"), column("NAME", "VARCHAR2", 20)
OWN = [column(name) for name in ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$")]
GOOD = MlogOptions(NAME, LOG[1], True, True, True, False, False)
PRIMARY = Constraint("ACCT_PK", "P", ("ID",))


def judged(
    *columns: OracleColumn, log: MlogOptions | None = GOOD, logged: Any = None, **more: Any
) -> tuple[str, LoggedTable | None]:
    constraints = more.pop("constraints", [PRIMARY])
    of_log = [*(columns if logged is None else logged), *more.pop("own", OWN)]
    survey, found = judge_oracle_table(NAME, {NAME: columns, LOG: of_log}, constraints, log, **more)
    return str(survey.problem or ""), found


def test_a_table_with_a_whole_log_is_captured() -> None:
    unique = [
        Constraint("ACCT_U", "U", ("NAME",)),
        Constraint("ACCT_PK", "U", ("ID",)),
        Constraint("F", "U", ("SYS_NC00003$",)),
    ]
    reason, found = judged(KEY, NAMED, constraints=[PRIMARY, *unique])
    assert reason == ""
    assert found is not None
    assert found.table.key.columns == ("ID",)
    assert [each.columns for each in found.table.unique] == [("NAME",)]
    assert (found.log, found.extra) == (LOG, frozenset({"XID$$"}))


@pytest.mark.parametrize(("lacks", "output"), [
    ({"log": None}, "no materialized view log"),
    ({"log": GOOD._replace(staging=True)}, "staging log"),
    ({"log": GOOD._replace(primary_key=False)}, "lacks PRIMARY KEY:"),
    ({"log": GOOD._replace(sequence=False)}, "lacks SEQUENCE:"),
    ({"log": GOOD._replace(new_values=False)}, "lacks INCLUDING NEW VALUES:"),
    ({"logged": [NAMED]}, "lacks column ID:"),
    ({"more": [column("X")], "logged": [KEY, NAMED]}, "lacks column X:"),
    ({"logged": [KEY], "constraints": [PRIMARY, Constraint("U", "U", ("NAME",))]}, ("has keys only, "
    "without the values of its unique index U")),
    ({"own": OWN[1:]}, "lacks SEQUENCE:"),
    ({"log": GOOD._replace(commit_scn=True), "own": OWN[:3]}, "WITH COMMIT SCN and has no XID"),
    ({"views": ["MV"]}, "other materialized views use its log too (MV)"),
    ({"several": True}, "(RAC)"),
    ({"constraints": [Constraint("U", "U", ("NAME",))]}, "no primary key"),
])  # fmt: skip
def test_what_a_log_lacks_is_said(lacks: dict[str, Any], output: str) -> None:
    reason, found = judged(KEY, NAMED, *lacks.pop("more", ()), **lacks)
    assert found is None
    assert output in reason
    assert "BANK.ACCT" in reason


def test_the_log_that_is_wanted_is_a_statement_and_the_remedy() -> None:
    reason, _ = judged(KEY, NAMED, log=None)
    assert reason.endswith(
        ': CREATE MATERIALIZED VIEW LOG ON "BANK"."ACCT" WITH PRIMARY KEY, SEQUENCE '
        '("NAME") INCLUDING NEW VALUES'
    )
    reason, _ = judged(KEY, NAMED, several=True)
    assert 'SEQUENCE, COMMIT SCN ("NAME")' in reason


def test_several_instances_are_put_in_order_by_commit_scns() -> None:
    _, found = judged(KEY, NAMED, several=True, log=GOOD._replace(commit_scn=True))
    assert found is not None
    assert found.extra == {"XID$$", "COMMIT_SCN"}


@pytest.mark.parametrize("declared", ["LONG", "JSON", "XMLTYPE", "SDO_GEOMETRY", "BFILE", "VECTOR"])
def test_a_type_that_is_not_read_is_refused_by_name(declared: str) -> None:
    reason, found = judged(KEY, column("X", declared))
    assert found is None
    assert f"column X has type {declared}" in reason


LOB = column("X", "CLOB")


def test_a_log_with_keys_only_is_read_from_the_rows_themselves() -> None:
    for new_values in (True, False):
        reason, found = judged(KEY, NAMED, LOB, logged=[KEY], log=GOOD._replace(new_values=new_values))
        assert reason == ""
        assert found is not None
        assert (found.keys_only, found.unlogged) == (True, {"NAME", "X"})
        assert found.remark is not None
        assert 'SEQUENCE ("NAME") INCLUDING' in found.remark[1]


def test_lobs_are_read_from_the_rows_themselves() -> None:
    reason, found = judged(KEY, NAMED, LOB, logged=[KEY, NAMED])
    assert reason == ""
    assert found is not None
    assert (found.keys_only, found.unlogged) == (False, {"X"})
    assert found.remark is not None
    assert found.remark[0].startswith("materialized view logs do not contain X,")
    assert "locator (DBMS_LOB.WRITE)" in found.remark[0]
    only, _ = judged(KEY, LOB, logged=[KEY])
    assert only == ""
    _, whole = judged(KEY, NAMED)
    assert whole is not None
    assert whole.remark is None


def test_a_key_that_is_a_lob_is_refused() -> None:
    reason, found = judged(LOB, constraints=[Constraint("P", "P", ("X",))], logged=[])
    assert found is None
    assert "column X of its primary key" in reason


def test_a_log_that_gets_columns_ends_in_a_copy() -> None:
    _, keys = judged(KEY, NAMED, logged=[KEY])
    _, whole = judged(KEY, NAMED)
    assert keys is not None
    assert whole is not None
    assert not is_followable(keys, whole)
    assert not is_followable(whole, keys)
    assert not is_followable(whole._replace(unlogged=frozenset(["NAME"])), whole)


@pytest.mark.parametrize("declared", ["BINARY_DOUBLE", "ROWID"])
def test_a_key_that_cannot_be_bound_is_refused(declared: str) -> None:
    reason, found = judged(column("ID", declared), NAMED)
    assert found is None
    assert "cannot be read in chunks" in reason


def test_virtual_columns_are_left_out() -> None:
    _, found = judged(KEY, column("V", virtual=True), logged=[KEY])
    assert found is not None
    assert found.table.column_names == ("ID",)


# --- what is the same

WIDE = column("NAME", "VARCHAR2", 30)
MORE = column("NOTE", "VARCHAR2", 5)


@pytest.mark.parametrize(("now", "expected"), [
    ([KEY, NAMED], True),
    ([KEY, NAMED._replace(nullable=False)], True),
    ([KEY, NAMED._replace(has_default=True)], True),
    ([KEY, NAMED, MORE], False),  # the log lacks its values of before
    ([KEY, MORE, NAMED], False),
    ([KEY], False),  # another one may have its name now
    ([KEY, MORE], False),  # dropped and added, or renamed
    ([NAMED, KEY], False),
    ([KEY, WIDE], False),  # or dropped, and added longer
    ([KEY, column("NAME", "VARCHAR2", 10)], False),
    ([KEY, column("NAME", "RAW", 20)], False),
    ([column("ID", size=12), NAMED], False),
    ([column("ID", scale=2), NAMED], False),
])  # fmt: skip
def test_only_definitions_under_which_rows_mean_the_same_are_followed(
    now: list[OracleColumn], expected: bool
) -> None:
    _, before = judged(KEY, NAMED)
    _, after = judged(*now)
    assert before is not None
    assert after is not None
    assert is_followable(before, after) is expected


def test_another_unique_index_is_followed() -> None:
    _, before = judged(KEY, NAMED)
    _, after = judged(KEY, NAMED, constraints=[PRIMARY, Constraint("U", "U", ("NAME",))])
    assert before is not None
    assert after is not None
    assert is_followable(before, after)


def test_another_primary_key_is_not_followed() -> None:
    _, before = judged(KEY, NAMED)
    _, after = judged(KEY, NAMED, constraints=[Constraint("K", "P", ("NAME",))])
    assert before is not None
    assert after is not None
    assert not is_followable(before, after)


# --- values


def golden() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


_GIVEN: dict[str, Any] = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@pytest.mark.parametrize("case", golden(), ids=lambda case: f"{case['type']} {case['given']}")
def test_extremes_of_every_type(case: dict[str, Any]) -> None:
    """`given`: what the driver gives for `select` (hex: RAW), by Oracle's reference; `wire`: the value in an
    event; `targets`: the column that a target gets."""
    name, precision, scale = case["type"], case.get("precision"), case.get("scale")
    form = build_column_form(
        OracleColumn(
            "C", name, case.get("size", 0), case.get("size", 0), precision, scale, True, False, False
        )
    )
    given = case["given"]
    if name in ("RAW", "BLOB"):
        given = bytes.fromhex(given)
    elif name.startswith("BINARY"):
        given = _GIVEN.get(given, given)
    assert form.convert(given) == case["wire"]
    assert form.type.kind == case["kind"]
    rendered = {"postgres": render_postgres_type, "mysql": render_mysql_type, "oracle": render_oracle_type}
    assert {target: render(form.type) for target, render in rendered.items()} == case["targets"]
    assert form.select.format('l."C"') == case["select"]


def test_every_type_has_a_golden_line() -> None:
    assert {re.sub(r"\(\d+\)", "", case["type"]) for case in golden()} == set(_FORMS)


def test_a_type_nobody_knows_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="MY_OBJECT"):
        build_column_form(column("X", "MY_OBJECT"))


# --- texts


def test_the_rows_of_a_log_are_asked_for_in_the_order_of_commits_where_it_has_them() -> None:
    plain, _ = sql.select_log_rows(LOG, ['l."ID"'], (), 5)
    assert plain == (
        'SELECT ROWIDTOCHAR(l.ROWID), l."SEQUENCE$$", l."DMLTYPE$$", l."OLD_NEW$$", NULL, 0, l."ID" FROM '
        '"BANK"."MLOG$_ACCT" l ORDER BY l."SEQUENCE$$" FETCH FIRST 5 ROWS ONLY'
    )
    scn, _ = sql.select_log_rows(LOG, ['l."ID"'], ("XID$$", "COMMIT_SCN"), 5)
    assert scn == (
        'SELECT ROWIDTOCHAR(l.ROWID), l."SEQUENCE$$", l."DMLTYPE$$", l."OLD_NEW$$", TO_CHAR(l."XID$$"), s.COMMIT_SCN, l."ID" '  # noqa: E501
        'FROM "BANK"."MLOG$_ACCT" l LEFT JOIN ALL_SUMMAP s ON s.XID = l."XID$$" ORDER BY s.COMMIT_SCN NULLS FIRST, l."SEQUENCE$$" '  # noqa: E501
        "FETCH FIRST 5 ROWS ONLY"
    )


def test_a_row_of_a_log_is_deleted_by_rowid_and_number() -> None:
    assert sql.delete_places(LOG) == 'DELETE FROM "BANK"."MLOG$_ACCT" WHERE ROWID = :1 AND "SEQUENCE$$" = :2'


def test_chunks_behind_a_key_of_two_columns() -> None:
    found = sql.build_chunk_select(
        NAME, ['l."A"'], [("A", "{}"), ("B", "CAST({} AS CHAR(3 CHAR))")], 2, None, has_lower_bound=True
    )
    assert found == (
        'SELECT l."A" FROM "BANK"."ACCT" l WHERE ((l."A" > :1) OR (l."A" = :2 AND l."B" > CAST(:3 AS CHAR(3 '
        'CHAR)))) ORDER BY l."A", l."B" FETCH FIRST 2 ROWS ONLY'
    )
    assert sql.build_chunk_binds([1, "x"]) == [1, 1, "x"]


def test_rows_by_their_keys() -> None:
    found = sql.select_rows_by_keys(NAME, ['l."A"'], [("A", "{}"), ("B", "TO_DATE({}, 'X')")], 2)
    assert found == (
        'SELECT l."A" FROM "BANK"."ACCT" l WHERE (l."A" = :1 AND l."B" = TO_DATE(:2, \'X\')) '
        'OR (l."A" = :3 AND l."B" = TO_DATE(:4, \'X\'))'
    )


def test_rows_of_a_log_by_their_keys_are_as_all_rows_of_it_are() -> None:
    found = sql.select_log_rows_by_keys(LOG, ['l."A"'], [("A", "{}")], 2)
    assert found == (
        'SELECT ROWIDTOCHAR(l.ROWID), l."SEQUENCE$$", l."DMLTYPE$$", l."OLD_NEW$$", NULL, 0, l."A" FROM '
        '"BANK"."MLOG$_ACCT" l WHERE (l."A" = :1) OR (l."A" = :2)'
    )


def test_names_are_quoted() -> None:
    assert sql.quote_names('A"B', "c") == '"A""B"."c"'


@pytest.mark.parametrize(("scale", "precision"), [(29, 38), (30, 38), (31, 0)])
def test_a_number_of_a_scale_that_others_have_keeps_it(scale: int, precision: int) -> None:
    form = _build_number_form(column("V", size=38, scale=scale))
    assert (form.type.precision, form.type.scale or 0) == (precision, scale if precision else 0)
