"""The target in memory passes the tests of the real ones; what it leaves out is listed with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from consumer.ordering.model import ApplyUnit
from schemas.table.model import Row, Table
from tests.conformance import targets_apply, targets_session
from tests.conformance.suite import suite
from tests.stands.fake_target import FakeSession, FakeTarget

ALL = suite(targets_session, targets_apply)
#: Tests that do not show it, with the reason.
EXCLUDED = {
    "test_pages_of_keys_are_the_keys_of_the_rows": "it packs no keys",
    "test_keys_with_an_added_column_are_read_alike_packed_and_by_rows": "it packs no keys",
    "test_keys_of_other_types_than_the_sources_are_not_packed": "it packs no keys",
    "test_a_restored_row_never_gives_an_epoch_again": "its clock stands at 0",
    "test_unit_state_and_stop": "it does not know since when a unit is stopped",
    "test_quarantine_entries_come_back_in_order": "it has one unit",
    "test_expired_entries_of_the_history_are_deleted": "it has one unit",
    "test_kept_rows_are_listed_by_unit_and_end_with_a_write_of_their_key": "it has one unit",
    "test_units_do_not_touch_each_other": "it has one unit",
    "test_a_commit_of_unknown_outcome_says_so": "there is no network: a test orders such a commit",
    "test_a_lost_connection_is_transient_and_the_session_recovers": "there is no server",
    "test_a_wrong_password_and_a_closed_port_are_told_apart": "there is neither",
    "test_a_commit_that_readers_see_survives_a_crash": "about settings of the tests' servers",
    "test_postgres_finds_the_rows_of_a_gather_by_their_key": "about a planner",
    "test_every_displaced_row_counts_once": "it counts no displaced rows: a test looks at them",
    "test_displaced_rows_are_written_whole_with_columns_rowlock_does_not_know": "it has no SQL",
    "test_rows_of_a_snapshot_change_what_is_there_in_place": "it has no SQL",
    "test_a_key_that_changes_its_case_only": "about collations, and it compares exactly",
    "test_a_snapshot_gives_a_key_the_form_that_was_read": "about collations, and it compares exactly",
    "test_rows_under_a_unique_prefix_are_found": "it has no prefix indexes",
    "test_a_composite_key_with_an_added_column": "it compares the texts of decimals as texts",
    "test_a_value_that_does_not_fit_is_refused_and_nothing_stays": "its columns have no width: `refuse`",
    "test_a_row_larger_than_the_target_takes_is_refused": "it has no such limit",
    "test_a_lock_held_too_long_and_a_missing_table": "it has no locks",
    "test_deadlocks_are_transient_and_lanes_get_through": "it has no locks",
}


class MemoryTarget:
    """What tests.kits.targets.Target is for databases."""

    kind = "memory"
    schema = "public"

    def __init__(self) -> None:
        self._target = FakeTarget(topic="topic")

    def open(self) -> FakeSession:
        return self._target.session()

    def holds(self, _table: Table, rows: Sequence[Row]) -> list[Row]:
        return list(rows)

    def displaced(self) -> list[dict[str, Any]]:
        """The rows that had to make room, in their order."""
        state = self._target.state
        return [
            {"row": dict(zip(state.tables[table].column_names, row, strict=True)), "by": by, "table": table}
            for row, (table, by) in zip(state.displaced, state.displaced_by, strict=True)
        ]

    def put_back(self, _unit: ApplyUnit, epoch: int) -> None:
        lanes = self._target.state.lanes
        self._target.state.lanes = {lane: structs.replace(row, epoch=epoch) for lane, row in lanes.items()}

    def forget(self, _unit: ApplyUnit) -> None:
        self._target.state.lanes.clear()


@pytest.fixture
def target() -> MemoryTarget:
    return MemoryTarget()


globals().update({name: each for name, each in ALL.items() if name not in EXCLUDED})


def test_what_is_left_out_is_there_elsewhere() -> None:
    assert EXCLUDED.keys() <= ALL.keys()
    assert len(ALL) - len(EXCLUDED) >= 18
