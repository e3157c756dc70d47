"""Which tests of the database targets run over Kafka, and why each other one does not apply to a topic. Data;
tests/unit/test_kafka_shared.py checks that it is complete."""

from __future__ import annotations

_UNIQUE = "only a topic's keys are unique: nothing there has to make room for a row"
_SQL = "about statements in the tables of a database"
_LANES = "a target of whole batches has one lane"
_DEFINITION = "a topic has no definition that could be altered: it is told (test_kafka_attempts.py)"

#: Modules of tests/integration of which the tests that are not in LEFT_OUT run over Kafka
#: (tests/integration/test_kafka_shared.py).
SHARED = ("test_targets_attempts", "test_targets_session", "test_targets_apply", "test_targets_zombie")

#: Test of those → why it does not run over Kafka.
LEFT_OUT = {
    "test_a_stretch_read_again_after_the_lanes_came_apart": _LANES,
    "test_drift_is_displaced_whole": _UNIQUE,
    "test_a_copy_marks_the_rows_that_had_made_room_before_it_began": _UNIQUE,
    "test_status_counts_the_displaced_rows_that_are_there": _UNIQUE,
    "test_rows_of_one_snapshot_that_collide_at_the_target_are_all_kept_somewhere": _UNIQUE,
    "test_the_table_in_the_target_keeps_its_own_unique_index": _UNIQUE,
    "test_keys_that_the_target_alone_holds_equal_go_to_one_lane": "about collations of PostgreSQL",
    "test_a_row_is_never_written_for_another_attempt": "a commit replaces the progress of all "
    "lanes by what its guards allow",
    "test_an_error_inside_rolls_everything_back": "nothing is sent before the commit; what a commit leaves "
    "that is broken off: test_kafka_target.py",
    "test_a_commit_of_unknown_outcome_says_so": "test_kafka_lost_answers.py, of each commit of a unit's life",
    "test_a_wrong_password_and_a_closed_port_are_told_apart": "test_kafka_security.py: users "
    "of Kafka are of a listener",
    "test_a_commit_that_readers_see_survives_a_crash": "about settings of the tests' databases",
    "test_postgres_finds_the_rows_of_a_gather_by_their_key": "about a planner",
    "test_pages_of_keys_are_the_keys_of_the_rows": "a topic is not read by a range of keys",
    "test_keys_of_other_types_than_the_sources_are_not_packed": "a topic is not read by a range of keys",
    "test_keys_with_an_added_column_are_read_alike_packed_and_by_rows": "a topic is not read by ranges",
    "test_the_entry_of_a_removed_key_touches_no_row_of_an_equal_key": "a topic stops where rows were removed",
    "test_a_row_that_waits_for_a_unique_value_is_applied_once_it_is_given_up": _UNIQUE,
    "test_expired_entries_of_the_history_are_deleted": "a topic's own retention deletes them",
    "test_kept_rows_are_listed_by_unit_and_end_with_a_write_of_their_key": "a topic keeps no removed rows",
    "test_quarantine_entries_come_back_in_order": "what has left the quarantine is in a topic of its own",
    "test_refused_key_moves_free_their_values_and_come_with_their_next_rows": "a key waits for a retry",
    "test_a_value_the_target_cannot_hold_is_held_until_the_key_has_one_that_fits": "a key waits for a retry",
    "test_old_key_goes_when_the_target_refuses_the_new_row": "a delete of a held key queues: "
    "test_of_a_refused_key_move_the_delete_is_a_record_and_a_held_key_waits of test_kafka_attempts.py",
    "test_unique_values_go_round_in_one_net_change": _UNIQUE,
    "test_a_row_of_another_key_is_never_changed_silently": _UNIQUE,
    "test_every_displaced_row_counts_once": _UNIQUE,
    "test_displaced_rows_are_written_whole_with_columns_rowlock_does_not_know": _UNIQUE,
    "test_rows_of_a_snapshot_change_what_is_there_in_place": "a record has all columns of "
    "its row, and nobody else's",
    "test_rows_of_a_snapshot_that_pass_a_value_on_are_refused_in_place_and_taken_anew": _UNIQUE,
    "test_a_key_that_changes_its_case_only": "about collations: keys of Kafka are compared by their bytes",
    "test_a_snapshot_gives_a_key_the_form_that_was_read": "about collations: keys of Kafka "
    "are compared by their bytes",
    "test_rows_under_a_unique_prefix_are_found": _UNIQUE,
    "test_rows_are_read_between_two_keys": "a topic is read whole: test_kafka_copies.py",
    "test_a_composite_key_with_an_added_column": "a topic's TRUNCATE is of one source: "
    "test_two_sources_in_one_table_do_not_touch_each_other",
    "test_a_value_that_does_not_fit_is_refused_and_nothing_stays": "a column of a topic has no width: "
    "test_a_value_the_target_cannot_hold_is_held_until_the_key_has_one_that_fits",
    "test_a_row_larger_than_the_target_takes_is_refused": "it stops its table: "
    "test_a_record_above_the_limit_stops_its_table of test_kafka_attempts.py",
    "test_a_lock_held_too_long_and_a_missing_table": "a topic has no locks; a missing "
    "one: test_kafka_target.py",
    "test_deadlocks_are_transient_and_lanes_get_through": _LANES,
    "test_a_worker_that_ends_in_time_is_not_ended": "a take-over waits for nobody: Kafka ends what is open",
}

#: Module of tests/integration over the targets' kinds → why none of its tests run over Kafka.
ELSEWHERE = {
    "test_shared_values": "about collations of columns: keys of Kafka are compared by their bytes",
    "test_targets_history": _LANES + "; random histories: test_histories_and_replays_end_as_the_source",
    "test_targets_alter": _DEFINITION,
    "test_targets_limits": "about what a table of a server may be",
    "test_targets_alter_trouble": _DEFINITION,
    "test_targets_catalog": "about what a catalog says of tables; of topics: test_kafka_target.py, "
    "tests/unit/test_cli_check.py",
    "test_targets_rights": "about GRANT; rights of Kafka: test_kafka_security.py",
    "test_target_guards": "a topic has no triggers and no foreign keys",
    "test_target_trouble": "about changes that are made to tables; to topics: test_kafka_attempts.py",
    "test_shared_tables": _DEFINITION + ", and of each of its sources by itself",
    "test_killed_changes": _DEFINITION,
    "test_killed_copies": "its moments are statements of SQL; those of commits into "
    "a topic: test_kafka_kills.py",
    "test_copied_keys": "about the order of a table's keys: what a copy shows to be gone is found in a topic "
    "by reading it whole: test_kafka_copies.py",
    "test_row_locks": _SQL + ", and a topic has no locks",
    "test_schema_changes": _DEFINITION,
    "test_unfit_types": _DEFINITION,
    "test_label_numbers": "about columns of tables; the forms of numbers in topics: "
    "tests/unit/test_kafka_key_forms.py, tests/unit/test_kafka_value_forms.py",
    "test_oracle_target": "another target that runs these tests",
    "test_first_commands": "it runs over Kafka by itself",
    "test_cutover": "a topic numbers no rows",
}
