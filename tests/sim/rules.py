"""The rules that keep rows right from the source to the target, each of which the model can switch off.

True: as the product does it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Rules:
    low_is_what_select_sees: bool = True  # 1: LOW is not ahead of what the SELECT of the chunk sees
    positions_are_unique: bool = True  # 2: snapshot ordinals rise over all chunks
    delivery_failure_leaves_no_gap: bool = True  # 3: purged at the first error, and readers check `prev`
    marks_from_lowest_lane: bool = True  # 4: covered per lane, marks from the lowest
    layout_changes_when_equal: bool = True  # 5: finished with the stored layout first
    attempt_fences: bool = True  # 6: the guard compares attempt and offset, not the epoch alone
    key_moves_are_two_parts: bool = True  # 7: the delete runs in the old key's lane
    topics_are_kept_apart: bool = True  # 8: an added column keeps two topics of one table apart
    displaced_rows_are_kept: bool = True  # 9: nothing is removed silently
    keys_are_folded: bool = True  # 10: keys that the target holds equal go to one lane
    resumes_from_progress: bool = (
        True  # 11: the target's progress, not Spark's checkpoint, says where to start
    )
    zombies_are_dropped: bool = True  # 14: events and chunk markers of a lower gen
    retry_is_final_image: bool = True  # 16: never the old events
    halves_by_event: bool = True  # 17: not halves of net rows
    positions_are_acknowledged: bool = True  # a position is stored once Kafka has all that lies before it
    windows_leave_out_what_changes: bool = True  # keys that the stream brings are newer than the chunk
    chunks_reach_their_begin: bool = True  # one whose LOW does not is read again
    chunks_are_of_one_state: bool = True  # one that was read before a TRUNCATE is read again
    purged_logs_are_refused: bool = True  # what is gone was never captured: a person must know
    purged_proofs_are_passed_over: bool = True  # the log is proven by what is left of it
    positions_lie_between: bool = True  # transactions: a reader of the log cannot begin inside one
    statements_are_judged: bool = True  # those that change rows without row events stop their table
    stops_are_stored: bool = True  # with the position that moves past their cause
    stops_are_said: bool = True  # in the topic
    stops_are_remembered: bool = True  # at a start, by the record and the topics
    stopped_tables_are_silent: bool = True  # no row of them is encoded
    stopped_snapshots_end: bool = True  # what was read of a stopped table is not sent
    definitions_are_proven: bool = True  # the catalogue's one is not believed when a statement follows
    unknown_xa_stops: bool = True  # all tables, at the COMMIT of what was prepared before capture began
    prepared_is_stored: bool = True  # with the position: where the rows of open XA transactions are
    prepared_rows_wait: bool = True  # for their XA COMMIT
    xa_positions_are_the_same: bool = True  # whether its rows come from memory or from the log again
    xa_commits_concern_chunks: bool = True  # the place of the COMMIT decides whether a SELECT saw the rows
    ends_decide: bool = True  # nothing of a transaction is published that is rolled back, or only prepared
    savepoints_undo: bool = True  # what stands between a savepoint and the way back to it is not published
    second_readings_know: bool = True  # what the first one found to be undone
    copies_begin_before_stops_end: bool = True  # a table goes on once its topic has the copy's begin
    older_markers_do_not_count: bool = True  # those that stand before the begin of a copy
    ranges_are_compared_where_alike: bool = True  # elsewhere the same two keys enclose other rows
    targets_tell_their_keys: bool = True  # what a target finds under a living key lives, however it shows it
    lanes_pass_markers_together: bool = True  # else a repeated sweep takes what one of them wrote for gone
    sweeps_are_guarded: bool = True  # whoever lost the unit deletes nothing
    jumps_take_the_position: bool = True  # of the begin's predecessor: nobody read what is passed over
    copies_given_up_stop_again: bool = True  # the table whose stop they had ended
    since_reaches_back: bool = True  # to before everything that concerns the chunk
    sweeps_reach_the_statement: bool = True  # a debt is paid by a key sweep that begins after it
    sweeps_see_the_statement: bool = True  # of which no row is left in what they read
    sweeps_keep_later_rows: bool = True  # rows that are written again after the statement stay
    passed_ranges_are_read_again: bool = True  # by a process that does not know them
    older_rows_show_nothing: bool = True  # the statement may have removed them
    sweeps_are_no_copies: bool = True  # no stopped unit goes on at the begin of a key sweep
    sweeps_spare_kept_rows: bool = True  # what is listed as kept stays through every copy
    debts_keep_rows: bool = True  # until a debt is paid, no row that the source lacks is deleted
    skipped_statements_are_debts: bool = True  # also those that a stopped unit never read
    written_keys_leave_the_list: bool = True  # the log decides on a kept key that is written again
    values_are_ticketed: bool = True  # tickets on before and after images
    halves_are_refused_apart: bool = True  # of a key move only what the target refuses is held
    deletes_settle: bool = True  # a delete is the final image of its key, also of one that is held
    held_keys_recover: bool = True  # with their next row that the target accepts
    recovery_is_final_image: bool = True  # only a key's newest row is tried
    trials_are_apart: bool = True  # a held key is not tried within a second of a refusal
    trials_come_at_last: bool = True  # also when no further record comes
    folds_recover_whole: bool = True  # each key that only queues after another one of its fold is tried
    given_up_values_free_keys: bool = True  # those that were refused because another row had them
    values_pass_in_cycles: bool = True  # keys that wait for each other's values are written together
    times_are_the_servers: bool = True  # capture's clock may be ahead
    times_are_reached: bool = True  # that nothing arrives does not show that all is read
    times_come_before_ends: bool = True  # what is committed between the two may be behind the end
    all_lanes_move: bool = True  # with the transaction that applies contended events of all lanes
    marks_end_with_parts: bool = True  # a part of contended events moves no lane past an event that is left
    claims_are_announced: bool = (
        True  # before the first event, after which a replaced process's rows are dropped
    )


FINDINGS: dict[str, str] = {
    "1": "low_is_what_select_sees",
    "2": "positions_are_unique",
    "3": "delivery_failure_leaves_no_gap",
    "4": "marks_from_lowest_lane",
    "5": "layout_changes_when_equal",
    "6": "attempt_fences",
    "7": "key_moves_are_two_parts",
    "8": "topics_are_kept_apart",
    "9": "displaced_rows_are_kept",
    "10": "keys_are_folded",
    "11": "resumes_from_progress",
    "14": "zombies_are_dropped",
    "16": "retry_is_final_image",
    "17": "halves_by_event",
    "acknowledged": "positions_are_acknowledged",
    "window": "windows_leave_out_what_changes",
    "begin": "chunks_reach_their_begin",
    "emptied": "chunks_are_of_one_state",
    "purged": "purged_logs_are_refused",
    "proofs": "purged_proofs_are_passed_over",
    "between": "positions_lie_between",
    "judged": "statements_are_judged",
    "stored": "stops_are_stored",
    "said": "stops_are_said",
    "remembered": "stops_are_remembered",
    "silent": "stopped_tables_are_silent",
    "snapshot": "stopped_snapshots_end",
    "proven": "definitions_are_proven",
    "xa": "unknown_xa_stops",
    "prepared": "prepared_is_stored",
    "at commit": "prepared_rows_wait",
    "xa twice": "xa_positions_are_the_same",
    "xa chunk": "xa_commits_concern_chunks",
    "ends": "ends_decide",
    "savepoint": "savepoints_undo",
    "again": "second_readings_know",
    "copy": "copies_begin_before_stops_end",
    "markers": "older_markers_do_not_count",
    "given up": "copies_given_up_stop_again",
    "ranges": "ranges_are_compared_where_alike",
    "shown": "targets_tell_their_keys",
    "together": "lanes_pass_markers_together",
    "sweeps": "sweeps_are_guarded",
    "jump": "jumps_take_the_position",
    "since": "since_reaches_back",
    "debt": "sweeps_reach_the_statement",
    "seen": "sweeps_see_the_statement",
    "later rows": "sweeps_keep_later_rows",
    "passed ranges": "passed_ranges_are_read_again",
    "older rows": "older_rows_show_nothing",
    "no copy": "sweeps_are_no_copies",
    "kept": "sweeps_spare_kept_rows",
    "kept debt": "debts_keep_rows",
    "kept skip": "skipped_statements_are_debts",
    "kept again": "written_keys_leave_the_list",
    "tickets": "values_are_ticketed",
    "refused half": "halves_are_refused_apart",
    "settled": "deletes_settle",
    "recovers": "held_keys_recover",
    "newest": "recovery_is_final_image",
    "pace": "trials_are_apart",
    "at last": "trials_come_at_last",
    "same fold": "folds_recover_whole",
    "value": "given_up_values_free_keys",
    "cycle": "values_pass_in_cycles",
    "clock": "times_are_the_servers",
    "quiet": "times_are_reached",
    "time first": "times_come_before_ends",
    "all lanes": "all_lanes_move",
    "parts": "marks_end_with_parts",
    "claim": "claims_are_announced",
}
"""Name of a rule in these tests (a number for the oldest) → the rule."""

_XA = {"xa": 0.4, "others": 0.5}
_STOPS = {"statements": 0.3, "stops": 0.7, "others": 0.5}
_COPIES = {
    "copies": 0.4,
    "others": 0.7,
    "transactions": 30,
    "statements": 0.2,
    "stops": 0.6,
    "prefill": 9,
    "snapshot": 1,
}
_APPLIED = _COPIES | {"others": 0.2, "copies": 0.3, "repairs": 1}
_REMOVES = {"removes": 0.4, "others": 0.1, "snapshot": 1, "prefill": 9, "alike": 1}
_EXACT = {"shouts": 0, "one_case": 1}
_KEEPS = _REMOVES | {"keeps": 1, "quarantine": 0, "truncates": 0.0}
_REFUSED = {"quarantine": 1, "poison": 0.2, "moves": 0.5, "others": 0.1}
_HOLDS = _REFUSED | {"holds": 1, "loose": 0.3}
_CONTENDED = {
    "max_waits": 0.02,
    "small_batch": 2,
    "max_gather": 8,
    "max_lanes": 4,
    "max_batch": 30,
    "others": 0.0,
    "statements": 0.0,
}
EMPHASIS: dict[str, dict[str, float]] = {
    "1": {"snapshot": 1},
    "2": {"snapshot": 1, "transactions": 3, "prefill": 5, "faults": 0.0},
    "4": {"max_lanes": 4, "max_gather": 1, "faults": 0.04},
    "5": {"max_lanes": 4, "max_gather": 1, "faults": 0.06},
    "6": {"faults": 0.03, "max_lanes": 2, "max_gather": 2, "overlap": 0.8},
    "7": {"max_lanes": 4, "max_gather": 1, "max_batch": 30, "moves": 0.6, "others": 0.0},
    "16": {"quarantine": 1},
    "acknowledged": {"failing": 0.1, "faults": 0.04},
    "window": {"snapshot": 1},
    "begin": {"snapshot": 1},
    "emptied": {"snapshot": 1, "truncates": 0.2},
    "purged": {"purges": 1, "rotations": 0.5, "faults": 0.04},
    "proofs": {"rotations": 0.5, "faults": 0.04, "purges": 0.0},
    "between": {"faults": 0.04},
    "xa": _XA,
    "prepared": _XA | {"faults": 0.04},
    "at commit": _XA,
    "xa twice": _XA | {"faults": 0.04},
    "xa chunk": {
        "xa": 0.5,
        "others": 0.0,
        "snapshot": 1,
        "prefill": 9,
        "statements": 0.0,
        "faults": 0.0,
        "truncates": 0.0,
        "transactions": 40,
    },
    "ends": _XA,
    "savepoint": {"savepoints": 0.4},
    "again": {"savepoints": 0.4, "large": 1},
    "judged": _STOPS,
    "stored": _STOPS,
    "said": _STOPS,
    "remembered": _STOPS | {"faults": 0.04},
    "silent": _STOPS,
    "snapshot": _STOPS | {"snapshot": 1, "prefill": 8},
    "proven": {"statements": 0.4, "stops": 0.0, "faults": 0.04, "others": 0.6},
    "copy": _COPIES | {"faults": 0.04},
    "markers": _COPIES | {"faults": 0.04},
    "given up": _COPIES,
    "since": _COPIES | {"statements": 0.0},
    "ranges": _APPLIED | {"alike": 0},
    "shown": _APPLIED | {"shouts": 1},
    "together": _APPLIED | {"alike": 1, "max_lanes": 4, "max_gather": 1, "faults": 0.05},
    "sweeps": _APPLIED
    | {
        "alike": 0,
        "faults": 0.08,
        "overlap": 0.9,
        "max_batch": 30,
        "transactions": 60,
        "stops": 0.9,
        "max_lanes": 1,
    },
    "jump": _APPLIED | {"repairs": 1},
    "debt": _REMOVES,
    "seen": _REMOVES | {"snapshot": 0},
    "later rows": _REMOVES | {"transactions": 30},
    "passed ranges": _REMOVES | _EXACT | {"faults": 0.04},
    "older rows": _REMOVES | _EXACT,
    "no copy": _APPLIED | {"removes": 0.3, "transactions": 40},
    "kept": _KEEPS | {"removes": 0.3, "copies": 0.4, "transactions": 30, "others": 0.4, "faults": 0.0},
    "kept debt": _KEEPS,
    "kept skip": _APPLIED
    | {"removes": 0.3, "keeps": 1, "quarantine": 0, "transactions": 40, "stops": 0.9, "truncates": 0.0},
    "kept again": _KEEPS | {"transactions": 40, "shouts": 0, "faults": 0.0},
    "3": {"failing": 0.1},
    "tickets": {"max_lanes": 4, "max_gather": 1, "max_batch": 30, "faults": 0.0, "others": 0.0},
    "refused half": _REFUSED,
    "settled": _REFUSED,
    "recovers": _REFUSED,
    "newest": _REFUSED,
    "pace": _REFUSED,
    "at last": _REFUSED,
    "same fold": _REFUSED | {"coarse": 1},
    "value": _HOLDS,
    "cycle": _HOLDS | {"poison": 0.4, "transactions": 60},
    "all lanes": _CONTENDED | {"faults": 0.06, "transactions": 30, "moves": 0.5},
    "parts": _CONTENDED | {"faults": 0.04, "quarantine": 1, "poison": 0.1},
    "claim": {"faults": 0.06, "statements": 0.0, "purges": 0.0, "transactions": 40},
}
"""What a world has more of when it is to show that a rule is needed."""

ALL = Rules()


def without(finding: str) -> Rules:
    """Return the rules with that of `finding` switched off; "" for all rules."""
    return replace(ALL, **{FINDINGS[finding]: False}) if finding else ALL


assert {f.name for f in fields(Rules)} == set(FINDINGS.values())
