"""The judge: whether a topic has each change of its sources exactly once, in order by key, and ends with
the rows that they have.

It knows a route's settings (`Written`) and each source's changes (`SourceHistory`), works out by itself what
must be in the topic, and compares every record and every value. A finding is a sentence; a topic without
findings is right.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from tests.topics.expected import EMPTIED, Entry, Expected, SourceHistory, Written
from tests.topics.forms import FORMS, Image, Said
from tests.topics.records import Record

SHOWN = 5
"""Findings of one sort that are told."""


@dataclass(frozen=True)
class Found:
    """A record, and what it says. `key`: "" where it is about no row."""

    record: Record
    key: str
    reported: Said


def found_in(written: Written, records: Iterable[Record]) -> list[Found]:
    """Return the records in the order of their partitions."""
    form = FORMS[written.format]
    return [
        Found(
            each,
            "" if each.key is None else json.dumps(form.encode_key(each.key), sort_keys=True),
            form.reported(each.value),
        )
        for each in sorted(records, key=lambda record: (record.partition, record.offset))
    ]


def judge(
    written: Written,
    records: Sequence[Record],
    histories: Mapping[str, SourceHistory],
    rows: Mapping[str, Iterable[Image]],
) -> list[str]:
    """Return what is wrong with a topic. `rows`: what each source has now, read from it and not from its
    history."""
    everything = found_in(written, records)
    found = [each for each in everything if each.key]
    desired = Expected(written, histories).entries
    once = list(_once_and_in_order(desired, found))
    return [
        *once,
        *_partitions(written, found),
        *_versions(written, found),
        *_state(written, everything, rows),
        *_clearings(written, everything, histories),
        *_definitions(written, everything),
        *(_halves(desired, found) if written.partitions == 1 and len(histories) == 1 and not once else ()),
    ]


def _once_and_in_order(desired: Sequence[Entry], found: Sequence[Found]) -> Iterator[str]:
    want: dict[str, list[str]] = defaultdict(list)
    got: dict[str, list[str]] = defaultdict(list)
    for entry in desired:
        want[entry.key].append(entry.text)
    for each in found:
        got[each.key].append(each.reported.text)
    findings: dict[str, list[str]] = defaultdict(list)
    for key in sorted(want.keys() | got.keys()):
        more = Counter(got[key]) - Counter(want[key])
        for text in more:
            findings["twice" if text in want[key] else "not of the source"].append(f"{key}: {text}")
        for text in Counter(want[key]) - Counter(got[key]):
            findings["missing"].append(f"{key}: {text}")
        if got[key] != want[key] and sorted(got[key]) == sorted(want[key]):
            at = next(i for i, pair in enumerate(zip(got[key], want[key], strict=True)) if len(set(pair)) > 1)
            findings["out of order"].append(f"{key}: {got[key][at]} where {want[key][at]} belongs")
    for sort, all_of in findings.items():
        yield from (f"{sort}: {each}" for each in all_of[:SHOWN])
        if len(all_of) > SHOWN:
            yield f"{sort}: {len(all_of)} in all"


def _partitions(written: Written, found: Sequence[Found]) -> Iterator[str]:
    """A key is in one partition, and that is the partitioner's (Java's own is judged by its known values, in
    a unit test)."""
    where: dict[str, set[int]] = defaultdict(set)
    for each in found:
        where[each.key].add(each.record.partition)
        if written.partitioner == "crc32":
            where[each.key].add(crc32(each.record.key or b"") % written.partitions)
    for key, partitions in where.items():
        if len(partitions) > 1:
            yield f"{key} is, or belongs, in the partitions {sorted(partitions)}"


def _versions(written: Written, found: Sequence[Found]) -> Iterator[str]:
    """No row of a key shows a version below one that was there before it."""
    seen: dict[tuple[str, ...], int] = {}
    for each in found:
        if each.reported.after is not None:
            version = int(each.reported.after["version"])
            row = (each.key, *(str(each.reported.after[name]) for name in written.primary))
            if version < seen.get(row, version):
                yield f"{each.key}: version {version} behind {seen[row]}"
            seen[row] = version


def _state(written: Written, found: Sequence[Found], rows: Mapping[str, Iterable[Image]]) -> Iterator[str]:
    """What a compacted topic comes to is what the sources have; full comparison."""
    want = Counter(
        _not_null(written.shown(source, row))
        for source, each in rows.items()
        for row in each
        if written.inside(row)
    )
    last: dict[tuple[int, str], dict[str, Image]] = defaultdict(dict)
    for each in found:
        at = each.record.partition, each.key
        if each.reported.kind == "t":
            for where, kept in last.items():
                if where[0] == each.record.partition:
                    last[where] = _of_others(kept, each.reported.source) if written.branch else {}
        if not each.key:
            continue
        if each.reported.kind == "-":
            last.pop(at, None)
            continue
        image: Image = each.reported.after or each.reported.before or {}
        primary = json.dumps([image[name] for name in written.primary])
        if each.reported.after is None:
            last[at].pop(primary, None)
        else:
            last[at][primary] = each.reported.after
    got = Counter(_not_null(row) for kept in last.values() for row in kept.values())
    yield from (f"a row that no source has: {row}" for row in list(got - want)[:SHOWN])
    yield from (f"a row that the topic lacks: {row}" for row in list(want - got)[:SHOWN])


def _not_null(row: Image) -> str:
    """A row that was not written since a column was added lacks it, where the source has NULL. What each
    record contains is compared as it is."""
    return json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)


def _of_others(rows: Mapping[str, Image], source: str | None) -> dict[str, Image]:
    return {primary: row for primary, row in rows.items() if row["branch"] != source}


def _clearings(
    written: Written, found: Sequence[Found], histories: Mapping[str, SourceHistory]
) -> Iterator[str]:
    """A TRUNCATE is recorded once in every partition, with its source where the format names sources."""
    notified = Counter(
        (each.record.partition, each.reported.source or next(iter(histories)))
        for each in found
        if each.reported.kind == "t"
    )
    for source, history in histories.items():
        desired = 0 if written.format == "plain" else history.steps.count(EMPTIED)
        for partition in range(written.partitions):
            if notified[partition, source] != desired:
                yield (
                    f"TRUNCATE of {source}: {notified[partition, source]} times in partition {partition}, "
                    f"it happened {desired} times"
                )


def _definitions(written: Written, found: Sequence[Found]) -> Iterator[str]:
    """Where a format has definitions, the columns of each row are those of the last one before it in the
    partition."""
    in_force: dict[tuple[int, str | None], frozenset[str]] = {}
    wrong: list[str] = []
    for each in found if written.format in ("rowlock", "canal-json") else ():
        place = each.record.partition, each.reported.source
        image = each.reported.after or each.reported.before
        if each.reported.kind == "m":
            in_force[place] = each.reported.columns
        elif image is not None and image.keys() != in_force.get(place):
            wrong.append(
                f"{each.key}: {sorted(image)} where the definition has {sorted(in_force.get(place, ()))}"
            )
    yield from wrong[:SHOWN]


def _halves(desired: Sequence[Entry], found: Sequence[Found]) -> Iterator[str]:
    """The records of one change are of one transaction: in the one partition of one writer nothing, and so no
    commit, lies between them."""
    by_key: dict[str, list[Found]] = defaultdict(list)
    for each in found:
        by_key[each.key].append(each)
    following = {key: iter(each) for key, each in by_key.items()}
    group, end = -1, -1
    for entry in desired:
        record = next(following[entry.key]).record
        if entry.group == group and record.offset != end + 1:
            yield f"{entry.key}: offset {record.offset} belongs behind {end}, with which it is of one change"
        group, end = entry.group, record.offset
