"""The literals and types of `make test-oracle` are SQL: H2 in Oracle mode executes what it can of them, and
gives the value back that the event is to have. So a slip in a case for a server that is not available here is
found here."""

from __future__ import annotations

import contextlib

import oracledb
import pytest

from tests.kits.oracle_points import ENDS, End
from tests.kits.targets import OracleTarget, Target, targets

target = targets("oracle")
#: (part of a type or literal that H2 does not know, why).
NOT_ON_H2 = (
    ("UNISTR", "a function of Oracle's"), ("BINARY_DOUBLE_", "constants of Oracle's"),
    ("BINARY_FLOAT_", "the same"), ("TO_BINARY_DOUBLE", "a function of Oracle's"),
    ("E308D", "a suffix of Oracle's"), ("0.5F", "the same"), ("ROWID", "a type of Oracle's"),
    ("CHARTOROWID", "a function of Oracle's"), ("TO_NCLOB", "the same"), ("TO_CLOB", "the same"),
    ("NUMBER(5,-2)", "no negative scale"), ("INTEGER", "32 bits there"), ("FLOAT(126)", "another type there"),
)  # fmt: skip


def runs_on_h2(end: End) -> bool:
    return not any(part in f"{end.type} {end.literal}" for part, _ in NOT_ON_H2)


def executed(target: Target, end: End) -> bool:
    """Execute a table with a column of the type, and a row of the literal."""
    assert isinstance(target, OracleTarget)
    target.sql(f"CREATE TABLE ends (id NUMBER(10) PRIMARY KEY, note {end.type})")
    try:
        target.sql(f"INSERT INTO ends VALUES (1, {end.literal})")
    finally:
        target.sql("DROP TABLE ends")
    return True


def test_types_and_literals_are_executed_by_h2(target: Target) -> None:
    assert [end for end in ENDS if runs_on_h2(end) and not executed(target, end)] == []
    assert sum(map(runs_on_h2, ENDS)) > len(ENDS) / 2


@pytest.mark.parametrize("part", [part for part, _ in NOT_ON_H2])
def test_what_h2_does_not_know_is_not_known_to_it(target: Target, part: str) -> None:
    """Else it would be left out for nothing."""
    alone = [end for end in ENDS if part in f"{end.type} {end.literal}"]
    assert alone, f"{part} stands in no case"
    for end in alone:
        with contextlib.suppress(oracledb.DatabaseError, AssertionError):
            executed(target, end)
            raise RuntimeError(f"H2 executes {end}")
