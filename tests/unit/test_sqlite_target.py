"""SQLite, a target that rowlock does not know, passes the tests of the real ones: the same functions, without a service."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integration import (
    test_apply_targets,
    test_targets_alter,
    test_targets_apply,
    test_targets_history,
    test_targets_session,
    test_targets_zombie,
)
from tests.integration.test_apply_targets import reals
from tests.kits.targets import Target, targets
from tests.stands import sqlite_target

target = targets("sqlite")
real = reals("sqlite")

MODULES = (
    test_targets_session, test_targets_apply, test_targets_history, test_targets_zombie, test_apply_targets,
)  # fmt: skip
#: Tests that say nothing of SQLite, and why.
EXCLUDED = {
    "test_a_commit_of_unknown_outcome_says_so": "there is no network that could lose an answer",
    "test_a_lost_connection_is_transient_and_the_session_recovers": "there is no server that could stop",
    "test_a_wrong_password_and_a_closed_port_are_told_apart": "there is neither",
    "test_a_commit_that_readers_see_survives_a_crash": "about settings of the tests' servers",
    "test_a_stopped_worker_never_writes_after_the_take_over": "it has one writer, whose transaction nobody else can end",
    "test_postgres_finds_the_rows_of_a_gather_by_their_key": "about a planner",
    "test_rows_under_a_unique_prefix_are_found": "it has no prefix indexes",
    "test_a_row_larger_than_the_target_takes_is_refused": "it has no such limit",
    "test_refused_key_moves_free_their_values_and_come_with_a_retry": "it refuses by a trigger, which keeps a retry away",
    "test_keys_that_the_target_alone_holds_equal_go_to_one_lane": "about collations of PostgreSQL",
}


def suite(*modules: ModuleType) -> dict[str, Any]:
    """Return the tests of `modules` by name; no two may have one name, for one of them would not run."""
    found: dict[str, Any] = {}
    for module in modules:
        mine = {name: each for name, each in vars(module).items() if name.startswith("test_")}
        assert not found.keys() & mine.keys()
        found |= mine
    return found


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


@pytest.mark.parametrize("name", sorted(test_targets_alter.CASES.keys() - UNKNOWN_TYPES))
def test_a_changed_table_is_one_that_it_would_make(target: Target, name: str) -> None:
    test_targets_alter.test_a_changed_table_is_one_that_rowlock_would_make(target, name)


ALL = suite(*MODULES)
globals().update({name: each for name, each in ALL.items() if name not in EXCLUDED})


def test_what_is_left_out_is_there_elsewhere() -> None:
    assert EXCLUDED.keys() <= ALL.keys()
    assert len(ALL) - len(EXCLUDED) >= 38


def test_it_is_small() -> None:
    """What a dialect must bring is little."""
    assert len(Path(sqlite_target.__file__).read_text().splitlines()) < 400
