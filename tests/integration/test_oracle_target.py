"""Oracle's dialect passes the tests of the real targets, on H2 in Oracle mode: the same functions. What H2 cannot show is named, and is
shown by golden texts (tests/unit/test_oracle_texts.py)."""

from __future__ import annotations

import pytest

from consumer.errors import TargetConfigError
from consumer.targets.alterations import AlterTable
from tests.alter_kit import ROWS, Altered
from tests.integration import (
    test_apply_targets,
    test_targets_alter,
    test_targets_apply,
    test_targets_history,
    test_targets_session,
    test_targets_zombie,
)
from tests.integration.test_apply_targets import reals
from tests.targets_kit import Target, people, targets
from tests.unit.test_sqlite_target import suite

target = targets("oracle")
real = reals("oracle")

MODULES = (
    test_targets_session, test_targets_apply, test_targets_history, test_targets_zombie, test_apply_targets,
)  # fmt: skip
#: Tests that say nothing of Oracle's dialect on H2, and why.
EXCLUDED = {
    "test_a_commit_that_readers_see_survives_a_crash": "about settings of the tests' servers",
    "test_postgres_finds_the_rows_of_a_gather_by_their_key": "about a planner",
    "test_rows_under_a_unique_prefix_are_found": "it has no prefix indexes",
    "test_a_row_larger_than_the_target_takes_is_refused": "it has no such limit",
    "test_keys_that_the_target_alone_holds_equal_go_to_one_lane": "about collations of PostgreSQL",
    "test_a_key_that_changes_its_case_only": "about collations, and Oracle compares exactly",
}
ALL = suite(*MODULES)
globals().update({name: each for name, each in ALL.items() if name not in EXCLUDED})


def test_what_is_left_out_is_there_elsewhere() -> None:
    assert EXCLUDED.keys() <= ALL.keys()


#: Names that Oracle cannot have; and changes that are refused before anything is done, for one of their statements would have to be taken back where the next one fails.
NAMES = {"add a hostile name", "rename of the key and of a unique column"}
NOT_DONE = {
    "everything at once", "key", "names change places", "lossy and not null", "lossy to another kind", "lossy to json", "lossy without room",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(test_targets_alter.CASES.keys() - NOT_DONE - NAMES))
def test_a_changed_table_is_one_that_it_would_make(target: Target, name: str) -> None:
    test_targets_alter.test_a_changed_table_is_one_that_rowlock_would_make(target, name)


def test_changes_that_are_not_done_leave_the_table_as_it_was(target: Target) -> None:
    fixture = Altered.made(target)
    before = fixture.real
    for name in sorted(NOT_DONE):
        with pytest.raises(
            TargetConfigError, match=r"is not changed as the source's was.*: change the target table by hand"
        ):
            fixture.run(AlterTable(before, test_targets_alter.CASES[name].steps(before)))
        assert fixture.real == before
    for name in sorted(NAMES):
        with pytest.raises(TargetConfigError, match="no names with quotation marks"):
            fixture.run(AlterTable(before, test_targets_alter.CASES[name].steps(before)))
        assert fixture.real == before
    table = people(target.schema)
    assert fixture.rows(table) == target.holds(table, ROWS)
