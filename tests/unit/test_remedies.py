"""The remedy of a message is shown whole by status, REST and check, also if it names a setting or a table with a colon."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.findings import format_copy_remedy, split_remedy

ROOT = Path(__file__).parents[2]
PACKAGES = ("producer", "consumer", "coordinator", "rowlock", "schemas")


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "topic t, column c: format plain cannot carry bytes: leave the column out of the route (`columns`), or take `format: rowlock`",
            "leave the column out of the route (`columns`), or take `format: rowlock`",
        ),
        (
            "the target has no topic t: create it, or set `create_tables: true`",
            "create it, or set `create_tables: true`",
        ),
        (
            "t: the target has no such table: create it, or set `create_tables: true`; if it is there, grant SELECT",
            "create it, or set `create_tables: true`; if it is there, grant SELECT",
        ),
        (
            "column a is in an index: set `schema_changes: evolve`, or change its type by hand",
            "set `schema_changes: evolve`, or change its type by hand",
        ),
        (
            "topic t has 5 partitions: set `partitions: 3`, or another topic",
            "set `partitions: 3`, or another topic",
        ),
        (
            "its table does not hold every value (n), which `schema_changes: ignore` leaves as it is: alter n in the target",
            "alter n in the target",
        ),
        ("the table was dropped; run: CREATE TABLE t (a INT)", "CREATE TABLE t (a INT)"),
        ("nothing helps", ""),
        ("", ""),
    ],
)
def test_a_remedy_is_whole(message: str, remedy: str) -> None:
    seen, found = split_remedy(message)
    assert found == remedy
    assert message.startswith(seen)


def test_a_table_with_a_colon_in_its_name_is_in_the_remedy_whole() -> None:
    remedy = format_copy_remedy("bank", "a: b")
    assert split_remedy(f"bank.`a: b` was emptied: {remedy}") == ("bank.`a: b` was emptied", remedy)


def test_an_odd_backtick_of_a_server_s_text_hides_no_remedy() -> None:
    assert split_remedy("error in 'x`y': grant SELECT") == ("error in 'x`y'", "grant SELECT")
    assert split_remedy("cannot drop: drop the key `x first") == ("cannot drop", "drop the key `x first")


def _literals() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_no_text_of_the_product_is_cut_within_backticks() -> None:
    cut = [
        place
        for place, text in _literals()
        if "\n" not in text and text.count("`") % 2 == 0 and split_remedy(text)[1].count("`") % 2
    ]
    assert cut == []
