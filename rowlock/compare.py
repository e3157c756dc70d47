"""Compares rows of a source with rows of a target. Pure: rows come in, differences come out.

Both sides are wire values in the order of the target's columns, so the comparison knows no database. While writes go
on, a row that differs may simply be on its way; `Suspects` settles that. A suspect is cleared when the target shows *any*
version that the source had since the suspicion arose: the target was then behind and has moved on. (It is not enough to
compare the latest of both: a row that changes faster than the lag would differ for ever.) What the target never shows
stays a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from schemas.table import Key, Row, Value

Equal = Callable[[Value, Value], bool]
"""Tells whether two wire values of one column are the same value."""


class Difference(StrEnum):
    MISSING = "missing"  # the source has the row, the target has not
    EXTRA = "extra"  # the target has the row, the source has not
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Finding:
    """One differing row. `columns`: which differ (only for `different`); `moving`: the source row kept changing."""

    kind: Difference
    key: Key
    columns: tuple[str, ...] = ()
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What is needed to compare rows of a table: names, one `Equal` a column, and where the key stands."""

    columns: tuple[str, ...]
    equal: tuple[Equal, ...]
    key_at: tuple[int, ...]

    def key(self, row: Row) -> Key:
        return tuple(row[i] for i in self.key_at)

    def by_key(self, rows: Iterable[Row]) -> dict[Key, Row]:
        return {self.key(row): row for row in rows}

    def differing(self, source: Row, target: Row) -> tuple[str, ...]:
        """Return the names of the columns that differ."""
        if source == target:
            return ()
        cells = zip(self.columns, self.equal, source, target, strict=True)
        return tuple(
            name for name, equal, left, right in cells if left != right and not _same(equal, left, right)
        )


def _same(equal: Equal, left: Value, right: Value) -> bool:
    return left is not None and right is not None and equal(left, right)


def compare(shape: Shape, key: Key, source: Row | None, target: Row | None) -> Finding | None:
    """Return how the two rows of `key` differ; None stands for no row, and for no difference."""
    if source is None:
        return Finding(Difference.EXTRA, key) if target is not None else None
    if target is None:
        return Finding(Difference.MISSING, key)
    columns = shape.differing(source, target)
    return Finding(Difference.DIFFERENT, key, columns) if columns else None


def compare_page(
    shape: Shape, keys: Sequence[Key], source: Iterable[Row], target: Iterable[Row]
) -> list[Finding]:
    """Compare the rows of `keys` on both sides; rows of other keys are ignored."""
    left, right = shape.by_key(source), shape.by_key(target)
    found = (compare(shape, key, left.get(key), right.get(key)) for key in keys)
    return [finding for finding in found if finding]


@dataclass(slots=True)
class _Suspect:
    finding: Finding
    versions: list[Row | None] = field(default_factory=list)


class Suspects:
    """Keys that differed once, with the versions that the source showed since. At most `limit` of them."""

    def __init__(self, shape: Shape, limit: int) -> None:
        self._shape = shape
        self._limit = limit
        self._open: dict[Key, _Suspect] = {}
        self.overflow = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def keys(self) -> list[Key]:
        return list(self._open)

    @property
    def findings(self) -> list[Finding]:
        """The differences as they were last seen."""
        return [suspect.finding for suspect in self._open.values()]

    def add(self, findings: Iterable[Finding], source: Mapping[Key, Row]) -> None:
        """Suspect the keys of `findings`; `source` holds the rows that were compared."""
        for finding in findings:
            if finding.key in self._open:
                continue
            if len(self._open) >= self._limit:
                self.overflow = True
                return
            self._open[finding.key] = _Suspect(finding, [source.get(finding.key)])

    def observe(self, source: Mapping[Key, Row], target: Mapping[Key, Row]) -> None:
        """Take another look: `source` must have been read before `target`. Clears what the target now follows."""
        for key, suspect in list(self._open.items()):
            self._note(suspect, source.get(key))
            now = target.get(key)
            if any(compare(self._shape, key, version, now) is None for version in suspect.versions):
                del self._open[key]
                continue
            finding = compare(self._shape, key, suspect.versions[-1], now)
            assert finding is not None  # noqa: S101 - the newest version was compared just above
            moving = len(suspect.versions) > 1
            suspect.finding = Finding(finding.kind, key, finding.columns, moving=moving)

    def _note(self, suspect: _Suspect, row: Row | None) -> None:
        if suspect.versions[-1] != row:
            suspect.versions.append(row)
