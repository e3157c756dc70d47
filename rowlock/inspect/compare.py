"""Compares rows of a source with rows of a target. Pure: rows come in, differences come out.

Both sides are wire values in the order of the target's columns, so the comparison knows no database. While writes go
on, a row that differs may simply be on its way; `Suspects` settles that. A suspect is cleared when the target shows *any*
version that the source had since the suspicion arose: the target was then behind and has moved on. (It is not enough to
compare the latest of both: a row that changes faster than the lag would differ for ever.) What the target never shows
stays a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from consumer.ordering.model import TargetTable
from schemas.table.equality import FLOATS, are_wire_equal
from schemas.table.model import Key, Kind, Row


class Difference(StrEnum):
    MISSING = "missing"  # the source has the row, the target has not
    EXTRA = "extra"  # the target has the row, the source has not
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One differing row. `columns`: which differ (only for `different`); `moving`: the source row kept changing."""

    kind: Difference
    key: Key
    columns: tuple[str, ...] = ()
    moving: bool = False


@dataclass(frozen=True, slots=True)
class TableShape:
    """The shape of a table that comparing its rows needs: names and kinds of the columns, and where the key stands."""

    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    key_at: tuple[int, ...]

    @classmethod
    def from_table(cls, table: TargetTable) -> TableShape:
        columns = table.table.columns
        return cls(table.table.column_names, tuple(column.type.kind for column in columns), table.key_at)

    def build_key(self, row: Row) -> Key:
        return tuple(row[i] for i in self.key_at)

    def map_by_key(self, rows: Iterable[Row]) -> dict[Key, Row]:
        return {self.build_key(row): row for row in rows}

    def list_differing_columns(self, source: Row, target: Row) -> tuple[str, ...]:
        """Return the names of the columns that differ."""
        if source == target and FLOATS.isdisjoint(self.kinds):
            return ()  # for floats "==" is not enough: 0.0 == -0.0
        cells = zip(self.columns, self.kinds, source, target, strict=True)
        return tuple(name for name, kind, left, right in cells if not are_wire_equal(kind, left, right))

    def is_same_row(self, one: Row | None, other: Row | None) -> bool:
        """Return whether two looks at a key found the same row, or none both times."""
        if one is None or other is None:
            return one is other
        return not self.list_differing_columns(one, other)


def compare_rows(shape: TableShape, key: Key, source: Row | None, target: Row | None) -> RowDifference | None:
    """Return how the two rows of `key` differ; None stands for no row, and for no difference."""
    if source is None:
        return RowDifference(Difference.EXTRA, key) if target is not None else None
    if target is None:
        return RowDifference(Difference.MISSING, key)
    columns = shape.list_differing_columns(source, target)
    return RowDifference(Difference.DIFFERENT, key, columns) if columns else None


def compare_page(
    shape: TableShape, source: Mapping[Key, Row], target: Mapping[Key, Row]
) -> list[RowDifference]:
    """Compare two sets of rows by key."""
    keys = [*source, *(key for key in target if key not in source)]
    found = (compare_rows(shape, key, source.get(key), target.get(key)) for key in keys)
    return [finding for finding in found if finding]


@dataclass(slots=True)
class _Suspect:
    """`sample`: a row of the key, whichever side had it, because a source is asked by its own key's columns."""

    finding: RowDifference
    sample: Row
    versions: list[Row | None]


class Suspects:
    """Keys that differed once, with the versions that the source showed since. At most `limit` of them at a time."""

    def __init__(self, shape: TableShape, limit: int) -> None:
        self._shape = shape
        self._limit = limit
        self._open: dict[Key, _Suspect] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        return len(self._open) >= self._limit

    @property
    def findings(self) -> list[RowDifference]:
        """The differences as they were last seen."""
        return [suspect.finding for suspect in self._open.values()]

    def give_up(self) -> list[RowDifference]:
        """Suspect none of them any longer; returns the differences that remained, as they were last seen."""
        remained = self.findings
        self._open.clear()
        return remained

    def split_chunks(self, size: int) -> list[dict[Key, Row]]:
        """Return the open suspects (key → a row with that key) in pieces."""
        items = [(key, suspect.sample) for key, suspect in self._open.items()]
        return [dict(items[at : at + size]) for at in range(0, len(items), size)]

    def add_findings(
        self, findings: Iterable[RowDifference], source: Mapping[Key, Row], target: Mapping[Key, Row]
    ) -> list[RowDifference]:
        """Suspect the keys of `findings`; `source` and `target` hold the rows that were compared.

        Returns the findings for which there is no room: make some, and add them then.
        """
        waiting = list(findings)
        for at, finding in enumerate(waiting):
            key = finding.key
            if key in self._open:
                continue
            if self.full:
                return waiting[at:]
            row = source.get(key)
            self._open[key] = _Suspect(finding, target[key] if row is None else row, [row])
        return []

    def observe_keys(self, keys: Iterable[Key], source: Mapping[Key, Row], target: Mapping[Key, Row]) -> None:
        """Take another look at `keys`: `source` must have been read before `target`. Clears what the target follows."""
        for key in list(keys):
            suspect = self._open[key]
            self._record_version(suspect, source.get(key))
            now = target.get(key)
            if any(compare_rows(self._shape, key, version, now) is None for version in suspect.versions):
                del self._open[key]
                continue
            finding = compare_rows(self._shape, key, suspect.versions[-1], now)
            assert finding is not None  # noqa: S101 - the newest version was compared just above
            moving = len(suspect.versions) > 1
            suspect.finding = RowDifference(finding.kind, key, finding.columns, moving=moving)

    def _record_version(self, suspect: _Suspect, row: Row | None) -> None:
        if not self._shape.is_same_row(suspect.versions[-1], row):
            suspect.versions.append(row)
