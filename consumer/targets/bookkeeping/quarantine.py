"""Statements on `rowlock_quarantine`, the rows that wait for a person, and `rowlock_quarantine_closed`,
their history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consumer.ordering.model import ApplyUnit, QuarantineEntry
from consumer.targets.bookkeeping.tables import OF_UNIT, BookkeepingTables
from consumer.targets.sql import Fragment, Params

_COLUMNS = ("kafka_offset", "part", "table_name", "row_key", "folded_key", "event", "error", "commit_ts_ms")


@dataclass(frozen=True, slots=True)
class QuarantineStatements:
    """Statements on the quarantined rows of a unit."""

    tables: BookkeepingTables

    def build_select(self, unit: ApplyUnit) -> Fragment:
        text = f"SELECT {', '.join(_COLUMNS)} FROM {self.tables.qualify_name('rowlock_quarantine')} WHERE {OF_UNIT}"
        return f"{text} ORDER BY kafka_offset, part", [unit.pipeline, unit.topic]

    def build_insert(self, unit: ApplyUnit, held: Sequence[QuarantineEntry]) -> Fragment:
        params = [value for entry in held for value in (unit.pipeline, unit.topic, *_list_values(entry))]
        return self.tables.build_insert(
            "rowlock_quarantine", ("pipeline", "topic", *_COLUMNS), len(held)
        ), params

    def build_close(self, unit: ApplyUnit, ids: Sequence[tuple[int, int]], why: str) -> list[Fragment]:
        """Move entries by (offset, part) to the history."""
        some = " OR ".join(["(kafka_offset = %s AND part = %s)"] * len(ids))
        return self._build_close(unit, f"({some})", [value for pair in ids for value in pair], why)

    def close_before(self, unit: ApplyUnit, offset: int, why: str) -> list[Fragment]:
        """Move the entries below an offset to the history."""
        return self._build_close(unit, "kafka_offset < %s", [offset], why)

    def _build_close(self, unit: ApplyUnit, which: str, values: Params, why: str) -> list[Fragment]:
        columns = ", ".join(("pipeline", "topic", *_COLUMNS, "held_at"))
        held, closed = (
            self.tables.qualify_name("rowlock_quarantine"),
            self.tables.qualify_name("rowlock_quarantine_closed"),
        )
        where = f"FROM {held} WHERE {OF_UNIT} AND {which}"
        place: Params = [unit.pipeline, unit.topic, *values]
        copy = f"INSERT INTO {closed} ({columns}, closed) SELECT {columns}, %s {where}"
        return [(copy, [why, *place]), (f"DELETE {where}", place)]


def parse_quarantine_row(row: Sequence[object]) -> QuarantineEntry:
    """Return the QuarantineEntry of a row of `QuarantineStatements.build_select`."""
    offset, part, table, key, folded, event, error, commit_ts_ms = row
    number: Callable[[object], int] = int  # type: ignore[assignment]
    return QuarantineEntry(
        number(offset), number(part), str(table), str(key), str(folded), str(event), str(error),
        number(commit_ts_ms),
    )  # fmt: skip


def _list_values(held: QuarantineEntry) -> tuple[object, ...]:
    return (
        held.offset, held.part, held.table, held.key, held.folded, held.event, held.error, held.commit_ts_ms,
    )  # fmt: skip
