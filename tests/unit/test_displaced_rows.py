"""Rows that had to make room: which of them a copy has made meaningless, and how they are listed
(consumer.targets.displaced_rows)."""

from __future__ import annotations

import json

import pytest

from consumer.targets.displaced_rows import DisplacedRow, parse_displaced_row, yield_superseded_marks
from rowlock.inspect.observed.displaced import DisplacedRows, format_displaced_lines


def displaced(number: int, last: int, table: str = "s.t") -> DisplacedRow:
    by = {"lane": 1, "from": [last - 1, 0], "to": [last, 0]}
    return parse_displaced_row((number, table, json.dumps(by)))


def test_what_was_displaced_before_a_copy_began_is_superseded() -> None:
    rows = [displaced(1, 4), displaced(2, 4), displaced(3, 5), displaced(4, 6), displaced(5, 4, "s.other")]
    found = [(json.loads(by), ids) for by, ids in yield_superseded_marks(rows, "s.t", 6, "by a copy")]
    assert found == [
        ({"lane": 1, "from": [3, 0], "to": [4, 0], "superseded": "by a copy"}, [1, 2]),
        ({"lane": 1, "from": [4, 0], "to": [5, 0], "superseded": "by a copy"}, [3]),
    ]


@pytest.mark.parametrize("by", ["{}", "[]", "7", "no JSON", '{"offsets":[1,2]}', '{"to":null}'])
def test_a_row_that_does_not_say_of_its_event_stays(by: str) -> None:
    assert list(yield_superseded_marks([parse_displaced_row((1, "s.t", by))], "s.t", 6, "why")) == []


def test_many_rows_of_one_event_are_marked_some_at_a_time() -> None:
    found = [
        ids for _, ids in yield_superseded_marks([displaced(n, 4) for n in range(1201)], "s.t", 5, "why")
    ]
    assert [len(ids) for ids in found] == [500, 500, 201]
    assert [each for some in found for each in some] == list(range(1201))


def test_the_listing_counts_both_kinds() -> None:
    found = [DisplacedRows("p", "hq", "t", 2, 1)]
    assert format_displaced_lines(found) == [
        "p t: 2 displaced, 1 more superseded by a copy (rowlock_displaced)"
    ]
    assert [each.as_dict() for each in found] == [
        {"pipeline": "p", "target": "hq", "topic": "t", "rows": 2, "superseded": 1}
    ]
