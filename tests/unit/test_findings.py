"""Findings as one message, and the message taken apart again."""

from __future__ import annotations

import shlex

import pytest

from schemas.findings import (
    Finding,
    build_no_table_finding,
    format_copy_remedy,
    merge_findings,
)
from schemas.problems import Problem
from schemas.table.patterns import check_pattern, is_pattern_match

OFF = Finding(
    "error",
    "source b1",
    "log_bin is OFF: there is no binary log to capture",
    "start the server with --log-bin",
)
IMAGE = Finding("error", "source b1", "binlog_row_image is MINIMAL", "SET GLOBAL binlog_row_image = FULL")


@pytest.mark.parametrize(
    ("findings", "seen", "remedy"),
    [
        (
            [OFF],
            "source b1: log_bin is OFF: there is no binary log to capture",
            "start the server with --log-bin",
        ),
        (
            [OFF, IMAGE],
            "source b1: log_bin is OFF: there is no binary log to capture; binlog_row_image is MINIMAL",
            "start the server with --log-bin; and SET GLOBAL binlog_row_image = FULL",
        ),
    ],
)
def test_findings_of_one_place_are_one_problem(findings: list[Finding], seen: str, remedy: str) -> None:
    assert merge_findings(findings) == Problem(seen, remedy)


def test_patterns_that_take_no_table_yet_are_a_warning_that_names_both_reasons() -> None:
    found = build_no_table_finding("source b1", ["bank.*", "!bank.tmp"])
    assert (found.level, found.message) == ("warning", "no table matches bank.*, !bank.tmp yet")
    assert "GRANT" in found.remedy.upper()


@pytest.mark.parametrize(
    ("db", "table", "command"),
    [
        ("bank", "acct", "rowlock copy bank.acct"),
        ("bank", "a.b", "rowlock copy 'bank.`a.b`'"),
        ("bank", "it`s *", "rowlock copy 'bank.`it``s *`'"),
        ("bank", "a$b", "rowlock copy 'bank.a$b'"),
        ("bank", "o'hare", "rowlock copy 'bank.`o'\"'\"'hare`'"),
    ],
)
def test_the_command_that_copies_a_table_again_can_be_pasted_into_a_shell(
    db: str, table: str, command: str
) -> None:
    assert format_copy_remedy(db, table) == command
    pattern = shlex.split(command)[-1]
    check_pattern(pattern)
    assert is_pattern_match(pattern, db, table)
    assert not is_pattern_match(pattern, db, f"{table}x")
