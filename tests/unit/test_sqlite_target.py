"""SQLite, a target that rowlock does not know, passes the tests of the real ones: the same functions, without
a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import (
    targets_alter,
    targets_apply,
    targets_attempts,
    targets_history,
    targets_session,
    targets_zombie,
)
from tests.conformance.suite import suite
from tests.kits.attempts import reals
from tests.kits.targets import Target, targets
from tests.stands import sqlite_target

target = targets("sqlite")
real = reals("sqlite")

#: Without targets_catalog, whose cases are tables in the servers' own SQL.
MODULES = (
    targets_session, targets_apply, targets_history, targets_zombie, targets_attempts,
)  # fmt: skip
#: Tests that say nothing of SQLite, and why.
EXCLUDED = {
    "test_pages_of_keys_are_the_keys_of_the_rows": "it packs no keys, and has no least integer",
    "test_a_commit_of_unknown_outcome_says_so": "there is no network that could lose an answer",
    "test_a_lost_connection_is_transient_and_the_session_recovers": "there is no server that could stop",
    "test_a_wrong_password_and_a_closed_port_are_told_apart": "there is neither",
    "test_a_commit_that_readers_see_survives_a_crash": "about settings of the tests' servers",
    "test_a_stopped_worker_never_writes_after_the_take_over": "it has one writer, whose transaction nobody else can end",  # noqa: E501
    "test_postgres_finds_the_rows_of_a_gather_by_their_key": "about a planner",
    "test_rows_under_a_unique_prefix_are_found": "it has no prefix indexes",
    "test_a_row_larger_than_the_target_takes_is_refused": "it has no such limit",
    "test_refused_key_moves_free_their_values_and_come_with_their_next_rows": "it refuses by a trigger, which keeps a retry away",  # noqa: E501
    "test_keys_that_the_target_alone_holds_equal_go_to_one_lane": "about collations of PostgreSQL",
}


#: Changes to types that it does not know, or whose values it holds as they were given.
UNKNOWN_TYPES = {
    "add text not null",
    "add a date with default",
    "add binary with a fill",
    "add several",
    "lossy to another kind",
    "lossy to json",
    "integer to decimal",
}


@pytest.mark.parametrize("name", sorted(targets_alter.CASES.keys() - UNKNOWN_TYPES))
def test_a_changed_table_is_one_that_it_would_make(target: Target, name: str) -> None:
    targets_alter.test_a_changed_table_is_one_that_rowlock_would_make(target, name)


ALL = suite(*MODULES)
globals().update({name: each for name, each in ALL.items() if name not in EXCLUDED})


def test_what_is_left_out_is_there_elsewhere() -> None:
    assert EXCLUDED.keys() <= ALL.keys()
    assert len(ALL) - len(EXCLUDED) >= 38


def test_it_is_small() -> None:
    """What a dialect must bring is little."""
    assert len(Path(sqlite_target.__file__).read_text().splitlines()) < 410
