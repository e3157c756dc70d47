"""A problem keeps its remedy whole on its way to status, REST and check."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.attempt.readers.debezium import decode_debezium_record
from consumer.errors import CopyNeededError, MissingGrantError, UnitStoppedError
from producer.binlog_format import types as type_codes
from producer.binlog_format.errors import DecodeError, IncompleteRowImage, UndecodableRow
from producer.binlog_format.row_events import ColumnMap
from producer.decoders.columns import build_column_format
from producer.stops import build_decoding_stop
from schemas.errors import EnvelopeError
from schemas.findings import format_copy_remedy
from schemas.problems import Problem, ProblemError, decode_problem, encode_problem
from schemas.table.model import ColumnType, Kind
from schemas.wire.debezium import DebeziumChange
from tools.docs.problems import list_problems, render

_PROBLEMS = [
    Problem("topic t, column c: format plain cannot carry bytes", "take `format: rowlock`, or: leave it out"),
    Problem("the target has no topic t", "create it, or set create_tables: true"),
    Problem("topic t has 5 partitions", "write partitions: 3, or another topic"),
    Problem("bank.`a: b` was emptied", format_copy_remedy("bank", "a: b")),
    Problem("error near 'x`y: z'", "grant SELECT"),
    Problem("nothing helps: not even this"),
    Problem(""),
]


_LINES = st.text(st.one_of(st.sampled_from(":; `r"), st.characters(exclude_characters="\n")), max_size=30)
_SOME = _LINES.filter(bool)
_WITH_REMEDY = st.one_of(st.builds(Problem, _LINES, _SOME), st.builds(Problem, _LINES, statement=_SOME))
_WITHOUT_REMEDY = st.builds(Problem, _LINES)


@pytest.mark.parametrize("problem", _PROBLEMS)
def test_a_remedy_is_whole_after_it_was_stored(problem: Problem) -> None:
    assert decode_problem(encode_problem(problem)) == problem


@given(st.one_of(_WITH_REMEDY, _WITHOUT_REMEDY))
def test_a_stored_problem_is_read_as_it_was(problem: Problem) -> None:
    assert decode_problem(encode_problem(problem)) == problem


@given(_WITH_REMEDY, st.integers(40, 70))
def test_a_shortened_problem_keeps_its_remedy(problem: Problem, limit: int) -> None:
    text = encode_problem(problem, limit)
    assert len(text) <= limit
    assert decode_problem(text).action == problem.action
    assert encode_problem(decode_problem(text), limit) == text, "shortening it again changes nothing"


@given(st.builds(Problem, st.text(st.sampled_from(":  `r"), max_size=30)), st.integers(8, 40))
def test_a_shortened_problem_without_a_remedy_gets_none(problem: Problem, limit: int) -> None:
    text = encode_problem(problem, limit)
    assert len(text) <= limit
    assert decode_problem(text).action == ""


def test_a_problem_without_a_remedy_has_a_separator_only_if_it_would_be_split() -> None:
    assert encode_problem(Problem("Kafka: no broker answers")) == "Kafka: no broker answers\n"
    for whole in ("it is paused", "complete, as `snapshot: only` asked for"):
        assert encode_problem(Problem(whole)) == whole


def test_a_statement_is_the_remedy_of_a_stored_problem() -> None:
    error = MissingGrantError("MySQL at db:3306: command denied (1142)", "GRANT SELECT ON bank.* TO 'r'@'%';")
    assert str(error) == "MySQL at db:3306: command denied (1142); run: GRANT SELECT ON bank.* TO 'r'@'%';"
    stored = decode_problem(encode_problem(error.problem))
    assert str(stored) == str(error)


def test_an_earlier_text_with_a_server_s_line_breaks_is_shown_whole() -> None:
    text = "ERROR: syntax error\nLINE 1: SELEC\n        ^: correct it"
    assert str(decode_problem(text)).split() == text.replace("error\n", "error: ").split()


def test_a_server_s_line_break_separates_nothing() -> None:
    stored = decode_problem(encode_problem(Problem("the server refuses:\nline 2", "ask\nagain")))
    assert stored == Problem("the server refuses: line 2", "ask again")


def test_a_long_problem_keeps_its_remedy_within_the_limit() -> None:
    problem = Problem("x" * 2000, "grant SELECT on the table")
    text = encode_problem(problem, 100)
    assert len(text) == 100
    assert decode_problem(text).remedy == problem.remedy
    assert len(encode_problem(Problem("x", "y" * 2000), 100)) == 100
    assert encode_problem(Problem("short", "do it"), 100) == "short\ndo it"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("the topic lost its tail: start over", Problem("the topic lost its tail", "start over")),
        (
            "column a is in an index: set `schema_changes: evolve`, or change its type by hand",
            Problem("column a is in an index", "set `schema_changes: evolve`, or change its type by hand"),
        ),
        (
            "the table was dropped; run: CREATE TABLE t (a INT)",
            Problem("the table was dropped", statement="CREATE TABLE t (a INT)"),
        ),
        ("error in 'x`y': grant SELECT", Problem("error in 'x`y'", "grant SELECT")),
        ("it is paused", Problem("it is paused")),
        ("", Problem("")),
    ],
)
def test_a_text_that_an_earlier_version_stored_is_split_at_its_last_colon(
    text: str, problem: Problem
) -> None:
    assert decode_problem(text) == problem


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (UndecodableRow("cut"), "rowlock copy bank.acct"),
        (IncompleteRowImage("not full", "SET …, reconnect"), "SET …, reconnect, and rowlock copy bank.acct"),
    ],
)
def test_a_stop_for_rows_that_cannot_be_read_has_their_remedy_before_the_copy(
    error: DecodeError, remedy: str
) -> None:
    stop = build_decoding_stop(("bank", "acct"), error)
    assert (stop.reason, stop.remedy) == (error.problem.what, remedy)


def test_a_column_without_a_decoder_has_a_remedy() -> None:
    column = ColumnType(kind=Kind.TEXT, charset="klingon")
    with pytest.raises(UndecodableRow) as refused:
        build_column_format(0, ColumnMap(type=type_codes.BLOB, metadata=2, nullable=True), column)
    assert refused.value.problem.remedy == "convert the column to utf8mb4 (or exclude the table)"


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        (Kind.TIME, type_codes.TIME),
        (Kind.DATETIME, type_codes.DATETIME),
        (Kind.TIMESTAMP, type_codes.TIMESTAMP),
    ],
)
def test_fraction_in_the_old_form_of_mariadb_has_a_remedy(kind: Kind, type_: int) -> None:
    logged = ColumnMap(type=type_, metadata=0, nullable=True)
    with pytest.raises(
        UndecodableRow, match=r"\(3\) is logged in the form of before MariaDB 10\.1"
    ) as refused:
        build_column_format(0, logged, ColumnType(kind=kind, fsp=3))
    assert refused.value.problem.remedy.startswith("set mysql56_temporal_format = ON and ALTER TABLE")
    assert build_column_format(0, logged, ColumnType(kind=kind)) is not None


def test_an_event_that_can_mean_two_things_has_a_remedy_before_the_copy() -> None:
    remedy = "turn schemas on"

    def decode(_raw: bytes) -> DebeziumChange:
        raise EnvelopeError("it could be base64 or hexadecimal", remedy)

    active: Any = SimpleNamespace(decode_row=decode)
    with pytest.raises(CopyNeededError) as stopped:
        decode_debezium_record("t", active, 7, b"")
    assert stopped.value.problem == Problem(
        "t offset 7: it could be base64 or hexadecimal", "turn schemas on, then rowlock copy"
    )


def test_an_error_that_wraps_another_keeps_its_remedy() -> None:
    inner = UnitStoppedError("no such column: c", "add it, or set create_tables: true")
    outer = UnitStoppedError.wrap_error("target t", inner)
    assert outer.problem == Problem("target t: no such column: c", "add it, or set create_tables: true")
    assert str(outer) == "target t: no such column: c: add it, or set create_tables: true"


def test_a_needed_copy_is_a_remedy_after_what_a_person_must_do_first() -> None:
    error: ProblemError = CopyNeededError(
        "a gap", cause="gap", table=("bank", "a: b"), first="make the source answer"
    )
    assert error.problem == Problem(
        "a gap", f"make the source answer, then {format_copy_remedy('bank', 'a: b')}"
    )


def test_each_remedy_of_the_page_is_one_that_the_product_prints() -> None:
    page = Path(__file__).parents[2] / "docs/reference/problems.md"
    assert page.read_text() == render(), "run: python -m tools.docs.problems > docs/reference/problems.md"


def test_problems_page_is_the_same_on_each_python(monkeypatch: pytest.MonkeyPatch) -> None:
    page = render()
    monkeypatch.setattr("rowlock.commands.spark.OWN_PYTHON", "python3.99")
    assert render() == page


def test_a_remedy_is_no_end_of_a_sentence_that_was_cut_at_a_colon() -> None:
    cut = [
        (path, problem.remedy)
        for path, problem in list_problems()
        if problem.remedy.count("`") % 2 or problem.what.count("`") % 2
    ]
    assert cut == []
