"""Compares rows of a source with rows of a target. Pure: rows in, differences out.

Both sides are wire values in the order of the target's columns, so the comparison does not depend on a
database. During writes a row that differs may simply not have arrived yet; `Suspects` settles that. A
suspect is cleared when the target shows *any* version that the source has had since the suspicion arose,
because the target then lagged and has caught up. (To compare only the latest of both is not enough: a
row that changes faster than the lag would differ for ever.) A version that the target never shows
remains a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from consumer.ordering.model import TargetTable
from schemas.table.equality import FLOATS, are_wire_equal
from schemas.table.model import Key, Kind, Row


class Difference(StrEnum):
    MISSING = "missing"  # the source has the row, the target does not
    EXTRA = "extra"  # the target has the row, the source does not
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One differing row."""

    kind: Difference
    key: Key
    columns: tuple[str, ...] = ()
    """The columns that differ (only for `different`)."""
    moving: bool = False
    """Whether the source row kept changing."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """The part of a table's definition that the comparison needs: names and kinds of the columns, and
    the key's ordinals.
    """

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
        """Return the names of the differing columns."""
        if source == target and FLOATS.isdisjoint(self.kinds):
            return ()  # for floats "==" is not enough: 0.0 == -0.0
        cells = zip(self.columns, self.kinds, source, target, strict=True)
        return tuple(name for name, kind, left, right in cells if not are_wire_equal(kind, left, right))

    def is_same_row(self, one: Row | None, other: Row | None) -> bool:
        """Return whether two reads of a key found the same row, or both found none."""
        if one is None or other is None:
            return one is other
        return not self.list_differing_columns(one, other)


def compare_rows(shape: TableShape, key: Key, source: Row | None, target: Row | None) -> RowDifference | None:
    """Return how the two rows of `key` differ. None means no row, or no difference."""
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
    """A key that differed."""

    finding: RowDifference
    sample: Row
    """A row with the key, from either side: the source is asked by its own key columns."""
    versions: list[Row | None]
    """The rows that the source has shown since."""

    def observe_rows(self, shape: TableShape, source: Row | None, target: Row | None) -> bool:
        """Compare the key again; return whether the target shows any version that the source has had."""
        if not shape.is_same_row(self.versions[-1], source):
            self.versions.append(source)
        found = [compare_rows(shape, self.finding.key, version, target) for version in self.versions]
        newest = found[-1]
        if newest is None or None in found:
            return True
        self.finding = replace(newest, moving=len(self.versions) > 1)
        return False


class Suspects:
    """Keys that differed once, with the versions that the source has shown since. At most `limit` at a
    time.
    """

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
        """Remove all suspects, and return their differences as they were last seen."""
        remained = self.findings
        self._open.clear()
        return remained

    def split_chunks(self, size: int) -> list[dict[Key, Row]]:
        """Return the open suspects (key → a row with that key) in parts of at most `size`."""
        items = [(key, suspect.sample) for key, suspect in self._open.items()]
        return [dict(items[at : at + size]) for at in range(0, len(items), size)]

    def add_findings(
        self, findings: Iterable[RowDifference], source: Mapping[Key, Row], target: Mapping[Key, Row]
    ) -> list[RowDifference]:
        """Add the keys of `findings` as suspects; `source` and `target` are the rows that were compared.

        Returns the findings for which there is no room. The caller makes room and adds them again.
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
        """Compare `keys` again, and clear those that the target has caught up with. `source` must have
        been read before `target`.
        """
        for key in list(keys):
            if self._open[key].observe_rows(self._shape, source.get(key), target.get(key)):
                del self._open[key]
