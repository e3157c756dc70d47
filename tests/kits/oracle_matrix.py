"""Which stand has which point of Oracle, with the tests that show it: the matrix of
docs/how-to/oracle-source.md is made of this (`python -m tests.kits.oracle_matrix`), and
tests/unit/test_oracle_matrix.py holds both against the tests that there are.

Stands: (a) PostgreSQL that keeps `mlog$_` by Oracle's documented rules, (b) seekdb's own logs, (c) H2 in
Oracle mode, (d) golden texts and the pure rules, (e) a user's Oracle: cases of `make test-oracle`, which have
run on none by now. `sim`: the simulation.
"""

from __future__ import annotations

from typing import NamedTuple

STANDS = ("a", "b", "c", "d", "sim", "e")
_HEADS = (
    "(a) PostgreSQL's `mlog$_`",
    "(b) seekdb",
    "(c) H2",
    "(d) golden texts, rules",
    "simulation",
    "(e) cases, not run yet",
)
_STAND, _REAL, _MORE = (
    "integration/test_oracle_stand.py",
    "integration/test_oracle_real_source.py",
    "integration/test_oracle_real_points.py",
)
_MLOG, _CATALOGUE, _CHECK, _TEXTS = (
    "unit/test_oracle_mlog.py", "unit/test_oracle_catalog.py", "unit/test_oracle_check.py",
    "unit/test_oracle_texts.py",
)  # fmt: skip
_SIM, _SEEKDB, _VIEW, _TARGET = (
    "sim/test_oracle.py::test_every_life_ends_well",
    "integration/test_oracle_seekdb.py::test_an_engine_of_somebody_elses_keeps_logs_as_they_are_read",
    "integration/test_oracle_view.py", "integration/test_oracle_target.py",
)  # fmt: skip
#: The tests of every target that says it best of those that integration/test_oracle_target.py runs again.
COMMON = (
    "integration/test_targets_session.py::test_a_guard_that_does_not_hold_exactly_is_fenced",
    "integration/test_targets_zombie.py::test_a_stopped_worker_never_writes_after_the_take_over",
    "integration/test_targets_history.py::test_random_histories_end_as_serial_replay",
    "integration/test_targets_apply.py::test_random_net_changes_equal_a_model",
)  # fmt: skip
_VALUES, _LINK = "integration/test_oracle_values.py", "unit/test_oracle_link.py"


class Point(NamedTuple):
    """`tests`: stand → node ids below `tests/`."""

    number: str
    text: str
    tests: dict[str, tuple[str, ...]]


POINTS = (
    Point("1", "`check`: logs and their options, the statement that heals", {
        "a": (f"{_STAND}::test_check_says_what_a_table_lacks",
         f"{_STAND}::test_check_says_what_is_read_from_the_row_itself"),
        "d": (f"{_CHECK}::test_each_thing_that_is_wrong_with_a_table_is_said_with_its_remedy",
         f"{_CATALOGUE}::test_what_a_log_lacks_is_said",
          f"{_CATALOGUE}::test_the_log_that_is_wanted_is_a_statement_and_the_remedy"),
        "e": (f"{_MORE}::test_a_log_that_will_not_do_is_refused_and_the_printed_statement_heals_it",
         f"{_MORE}::test_a_staging_log_is_refused"),
    }),
    Point("1", "`check`: grants, version, row level policies", {
        "a": (f"{_STAND}::test_a_table_of_which_a_policy_hides_rows_is_left_out",),
        "d": (f"{_CHECK}::test_a_missing_grant_is_named_with_the_statement_that_gives_it",
         f"{_CHECK}::test_a_server_that_is_too_old_is_refused"),
        "e": (f"{_REAL}::test_check_finds_nothing",),
    }),
    Point("1", "RAC",
     {"a": (f"{_STAND}::test_commits_put_rows_of_two_instances_in_order",
      f"{_STAND}::test_a_second_instance_stops_tables_whose_log_does_not_say_the_order"),
       "d": (f"{_CATALOGUE}::test_several_instances_are_put_in_order_by_commit_scns",)}),
    Point("2", "pairs of images, key updates, keys handed on", {
        "a": (f"{_STAND}::test_keys_that_one_statement_hands_on",
         f"{_STAND}::test_a_unique_value_that_is_handed_over_is_given_up_first"),
        "b": (_SEEKDB,), "d": (f"{_MLOG}::test_images_of_an_update_are_paired_by_key_and_not_by_number",),
        "sim": (_SIM,), "e": (f"{_REAL}::test_a_key_that_moves_is_a_delete_and_an_insert",
         f"{_MORE}::test_all_changes_of_a_row_in_one_transaction"),
    }),
    Point("2", "order, transactions, late commits", {
        "a": (f"{_STAND}::test_kills_at_any_statement_lose_nothing_and_publish_nothing_twice",),
        "b": (_SEEKDB,), "sim": (_SIM,),
        "d": (f"{_MLOG}::test_changes_of_a_transaction_stand_together_and_behind_what_they_waited_for",),
        "e": (f"{_REAL}::test_late_commits_lose_nothing",
         f"{_MORE}::test_late_commits_and_transactions_side_by_side"),
    }),
    Point("2", "logs WITH COMMIT SCN", {
        "a": (f"{_STAND}::test_rows_wait_for_their_commit_scns",
         f"{_STAND}::test_rows_whose_commit_scn_never_comes_stop_their_table"),
        "d": (f"{_MLOG}::test_commit_scns_come_before_numbers",),
        "e": (f"{_REAL}::test_a_log_with_commit_scns_is_read_in_their_order",
         f"{_MORE}::test_late_commits_and_transactions_side_by_side"),
    }),
    Point("2", "logs with keys only, LOBs: the row as it is", {
        "a": (f"{_STAND}::test_a_log_with_keys_only_says_the_row_as_it_is",
         f"{_STAND}::test_a_lob_is_read_from_the_row_as_it_is"),
        "d": (f"{_MLOG}::test_columns_that_the_log_lacks_come_from_the_row",), "sim": (_SIM,),
        "e": (f"{_REAL}::test_what_the_log_lacks_is_read_from_the_row",),
    }),
    Point("2", "types of Oracle's → event", {
        "d": (f"{_CATALOGUE}::test_extremes_of_every_type",
         "unit/test_oracle_events.py::test_events_are_as_the_golden_file_has_them"),
        "e": (f"{_REAL}::test_every_type_is_the_same_from_a_snapshot_and_from_the_log",
         f"{_MORE}::test_the_ends_of_a_type_from_a_snapshot_and_from_the_log"),
    }),
    Point("2", "types of Oracle's → each target (real PostgreSQL, MySQL, MariaDB, Kafka)", {
        "c": (f"{_VALUES}::test_each_value_is_held_or_refused",),
        "d": (f"{_VALUES}::test_each_value_is_in_a_topic",),
        "e": (f"{_VALUES}::test_each_value_is_held_or_refused",),
    }),
    Point("3", "exactly what Kafka has is deleted, nothing twice, kills", {
        "a": (f"{_STAND}::test_a_kill_between_the_acknowledgement_and_the_delete",
         f"{_STAND}::test_a_process_that_was_replaced_deletes_nothing"),
        "d": (f"{_MLOG}::test_a_purge_deletes_each_place_once_in_bounded_statements",), "sim": (_SIM,),
        "e": (f"{_REAL}::test_late_commits_lose_nothing",),
    }),
    Point("3", "others at the log: refreshes refused, a foreign purge seen", {
        "a": (f"{_STAND}::test_what_the_log_does_not_show_stops_its_table_until_it_is_copied",
         f"{_STAND}::test_a_view_that_comes_to_use_the_log_stops_the_table"), "b": (_SEEKDB,),
         "d": (f"{_CATALOGUE}::test_what_a_log_lacks_is_said",),
        "e": (f"{_MORE}::test_a_log_that_others_refresh_from_is_refused",
         f"{_REAL}::test_rows_that_another_hand_deletes_are_missed"),
    }),
    Point("3", "shared mode: its rules alone, nothing of the product leads there", {
        "a": ("integration/test_oracle_shared.py::test_nothing_is_purged_that_kafka_does_not_have",),
        "sim": ("sim/test_oracle_shared_log.py::test_nothing_is_purged_that_kafka_does_not_have",),
        "d": ("unit/test_oracle_shared_rules.py::test_no_view_is_refreshed_while_rows_may_still_get_the_time_of_the_last_one",),  # noqa: E501
        "e": (f"{_REAL}::test_two_views_in_turn_lose_nothing",),
    }),
    Point("4", "TRUNCATE, partitions, direct path, another log", {
        "a": (f"{_STAND}::test_what_the_log_does_not_show_stops_its_table_until_it_is_copied",
         f"{_STAND}::test_rows_that_come_and_go_with_a_place_stop_the_table"),
         "d": ("unit/test_oracle_segments.py::test_segments_tell_what_no_log_shows",),
        "e": (f"{_REAL}::test_what_no_log_shows_stops_the_table",
         f"{_MORE}::test_what_no_log_shows_stops_a_partitioned_table",
          f"{_MORE}::test_a_partition_that_comes_with_rows_stops_the_table",
           f"{_MORE}::test_a_truncate_of_an_index_organized_table_stops_it",
            f"{_MORE}::test_another_log_stops_the_table"),
    }),
    Point("4", "DDL; snapshots in chunks, copies", {
        "a": (f"{_STAND}::test_a_table_that_changed_while_nobody_looked_stops",
         f"{_STAND}::test_a_second_alter_in_the_second_of_the_first_is_seen",
          f"{_STAND}::test_a_copy_of_some_rows_takes_the_sources_own_condition"),
        "d": (f"{_CATALOGUE}::test_only_definitions_under_which_rows_mean_the_same_are_followed",),
        "sim": (_SIM,),
        "e": (f"{_REAL}::test_an_alter_stops_the_table", f"{_MORE}::test_a_new_partition_stops_nothing",
         f"{_MORE}::test_a_table_that_is_dropped_and_made_again_stops"),
    }),
    Point("1–4", "whole runs into PostgreSQL and MySQL under load and kills", {
        "a": ("faults/test_oracle_source.py::test_oracle_into_postgres_and_mysql_under_load_and_kills",),
    }),
    Point("5", "every statement executed; arrays, MERGE, savepoints, key moves", {
        "c": ("integration/test_oracle_statements.py::test_h2_executes_every_statement_of_the_dialect",),
        "d": (f"{_TEXTS}::test_statements_of_a_table",
         f"{_LINK}::test_an_array_that_failed_in_part_is_taken_back_and_the_gravest_failure_raised"),
        "e": (f"{_TARGET}::test_every_type_comes_back_as_it_was_written",),
    }),
    Point("5",
    "progress row and its guard (FOR UPDATE WAIT), take-over, histories: the common suite of targets", {
        "c": COMMON, "d": (f"{_TEXTS}::test_bookkeeping_texts",), "e": COMMON,
    }),
    Point("5", "'' = NULL, partly NULL unique keys, CHAR keys refused", {
        "c": (f"{_TARGET}::test_partly_null_values_are_equal_in_an_index_of_ones_own_and_not_in_ours",
         f"{_TARGET}::test_what_check_refuses"),
        "d": (f"{_TEXTS}::test_an_empty_value_of_a_key_is_refused",
         f"{_TEXTS}::test_a_key_that_is_filled_with_blanks_is_refused"),
        "e": (f"{_TARGET}::test_partly_null_values_are_equal_in_an_index_of_ones_own_and_not_in_ours",),
    }),
    Point("5", "names, types there and back", {
        "c": (f"{_TARGET}::test_every_type_comes_back_as_it_was_written",),
        "d": (f"{_TEXTS}::test_names", f"{_TEXTS}::test_a_type_and_the_way_back"),
        "e": (f"{_TARGET}::test_every_type_comes_back_as_it_was_written",),
    }),
    Point("5", "changes of tables, marks round implicit commits, waits for locks", {
        "c": (f"{_TARGET}::test_a_changed_table_is_one_that_it_would_make",
         f"{_TARGET}::test_a_table_in_use_is_waited_for_and_its_holder_named"),
        "d": (f"{_TEXTS}::test_steps",), "e": (f"{_TARGET}::test_a_changed_table_is_one_that_it_would_make",),
    }),
    Point("5", "errors to classes and remedies; grants, version", {
        "c": (f"{_TARGET}::test_rights_are_read_from_the_catalogue",),
        "d": (f"{_CHECK}::test_a_right_that_the_targets_user_lacks_is_named",
         f"{_LINK}::test_what_an_error_is"),
    }),
    Point("5", "whole runs from MySQL and MariaDB under load and kills", {
        "c": ("faults/test_oracle_target.py::test_mysql_and_mariadb_into_oracle_under_load_and_kills",),
    }),
)  # fmt: skip


def rows() -> list[str]:
    """Return the matrix as lines of Markdown."""
    lines = [f"| point | {' | '.join(_HEADS)} |", f"|---|{'---|' * len(_HEADS)}"]
    for point in POINTS:
        cells = ("✓" if stand in point.tests else "–" for stand in STANDS[:-1])
        real = "case" if "e" in point.tests else "–"
        lines.append(f"| {point.number}. {point.text} | {' | '.join(cells)} | {real} |")
    return lines


if __name__ == "__main__":
    print("\n".join(rows()))
