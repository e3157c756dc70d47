"""The judge: whether a topic has each change of its sources exactly once, in order by key, and comes to the rows that they have.

It knows what a route says (`Written`) and what each source did (`History`), works out by itself what must be in the topic, and compares every
record and every value. A finding is a sentence; a topic without findings is right.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from tests.topics.forms import FORMS, Image, Kind, Said
from tests.topics.records import Record

Step = tuple[Image | None, Image | None]
"""A row before and after a change; None: it is not there."""
SHOWN = 5
"""Findings of one sort that are told."""


@dataclass
class History:
    """What a source had when it was first read, and each change since, in the order of its log."""

    first: list[Image] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Written:
    """What a route says of its topic. `branch`: the source's name is added, in the column `branch`."""

    topic: str
    format: str = "rowlock"
    key: tuple[str, ...] = ("id",)
    partitions: int = 1
    partitioner: str = "murmur2"
    columns: tuple[str, ...] = ()
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    masks: Mapping[str, str] = field(default_factory=dict)
    salt: str = ""
    branch: bool = False
    tombstones: bool = True

    def route(self, table: str) -> dict[str, Any]:
        """Return the route as the configuration has it, of a source's table `db.name`."""
        found: dict[str, Any] = {
            "format": self.format,
            "key": list(self.key),
            "partitions": self.partitions,
            "partitioner": self.partitioner,
            "columns": list(self.columns),
            "where": {name: list(values) for name, values in self.where.items()},
            "masks": dict(self.masks),
            "tombstones": self.tombstones,
        }
        added = {"add": {"branch": "{source}"}} if self.branch else {}
        return {"from": table, "to": self.topic, "kafka": found, **added}

    @property
    def primary(self) -> tuple[str, ...]:
        return ("branch", "id") if self.branch else ("id",)

    def shown(self, source: str, row: Image) -> Image:
        """Return a row as its reader sees it, in whichever side of the filter it is."""
        form = FORMS[self.format]
        named = {**row, "branch": source} if self.branch else row
        return {
            name: self._hidden(name, value) if name in self.masks else form.spell(value)
            for name, value in named.items()
            if not self.columns or name in self.columns
        }

    def inside(self, row: Image) -> bool:
        return all(row[name] in values for name, values in self.where.items())

    def _hidden(self, name: str, value: Any) -> str | None:
        if value is None:
            return None
        mask = self.masks[name]
        return hashlib.sha256(f"{self.salt}{value}".encode()).hexdigest() if mask == "sha256" else str(mask)


@dataclass(frozen=True)
class Entry:
    """A record that must be there: under this routing key, saying this; those of one `group` are of one change."""

    key: str
    text: str
    group: int


class Expected:
    """All records that a topic must have, by key in their order."""

    def __init__(self, written: Written, histories: Mapping[str, History]) -> None:
        self._written, self._group = written, 0
        self.entries = [
            each for source, history in histories.items() for each in self._of_source(source, history)
        ]

    def _of_source(self, source: str, history: History) -> Iterator[Entry]:
        written = self._written
        for row in history.first:
            shown = written.shown(source, row)
            # The topic may have a row that is filtered out now from before: a snapshot says that it is gone.
            yield from self._change(None, shown, "r") if written.inside(row) else self._change(shown, None)
        for before, after in history.steps:
            old = written.shown(source, before) if before is not None and written.inside(before) else None
            new = written.shown(source, after) if after is not None and written.inside(after) else None
            yield from self._change(old, new)

    def _change(self, old: Image | None, new: Image | None, created: Kind = "c") -> Iterator[Entry]:
        self._group += 1
        if old is not None and new is not None and self._key(old) == self._key(new):
            yield self._entry(new, "u", old, new)
            return
        if old is not None:
            yield self._entry(old, "d", old, None)
            if self._written.tombstones and self._written.format != "plain":
                yield Entry(self._key(old), Said("-").text, self._group)
        if new is not None:
            yield self._entry(new, created, None, new)

    def _entry(self, row: Image, kind: Kind, before: Image | None, after: Image | None) -> Entry:
        said = FORMS[self._written.format].expected(kind, before, after)
        return Entry(self._key(row), said.text, self._group)

    def _key(self, row: Image) -> str:
        return json.dumps({name: row[name] for name in self._written.key}, sort_keys=True)


@dataclass(frozen=True)
class Found:
    """A record of a row, and what it says."""

    record: Record
    key: str
    said: Said


def rows_found(written: Written, records: Iterable[Record]) -> list[Found]:
    """Return the records that are about one row each, in the order of their partitions."""
    form = FORMS[written.format]
    return [
        Found(each, json.dumps(form.key(each.key), sort_keys=True), form.said(each.value))
        for each in sorted(records, key=lambda record: (record.partition, record.offset))
        if each.key is not None
    ]


def judge(
    written: Written,
    records: Sequence[Record],
    histories: Mapping[str, History],
    rows: Mapping[str, Iterable[Image]],
) -> list[str]:
    """Return what is wrong with a topic. `rows`: what each source has now, read from it and not from its history."""
    found = rows_found(written, records)
    wanted = Expected(written, histories).entries
    once = list(_once_and_in_order(wanted, found))
    return [
        *once,
        *_partitions(written, found),
        *_versions(written, found),
        *_state(written, found, rows),
        *(_halves(wanted, found) if written.partitions == 1 and len(histories) == 1 and not once else ()),
    ]


def _once_and_in_order(wanted: Sequence[Entry], found: Sequence[Found]) -> Iterator[str]:
    want: dict[str, list[str]] = defaultdict(list)
    got: dict[str, list[str]] = defaultdict(list)
    for entry in wanted:
        want[entry.key].append(entry.text)
    for each in found:
        got[each.key].append(each.said.text)
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
    """A key is in one partition, and that is the partitioner's (Java's own is judged by its known values, in a unit test)."""
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
        if each.said.after is not None:
            version = int(each.said.after["version"])
            row = (each.key, *(str(each.said.after[name]) for name in written.primary))
            if version < seen.get(row, version):
                yield f"{each.key}: version {version} behind {seen[row]}"
            seen[row] = version


def _state(written: Written, found: Sequence[Found], rows: Mapping[str, Iterable[Image]]) -> Iterator[str]:
    """What a compacted topic comes to is what the sources have; full comparison."""
    want = Counter(
        json.dumps(written.shown(source, row), sort_keys=True)
        for source, each in rows.items()
        for row in each
        if written.inside(row)
    )
    last: dict[str, dict[str, Image]] = defaultdict(dict)
    for each in found:
        if each.said.kind == "-":
            last.pop(each.key, None)
            continue
        image: Image = each.said.after or each.said.before or {}
        primary = json.dumps([image[name] for name in written.primary])
        if each.said.after is None:
            last[each.key].pop(primary, None)
        else:
            last[each.key][primary] = each.said.after
    got = Counter(json.dumps(row, sort_keys=True) for kept in last.values() for row in kept.values())
    yield from (f"a row that no source has: {row}" for row in list(got - want)[:SHOWN])
    yield from (f"a row that the topic lacks: {row}" for row in list(want - got)[:SHOWN])


def _halves(wanted: Sequence[Entry], found: Sequence[Found]) -> Iterator[str]:
    """The records of one change are of one transaction: in the one partition of one writer nothing, and so no commit, lies between them."""
    by_key: dict[str, list[Found]] = defaultdict(list)
    for each in found:
        by_key[each.key].append(each)
    following = {key: iter(each) for key, each in by_key.items()}
    group, end = -1, -1
    for entry in wanted:
        record = next(following[entry.key]).record
        if entry.group == group and record.offset != end + 1:
            yield f"{entry.key}: offset {record.offset} belongs behind {end}, with which it is of one change"
        group, end = entry.group, record.offset
