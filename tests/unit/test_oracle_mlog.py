"""Rows of a materialized view log as changes: each rule of producer/sources/oracle/mlog.py, and what is
deleted of the log."""

from __future__ import annotations

import random

import pytest

from producer.sources.oracle.mlog import (
    MOST_PLACES,
    STEP,
    LogBrokenError,
    LoggedChange,
    LogPlace,
    LogRow,
    build_high_watermark,
    compute_next_poll,
    find_published_row,
    has_whole_poll_between,
    list_finally_deleted_keys,
    merge_log_rows,
    parse_log_rows,
    plan_purge,
    with_current,
    with_kept,
)
from schemas.table.model import Key, Row


def key(row: Row) -> Key:
    return row[:1]


def log(sequence: int, kind: str, id_: int, version: int, xid: str | None = "1", scn: int = 0) -> LogRow:
    return LogRow(f"R{sequence}", sequence, kind[0], kind[1], xid, scn, (id_, version))


def ops(rows: list[LogRow], *, whole: bool = True) -> list[tuple[str, Row | None, Row | None]]:
    return [(each.op, each.before, each.after) for each in parse_log_rows(rows, key, whole=whole).changes]


def test_an_insert_a_delete_and_the_two_images_of_an_update() -> None:
    rows = [log(1, "IN", 1, 10), log(2, "UU", 1, 10), log(3, "UN", 1, 11), log(4, "DO", 1, 11)]
    assert ops(rows) == [("c", None, (1, 10)), ("u", (1, 10), (1, 11)), ("d", (1, 11), None)]
    places = [each.places for each in parse_log_rows(rows, key, whole=True).changes]
    assert places == [(LogPlace("R1", 1),), (LogPlace("R2", 2), LogPlace("R3", 3)), (LogPlace("R4", 4),)]


def test_a_key_that_moves_is_a_delete_and_an_insert() -> None:
    assert ops([log(1, "DO", 1, 10), log(2, "IN", 2, 10)]) == [("d", (1, 10), None), ("c", None, (2, 10))]


def test_images_of_an_update_are_paired_by_key_and_not_by_number() -> None:
    """Between them other sessions draw numbers."""
    rows = [
        log(1, "UU", 1, 10, "1"), log(2, "UU", 2, 20, "2"), log(3, "UN", 2, 21, "2"),
        log(4, "UN", 1, 11, "1"),
    ]  # fmt: skip
    assert ops(rows) == [("u", (2, 20), (2, 21)), ("u", (1, 10), (1, 11))]


def test_rows_come_in_any_order() -> None:
    rows = [
        log(1, "IN", 1, 10),
        log(2, "UU", 1, 10),
        log(3, "UN", 1, 11),
        log(4, "DO", 1, 11),
        log(5, "IN", 1, 12),
    ]
    expected = ops(rows)
    random.Random(1).shuffle(rows)
    assert ops(rows) == expected


def test_an_update_cut_by_the_end_of_a_poll_is_left_in_the_log() -> None:
    rows = [log(1, "IN", 2, 1), log(2, "UU", 1, 10)]
    found = parse_log_rows(rows, key, whole=False)
    assert [each.op for each in found.changes] == ["c"]
    assert found.left == 1


@pytest.mark.parametrize("rows", [
    [log(2, "UU", 1, 10)], [log(3, "UN", 1, 11)], [log(2, "UU", 1, 10), log(3, "UU", 1, 10)], [log(2, "UU", 1, 10), log(3, "DO", 1, 10)],  # noqa: E501
    [log(2, "IO", 1, 10)], [log(2, "DN", 1, 10)], [log(2, "XN", 1, 10)],
])  # fmt: skip
def test_a_log_with_holes_is_broken(rows: list[LogRow]) -> None:
    with pytest.raises(LogBrokenError, match="SEQUENCE"):
        parse_log_rows(rows, key, whole=True)


def test_changes_of_a_transaction_stand_together_and_behind_what_they_waited_for() -> None:
    """1 begins first; 2 changes row 7 and commits; then 1 changes it too."""
    rows = [
        log(1, "IN", 1, 1, "1"),
        log(2, "IN", 7, 1, "2"),
        log(3, "IN", 8, 1, "2"),
        log(4, "UU", 7, 1, "1"),
        log(5, "UN", 7, 2, "1"),
    ]
    assert ops(rows) == [("c", None, (7, 1)), ("c", None, (8, 1)), ("c", None, (1, 1)), ("u", (7, 1), (7, 2))]


def test_without_transactions_the_numbers_count() -> None:
    rows = [log(1, "IN", 1, 1, None), log(2, "IN", 7, 1, None), log(3, "DO", 1, 1, None)]
    assert [op for op, *_ in ops(rows)] == ["c", "c", "d"]


def test_commit_scns_come_before_numbers() -> None:
    """Instances draw numbers of their own: the later commit has the lower one."""
    rows = [
        log(1, "UU", 1, 11, "2", 900),
        log(2, "UN", 1, 12, "2", 900),
        log(50, "UU", 1, 10, "1", 800),
        log(51, "UN", 1, 11, "1", 800),
    ]
    assert ops(rows) == [("u", (1, 10), (1, 11)), ("u", (1, 11), (1, 12))]


def test_images_of_an_update_are_paired_within_their_commit() -> None:
    """An instance goes on in another stretch of numbers between them."""
    rows = [
        log(60, "UU", 1, 10, "1", 800),
        log(1001, "UN", 1, 11, "1", 800),
        log(500, "UU", 1, 11, "2", 900),
        log(501, "UN", 1, 12, "2", 900),
    ]
    assert ops(rows) == [("u", (1, 10), (1, 11)), ("u", (1, 11), (1, 12))]


def test_histories_of_rows_keep_their_order_whatever_commits_first() -> None:
    """Random transactions that lock their rows, cut into polls of their commits: each row's versions rise,
    all of them come."""
    for seed in range(60):
        rng = random.Random(seed)
        versions, sequence, committed, polls = (
            dict.fromkeys(range(6), 0),
            0,
            list[LogRow](),
            list[list[LogRow]](),
        )
        open_: dict[int, list[LogRow]] = {}
        names = iter(range(1000))
        for _ in range(80):
            if open_ and rng.random() < 0.3:
                committed += open_.pop(rng.choice(sorted(open_)))
            if len(open_) < 3:
                open_[next(names)] = []
            xid = rng.choice(sorted(open_))
            locked = {row.image[0] for other, rows in open_.items() if other != xid for row in rows}
            free = [id_ for id_ in versions if id_ not in locked]
            if free:
                id_ = rng.choice(free)
                for kind, version in (("UU", versions[id_]), ("UN", versions[id_] + 1)):
                    sequence += 1
                    open_[xid].append(log(sequence, kind, id_, version, str(xid)))
                versions[id_] += 1
            if rng.random() < 0.2:
                polls.append(committed)
                committed = []
        polls.append(committed + [row for rows in open_.values() for row in rows])
        seen = dict.fromkeys(range(6), 0)
        for poll in polls:
            for change in parse_log_rows(poll, key, whole=True).changes:
                assert change.before is not None
                assert change.after is not None
                id_ = int(str(change.before[0]))
                assert (change.before[1], change.after[1]) == (seen[id_], seen[id_] + 1), seed
                seen[id_] += 1
        assert seen == versions


# --- deleting


def test_a_row_that_is_published_and_was_moved_is_found() -> None:
    rows = [log(1, "IN", 1, 1), log(2, "IN", 2, 1)]
    assert find_published_row(rows, {2, 7}) == rows[1]
    assert find_published_row(rows, {7}) is None


def test_a_purge_deletes_each_place_once_in_bounded_statements() -> None:
    places = [LogPlace(f"R{n:02d}", n) for n in range(25)]
    plan = plan_purge([*places[::-1], places[3]], 10)
    assert [len(batch) for batch in plan] == [10, 10, 5]
    assert [place for batch in plan for place in batch] == places


# --- numbers


@pytest.mark.parametrize(("stored", "highest", "least"), [(2, None, 2), (8, 5, 8), (8, 9, 10), (8, 10, 11)])
def test_a_poll_stands_above_all_that_a_topic_has(stored: int, highest: int | None, least: int) -> None:
    found = compute_next_poll(stored, highest, captured_before=False)
    assert least <= found < least + STEP
    assert found % STEP == 0


def test_a_later_process_leaves_out_what_watermarks_may_have_said() -> None:
    assert compute_next_poll(8, 9, captured_before=True) > 8 + 1000
    assert compute_next_poll(8, 9, captured_before=True) % STEP == 0


def test_high_is_behind_the_next_poll_that_surely_reads_later() -> None:
    """Poll 6 may have read before now: 8 surely has not begun, has its rows at 9, and is over at 10."""
    assert build_high_watermark(6) == 10


# --- what is read from the table itself


def test_keys_alone_are_one_change_each_in_the_order_of_their_last_rows() -> None:
    rows = [
        log(1, "IN", 1, 0, "1"), log(2, "IN", 2, 0, "2"), log(3, "UU", 1, 0, "3"), log(4, "DO", 3, 0, "3"),
        log(5, "UU", 2, 0, None, scn=9),
    ]  # fmt: skip
    found = merge_log_rows(reversed(rows), {(1,): (1, 10), (2,): (2, 20)}, key)
    assert [(each.op, each.before, each.after, each.xid) for each in found] == [
        ("u", None, (1, 10), "3"), ("d", (3, 0), None, "3"), ("u", None, (2, 20), None),
    ]  # fmt: skip
    assert [[place.sequence for place in each.places] for each in found] == [[1, 3], [4], [2, 5]]


def test_an_event_names_no_more_rows_than_a_message_holds() -> None:
    rows = [log(i, "UU", 1, 0) for i in range(2 * MOST_PLACES + 1)]
    found = merge_log_rows(rows, {(1,): (1, 10)}, key)
    assert [len(each.places) for each in found] == [MOST_PLACES, MOST_PLACES, 1]
    assert [place.sequence for each in found for place in each.places] == list(range(2 * MOST_PLACES + 1))


def test_columns_that_the_log_lacks_come_from_the_row() -> None:
    changes = [
        LoggedChange("c", None, (1, 5, None), (LogPlace("R", 1),), None),
        LoggedChange("u", (2, 5, None), (2, 6, None), (LogPlace("R", 2),), None),
        LoggedChange("c", None, (3, 7, None), (LogPlace("R", 3),), None),
        LoggedChange("u", (4, 7, None), (4, 8, None), (LogPlace("R", 4),), None),
        LoggedChange("d", (1, 5, None), None, (LogPlace("R", 5),), None),
    ]
    found = with_current(changes, {(1,): (1, 99, "x"), (2,): (2, 98, "y")}, key, {2})
    assert [(each.op, each.before, each.after) for each in found] == [
        ("c", None, (1, 5, "x")), ("u", (2, 5, None), (2, 6, "y")), ("d", (3, 7, None), None),
        ("d", (4, 7, None), None), ("d", (1, 5, None), None),
    ]  # fmt: skip
    assert [each.places for each in found] == [each.places for each in changes]


SHIFT = [log(1, "DO", 1, 10), log(2, "IN", 2, 10), log(3, "DO", 2, 20), log(4, "IN", 3, 20)]
"""{1: 10, 2: 20}, then SET id = id + 1: the key 2 is deleted behind its new row."""


def test_a_key_that_is_deleted_last_is_asked_for() -> None:
    assert list_finally_deleted_keys(reversed(SHIFT), key) == [(1,), (2,)]
    assert list_finally_deleted_keys([*SHIFT, log(5, "UU", 2, 10), log(6, "UN", 2, 11)], key) == [(1,)]
    assert list_finally_deleted_keys([log(9, "DO", 1, 1, "1", 800), log(2, "IN", 1, 1, "2", 900)], key) == []


def test_a_row_that_is_there_though_its_key_was_deleted_is_said_in_place_of_the_delete() -> None:
    """One event: were it two, a kill between them would leave the delete alone."""
    changes = parse_log_rows(SHIFT, key, whole=True).changes
    found = with_kept(changes, {(2,): (2, 10)}, key)
    assert [(each.op, each.before, each.after) for each in found] == [
        ("d", (1, 10), None), ("c", None, (2, 10)), ("u", (2, 20), (2, 10)), ("c", None, (3, 20)),
    ]  # fmt: skip
    assert [each.places for each in found] == [each.places for each in changes]


def test_only_the_last_delete_of_a_key_is_another_change() -> None:
    changes = parse_log_rows(
        [*SHIFT, log(5, "DO", 2, 10), log(6, "IN", 2, 30), log(7, "DO", 2, 40)], key, whole=True
    ).changes
    assert [each.op for each in with_kept(changes, {(2,): (2, 30)}, key)] == [
        "d",
        "c",
        "d",
        "c",
        "d",
        "c",
        "u",
    ]
    assert with_kept(changes, {}, key) == changes


def test_a_poll_is_whole_when_the_one_behind_the_running_one_has_ended() -> None:
    assert not has_whole_poll_between(10, 10)
    assert not has_whole_poll_between(10, 10 + STEP)
    assert has_whole_poll_between(10, 10 + 2 * STEP)
