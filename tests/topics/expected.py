"""What must be in a topic: its route's settings and each source's changes give the records by key, in their
order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.topics.forms import FORMS, Image, Kind, Said

Step = tuple[Image | None, Image | None]
"""A row before and after a change; None: it is not there."""
EMPTIED: Step = (None, None)
"""The step with which all rows of the table are gone at once (TRUNCATE)."""


@dataclass
class SourceHistory:
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
    where: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
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
    """A record that must be there: under this routing key, saying this; those of one `group` are of one
    change."""

    key: str
    text: str
    group: int


class Expected:
    """All records that a topic must have, by key in their order."""

    def __init__(self, written: Written, histories: Mapping[str, SourceHistory]) -> None:
        self._written, self._group = written, 0
        self.entries = [
            each for source, history in histories.items() for each in self._of_source(source, history)
        ]

    def _of_source(self, source: str, history: SourceHistory) -> Iterator[Entry]:
        written = self._written
        for row in history.first:
            if written.inside(row):  # of the others a reader is told nothing
                yield from self._change(None, written.shown(source, row), "r")
        rows = {row["id"]: row for row in history.first}
        for before, after in history.steps:
            if (before, after) == EMPTIED:
                yield from self._emptied(source, rows.values())
                rows.clear()
                continue
            if before is not None:
                del rows[before["id"]]
            if after is not None:
                rows[after["id"]] = after
            old = written.shown(source, before) if before is not None and written.inside(before) else None
            new = written.shown(source, after) if after is not None and written.inside(after) else None
            yield from self._change(old, new)

    def _emptied(self, source: str, rows: Iterable[Image]) -> Iterator[Entry]:
        """Yield a delete of each row where the format has no word for a TRUNCATE."""
        for row in rows if self._written.format == "plain" else ():
            if self._written.inside(row):
                yield from self._change(self._written.shown(source, row), None)

    def _change(self, old: Image | None, new: Image | None, created: Kind = "c") -> Iterator[Entry]:
        self._group += 1
        stays = old is not None and new is not None and self._key(old) == self._key(new)
        if old is not None and new is not None and stays and self._same_row(old, new):
            yield self._entry(new, "u", old, new)
            return
        if old is not None:
            yield self._entry(old, "d", old, None)
            if self._written.tombstones and self._written.format != "plain" and not stays:
                yield Entry(self._key(old), Said("-").text, self._group)
        if new is not None:
            yield self._entry(new, created, None, new)

    def _same_row(self, old: Image, new: Image) -> bool:
        """Format plain has no word for which row it is about: what is under a key now is the row."""
        primary = self._written.primary
        return self._written.format == "plain" or all(old[name] == new[name] for name in primary)

    def _entry(self, row: Image, kind: Kind, before: Image | None, after: Image | None) -> Entry:
        reported = FORMS[self._written.format].expected(kind, before, after)
        return Entry(self._key(row), reported.text, self._group)

    def _key(self, row: Image) -> str:
        return json.dumps({name: row[name] for name in self._written.key}, sort_keys=True)
