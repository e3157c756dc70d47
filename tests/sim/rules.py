"""The rules of research/dataplane.md that the model can switch off, one by one. True: as the product does it."""

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
    values_are_ticketed: bool = True  # "Confirmed right": tickets on before and after images


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
    "tickets": "values_are_ticketed",
}
"""Number of the finding → the rule that it led to."""

EMPHASIS: dict[str, dict[str, float]] = {
    "1": {"snapshot": 1},
    "2": {"snapshot": 1, "transactions": 3, "prefill": 5, "faults": 0.0},
    "4": {"max_lanes": 4, "max_gather": 1, "faults": 0.04},
    "5": {"max_lanes": 4, "max_gather": 1, "faults": 0.06},
    "6": {"faults": 0.03, "max_lanes": 2, "max_gather": 2, "overlap": 0.8},
    "7": {"max_lanes": 4, "max_gather": 1, "max_batch": 30, "moves": 0.6},
    "16": {"quarantine": 1},
    "acknowledged": {"failing": 0.1, "faults": 0.04},
    "window": {"snapshot": 1},
    "begin": {"snapshot": 1},
    "emptied": {"snapshot": 1, "truncates": 0.2},
    "3": {"failing": 0.1},
    "tickets": {"max_lanes": 4, "max_gather": 1, "max_batch": 30, "faults": 0.0},
}
"""What a world has more of when it is to show that a rule is needed."""

ALL = Rules()


def without(finding: str) -> Rules:
    """Return the rules with that of `finding` switched off; "" for all rules."""
    return replace(ALL, **{FINDINGS[finding]: False}) if finding else ALL


assert {f.name for f in fields(Rules)} == set(FINDINGS.values())
