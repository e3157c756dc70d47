"""The writer of progress and quarantine in a guarded transaction, common to all dialects."""

from __future__ import annotations

from collections.abc import Sequence

from consumer.errors import FencedError
from consumer.ordering.model import ApplyUnit, LaneProgress, QuarantineEntry, UnitState
from consumer.targets.bookkeeping.books import Bookkeeping
from consumer.targets.dialect_components import Link
from consumer.targets.shared.displaced_rows import parse_displaced_row, yield_superseded_marks
from consumer.targets.sql import Fragment


class SqlProgressWriter:
    """A `consumer.targets.base.ProgressWriter` for a transaction that has passed its guard."""

    def __init__(self, unit: ApplyUnit, link: Link, books: Bookkeeping) -> None:
        self._unit = unit
        self._link = link
        self._books = books

    def write_quarantine(self, held: Sequence[QuarantineEntry]) -> None:
        if held:
            self._link.execute(*self._books.quarantine.build_insert(self._unit, held))

    def close_held(self, ids: Sequence[tuple[int, int]], why: str) -> None:
        if ids:
            self._run_fragments(self._books.quarantine.build_close(self._unit, ids, why))

    def close_held_before(self, offset: int, why: str) -> None:
        self._run_fragments(self._books.quarantine.close_before(self._unit, offset, why))

    def supersede_displaced(self, table: str, before: int, why: str) -> None:
        rows = self._link.execute(*self._books.displaced.build_select(self._unit))
        for by, ids in yield_superseded_marks(map(parse_displaced_row, rows), table, before, why):
            self._link.execute(*self._books.displaced.build_mark(by, ids))

    def _run_fragments(self, fragments: Sequence[Fragment]) -> None:
        for fragment in fragments:
            self._link.execute(*fragment)

    def write_progress(self, rows: Sequence[LaneProgress]) -> None:
        for fragment, expected in self._books.lanes.build_updates(self._unit, rows):
            self._link.execute(*fragment)
            if self._link.affected != expected:
                lanes = [row.lane for row in rows]
                raise build_fenced_error(
                    self._unit, f"lanes {lanes} of this attempt", f"{self._link.affected} rows"
                )

    def write_unit(self, state: UnitState) -> None:
        self._link.execute(*self._books.units.build_update(self._unit, state))
        if self._link.affected != 1:
            raise build_fenced_error(self._unit, "its row in rowlock_unit", f"{self._link.affected} rows")

    def replace_lanes(self, rows: Sequence[LaneProgress]) -> None:
        self._link.execute(*self._books.lanes.build_delete(self._unit))
        self._link.execute(*self._books.lanes.build_insert(self._unit, rows))


def build_fenced_error(unit: ApplyUnit, expected: object, seen: object) -> FencedError:
    return FencedError(
        f"another worker owns {unit.topic} of pipeline {unit.pipeline} now: expected {expected}, the target has {seen}"
    )
