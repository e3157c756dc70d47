"""The judge of topics finds what is wrong with one: each finding by a topic that has it and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.topics.expected import EMPTIED, SourceHistory, Written
from tests.topics.forms import Image
from tests.topics.judge import judge
from tests.topics.records import Record

WRITTEN = Written("head.acct", key=("town", "id"))


def row(key: int, version: int, town: str = "ulm", owner: str | None = "ann") -> Image:
    at = datetime(2026, 11, 21, 7, 5, 9, 7000)  # noqa: DTZ001 - wall time
    return {"id": key, "version": version, "town": town, "owner": owner, "amount": Decimal("-1.50"), "at": at}


HISTORY = SourceHistory(
    [row(1, 1)],
    [
        (None, row(2, 2)),
        (row(1, 1), row(1, 3)),
        (row(1, 3), row(1, 4, "bonn")),
        (row(2, 2), None),
        (None, row(2, 5)),
        (row(2, 5), row(2, 6)),
    ],
)
ROWS = [row(1, 4, "bonn"), row(2, 6)]


def wire(image: Image | None) -> Any:
    return None if image is None else {**image, "amount": "-1.50", "at": "2026-11-21 07:05:09.007"}


def reported(op: str, before: Image | None, after: Image | None, offset: int) -> Record:
    shown: Image = after or before or {}
    value = {"op": op, "before": wire(before), "after": wire(after), "source": {"name": "b1"}}
    return Record(0, offset, key_of(shown), json.dumps(value).encode())


def key_of(shown: Image) -> bytes:
    return json.dumps({"town": shown["town"], "id": shown["id"]}).encode()


def defined(offset: int, *columns: str) -> Record:
    definition = {"columns": [{"name": each} for each in columns]}
    value = {"op": "m", "before": None, "after": None, "source": {"name": "b1"}, "definition": definition}
    return Record(0, offset, None, json.dumps(value).encode())


DEFINED = defined(-1, *row(1, 1))


def topic() -> list[Record]:
    """A topic that is right; some offsets are those of commits."""
    return [
        DEFINED,
        reported("r", None, row(1, 1), 0),
        reported("c", None, row(2, 2), 1),
        reported("u", row(1, 1), row(1, 3), 3),
        reported("d", row(1, 3), None, 5),
        Record(0, 6, key_of(row(1, 3)), None),
        reported("c", None, row(1, 4, "bonn"), 7),
        reported("d", row(2, 2), None, 9),
        Record(0, 10, key_of(row(2, 2)), None),
        reported("c", None, row(2, 5), 12),
        reported("u", row(2, 5), row(2, 6), 13),
    ]


def findings(records: list[Record], written: Written = WRITTEN) -> list[str]:
    return judge(written, records, {"b1": HISTORY}, {"b1": ROWS})


def test_a_topic_that_is_right_has_no_findings() -> None:
    assert findings(topic()) == []


Damage = Callable[[list[Record]], list[Record]]
DAMAGES: dict[str, Damage] = {
    "twice": lambda found: [*found, replace(found[-1], offset=15)],
    "missing": lambda found: found[:3] + found[4:],
    "out of order": lambda found: [
        *found[:9],
        replace(found[10], offset=12),
        replace(found[9], offset=13),
    ],
    # a record of a transaction that was aborted: the source undid it, or another worker had written it
    # already
    "not of the source": lambda found: [*found, reported("u", row(2, 6), row(2, 99), 15)],
    "a row that no source has": lambda found: [*found, reported("c", None, row(9, 99), 15)],
    "a row that the topic lacks": lambda found: found[:-1],
    "behind": lambda found: [*found, reported("u", row(2, 6), row(2, 5), 15)],
    "is of one change": lambda found: [*found[:6],
     *(replace(each, offset=each.offset + 1) for each in found[6:])],
    "where the definition has": lambda found: [*found[:3], defined(2, "id"), *found[3:]],
    "in the partitions": lambda found: [*found[:-1], replace(found[-1], partition=1)],
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(name: str) -> None:
    seen = findings(DAMAGES[name](topic()))
    assert any(name in each for each in seen), seen


def test_a_value_that_differs_is_found() -> None:
    (found,) = [each for each in topic() if each.offset == 13]
    other = replace(
        found,
        value=(found.value or b"").replace(
            b'"-1.50", "at": "2026-11-21 07:05:09.007"}, "source"',
            b'"1.50", "at": "2026-11-21 07:05:09.007"}, "source"',
        ),
    )
    assert other != found
    seen = findings([*topic()[:10], other])
    assert any("not of the source" in each for each in seen), seen
    assert any("a row that the topic lacks" in each for each in seen), seen


def test_a_filter_and_a_mask_are_expected() -> None:
    shaped = replace(WRITTEN, where={"town": ["bonn"]}, masks={"owner": "***"}, tombstones=False)
    image = row(1, 4, "bonn", "***")
    assert findings([DEFINED, reported("c", None, image, 1)], shaped) == []
    seen = findings([DEFINED, reported("c", None, row(1, 4, "bonn"), 1)], shaped)
    assert any("missing" in each for each in seen), "the owner is not hidden"
    left_out = reported("d", row(1, 1, owner="***"), None, 0)
    seen = findings([DEFINED, left_out, reported("c", None, image, 1)], shaped)
    assert [each.partition(":")[0] for each in seen] == ["not of the source"], seen


def test_a_row_that_was_not_written_since_a_column_was_added_has_null_there() -> None:
    """Another source of the topic may not have the column at all."""
    two = {"b1": SourceHistory([row(1, 1)]), "b2": SourceHistory([row(2, 2)])}
    found = [DEFINED, reported("r", None, row(1, 1), 0), reported("r", None, row(2, 2), 1)]
    added = {"b1": [{**row(1, 1), "note": None}], "b2": [row(2, 2)]}
    assert judge(WRITTEN, found, two, added) == []
    seen = judge(WRITTEN, found, two, {**added, "b1": [{**row(1, 1), "note": "x"}]})
    assert any("a row that the topic lacks" in each for each in seen), seen


def test_a_table_that_was_emptied_is_expected_once_in_every_partition() -> None:
    history = SourceHistory([row(1, 1)], [EMPTIED, (None, row(2, 2))])
    cleared = Record(
        0, 1, None, json.dumps({"op": "t", "before": None, "after": None, "source": {"name": "b1"}}).encode()
    )
    found = [DEFINED, reported("r", None, row(1, 1), 0), cleared, reported("c", None, row(2, 2), 3)]

    def seen(records: list[Record]) -> list[str]:
        return judge(WRITTEN, records, {"b1": history}, {"b1": [row(2, 2)]})

    assert seen(found) == []
    assert any("TRUNCATE of b1: 2 times" in each for each in seen([*found, replace(cleared, offset=4)]))
    without = seen([*found[:2], found[3]])
    assert any("TRUNCATE of b1: 0 times" in each for each in without), without
    assert any("a row that no source has" in each for each in without), without


def test_a_key_belongs_where_its_partitioner_says() -> None:
    shaped = replace(WRITTEN, partitions=7, partitioner="crc32")
    seen = findings([replace(each, partition=3) for each in topic()], shaped)
    assert any("belongs, in the partitions" in each for each in seen), seen


def test_a_primary_key_that_moves_under_one_routing_key_is_a_delete_and_a_create() -> None:
    written = Written("head.acct", key=("town",))
    history = {"b1": SourceHistory([row(1, 1), row(3, 1)], [(row(1, 1), row(2, 2))])}

    def under_town(op: str, before: Image | None, after: Image | None, offset: int) -> Record:
        return replace(reported(op, before, after, offset), key=json.dumps({"town": "ulm"}).encode())

    read = [DEFINED, under_town("r", None, row(1, 1), 0), under_town("r", None, row(3, 1), 1)]
    missing, new = under_town("d", row(1, 1), None, 3), under_town("c", None, row(2, 2), 4)
    rows = {"b1": [row(2, 2), row(3, 1)]}
    assert judge(written, [*read, missing, new], history, rows) == []
    assert judge(written, [*read, under_town("u", row(1, 1), row(2, 2), 3)], history, rows) != []
    null = Record(0, 4, missing.key, None)
    assert judge(written, [*read, missing, null, replace(new, offset=5)], history, rows) != []
